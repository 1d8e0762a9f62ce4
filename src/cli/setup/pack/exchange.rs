//! Two names exchanged: the collection of plain documents gets another, and the copy gets its.
//!
//! mongod has no one step for it that keeps both. So there is a moment in which there is no collection of that name; what is broken
//! off in it is told by the three names, and finished by the next run.

use bson::Binary;
use mongodb::error::Error;
use tokio_util::sync::CancellationToken;

use super::items::Items;
use crate::cli::replace::{Freezing, Frozen, Halt, uuid_of};
use crate::cli::survey::{is_frozen, taken};
use crate::cli::upstream::{Target, description, explain};
use crate::pattern::bucket::pack;
use crate::pattern::shapes::BucketShape;

/// An exchange that has begun, and is to be finished.
pub(super) struct Exchange<'a> {
    frozen: Held<'a>,
    target: &'a Target,
    copy: Binary,
    items: Items,
}

enum Held<'a> {
    Lent(&'a Frozen<'a>),
    Own(Frozen<'a>),
}

/// Whether the collection that was frozen has its other name.
pub(super) async fn has_begun(target: &Target, frozen: &Frozen<'_>) -> Result<bool, Error> {
    let kept = description(&target.database, &pack::plain_name(&target.collection)).await?;
    Ok(kept.and_then(|kept| uuid_of(&kept).ok()).as_ref() == Some(frozen.uuid()))
}

impl<'a> Exchange<'a> {
    /// Gives the frozen collection its other name.
    pub(super) async fn begin(frozen: &'a Frozen<'a>, copy: &Binary, items: Items) -> Result<Self, Halt> {
        let target = frozen.target();
        let described = description(&target.database, &target.collection).await?;
        let is_it = |uuid: Result<Binary, Halt>| uuid.is_ok_and(|uuid| uuid == *frozen.uuid());
        if !described.is_some_and(|described| is_frozen(&described) && is_it(uuid_of(&described))) {
            let words = "it was thawed, dropped or renamed by somebody while its documents were packed";
            return Err(Halt::Words(words.to_owned()));
        }
        let kept = pack::plain_name(&target.collection);
        let renamed = frozen.rename((&target.collection, &kept), None).await;
        if !has_begun(target, frozen).await? {
            renamed?;
        }
        Ok(Self {
            frozen: Held::Lent(frozen),
            target,
            copy: copy.clone(),
            items,
        })
    }

    /// One that an earlier run has begun: the copy must hold what is kept.
    pub(super) async fn broken_off(by: Freezing<'a>, shape: &BucketShape) -> Result<Self, Halt> {
        let target = by.target;
        let (kept, copy) = (
            pack::plain_name(&target.collection),
            pack::copy_name(&target.collection),
        );
        let gone = || Halt::Words("what an earlier run has left is gone".to_owned());
        let described = description(&target.database, &kept).await?.ok_or_else(gone)?;
        let described_copy = description(&target.database, &copy).await?.ok_or_else(gone)?;
        let go_on = CancellationToken::new();
        let items = Items::of_pages((target, shape), &copy, &go_on).await?;
        let documents = Items::of_documents((target, shape), &kept, &go_on).await?;
        if items != documents {
            let words = format!(
                "{copy} does not hold what {kept} does. Rename that to {}, and run `mongoshape setup --pack` again",
                target.collection
            );
            return Err(Halt::Words(words));
        }
        Ok(Self {
            frozen: Held::Own(Frozen::of(by, &described)?),
            target,
            copy: uuid_of(&described_copy)?,
            items,
        })
    }

    /// Gives the copy the collection's name.
    pub(super) async fn finish(self) -> Result<Items, Halt> {
        let frozen = match &self.frozen {
            Held::Lent(frozen) => frozen,
            Held::Own(frozen) => frozen,
        };
        let copy = pack::copy_name(&self.target.collection);
        let renamed = frozen.rename((&copy, &self.target.collection), None).await;
        if frozen.is_replaced(&self.copy).await {
            return Ok(self.items);
        }
        if description(&self.target.database, &self.target.collection)
            .await?
            .is_some()
        {
            return Err(Halt::Words(taken(self.target)));
        }
        renamed.map_err(|halt| self.unfinished(halt))?;
        Ok(self.items)
    }

    fn unfinished(&self, halt: Halt) -> Halt {
        let reason = match halt {
            Halt::Failed(error) => explain(&error),
            Halt::Words(words) => words,
            other => return other,
        };
        let (name, kept) = (&self.target.collection, pack::plain_name(&self.target.collection));
        Halt::Words(format!(
            "{reason}. There is no {name} now: its documents are all in {kept}. Run `mongoshape setup --pack` again to finish"
        ))
    }
}
