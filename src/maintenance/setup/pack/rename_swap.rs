//! The two renames of a swap that keeps the plain collection.
//!
//! mongod cannot swap two names in one step, so for a moment no collection has the original name. If a
//! run ends in that moment, the three names show it, and the next run finishes.

use bson::Binary;
use mongodb::error::Error;
use tokio_util::sync::CancellationToken;

use super::checksum::Items;
use crate::maintenance::inspect::{is_frozen, taken};
use crate::maintenance::swap::{CollectionRename, Freezing, Frozen, Halt, uuid_of};
use crate::maintenance::upstream::{ShapedCollection, description, explain};
use crate::pattern::bucket::pack;
use crate::pattern::shapes::BucketShape;

/// A swap after its first rename.
pub(super) struct Exchange<'a> {
    by: Freezing<'a>,
    copy: Binary,
    items: Items,
}

/// The UUIDs of the collections next to the plain one.
pub(super) struct Beside {
    pub(super) copy: Binary,
    /// The [placeholder](crate::maintenance::swap::placeholder).
    pub(super) place: Binary,
}

/// Whether the collection with that UUID has been renamed.
pub(super) async fn has_begun(target: &ShapedCollection, uuid: &Binary) -> Result<bool, Error> {
    let kept = description(&target.database, &pack::plain_name(&target.collection)).await?;
    Ok(kept.and_then(|kept| uuid_of(&kept).ok()).as_ref() == Some(uuid))
}

impl<'a> Exchange<'a> {
    /// Renames the frozen collection.
    pub(super) async fn begin(frozen: &Frozen<'a>, beside: Beside, items: Items) -> Result<Self, Halt> {
        let by = frozen.by();
        let target = by.target;
        let described = description(&target.database, &target.collection).await?;
        let is_it = |uuid: Result<Binary, Halt>| uuid.is_ok_and(|uuid| uuid == *frozen.uuid());
        if !described.is_some_and(|described| is_frozen(&described) && is_it(uuid_of(&described))) {
            let words =
                "another program removed the validator, or dropped or renamed it, while its documents were packed";
            return Err(Halt::Words(words.to_owned()));
        }
        let kept = pack::plain_name(&target.collection);
        let renamed = CollectionRename {
            from: &target.collection,
            uuid: frozen.uuid(),
            to: &kept,
            dropped: Some(&beside.place),
        };
        if let Err(halt) = by.rename(renamed).await {
            // The rename may have succeeded, or may still arrive. After the placeholder is dropped,
            // a late rename fails.
            by.drop(&kept, Some(&beside.place)).await?;
            if !has_begun(target, frozen.uuid()).await? {
                return Err(halt);
            }
        }
        Ok(Self {
            by,
            copy: beside.copy,
            items,
        })
    }

    /// A swap that an earlier run began. Checks that the copy contains the items of the kept
    /// collection.
    pub(super) async fn broken_off(by: Freezing<'a>, shape: &BucketShape) -> Result<Self, Halt> {
        let target = by.target;
        let (kept, copy) = (
            pack::plain_name(&target.collection),
            pack::copy_name(&target.collection),
        );
        let gone = || Halt::Words("the collections of an earlier run no longer exist".to_owned());
        description(&target.database, &kept).await?.ok_or_else(gone)?;
        let described_copy = description(&target.database, &copy).await?.ok_or_else(gone)?;
        let go_on = CancellationToken::new();
        let items = Items::of_pages(target, shape, &copy, &go_on).await?;
        let documents = Items::of_documents(target, shape, &kept, &go_on).await?;
        if items != documents {
            let words = format!(
                "{copy} does not contain the documents of {kept}. Rename {kept} to {}, and run `mongoshape setup --pack` again",
                target.collection
            );
            return Err(Halt::Words(words));
        }
        Ok(Self {
            by,
            copy: uuid_of(&described_copy)?,
            items,
        })
    }

    /// Renames the copy to the original name, which must be free. Another run may do the same
    /// concurrently.
    pub(super) async fn finish(self) -> Result<Items, Halt> {
        let target = self.by.target;
        let renamed = CollectionRename {
            from: &pack::copy_name(&target.collection),
            uuid: &self.copy,
            to: &target.collection,
            dropped: None,
        };
        let renamed = self.by.rename(renamed).await;
        if self.by.is_replaced(&self.copy).await? {
            return Ok(self.items);
        }
        if description(&target.database, &target.collection).await?.is_some() {
            return Err(Halt::Words(taken(target)));
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
        let (name, kept) = (&self.by.target.collection, pack::plain_name(&self.by.target.collection));
        Halt::Words(format!(
            "{reason}. {name} does not exist now: all its documents are in {kept}. Run `mongoshape setup --pack` again to finish"
        ))
    }
}
