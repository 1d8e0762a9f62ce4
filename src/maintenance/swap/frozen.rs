//! The collection during a swap: frozen by a validator, which holds for all proxies, under a
//! [fence](Fence).
//!
//! A command that was sent may arrive late. So every command names the UUIDs of its collections,
//! and a freeze or thaw also the run's fence. Before a step relies on a state, late commands that
//! would undo that state are made to fail: see `docs/decisions/0027-late-messages-are-fenced.md`.

use bson::raw::{RawDocument, RawDocumentBuf, cstr};
use bson::{Binary, Document};
use tokio_util::sync::CancellationToken;

use super::commands::{Freezing, INDEX_NOT_FOUND, UUID_MISMATCH, append_concern, concern_kept, has_code};
use super::fencing::{self, Held};
use super::halt::Halt;
use super::kind::NAMESPACE_NOT_FOUND;
use super::kind::uuid_of;
use crate::command::collection::VALIDATION;
use crate::command::document::{append_fields, put, single};
use crate::maintenance::upstream::{
    ShapedCollection, described_validator, description, explain, indexes_of, listed_options, raw_specs,
};
use crate::pattern::bucket::fence::Fence;
use crate::pattern::bucket::unique_index::{ClauseOfIndex, UniqueIndex};
use crate::pattern::bucket::validation::Validation;
use crate::pattern::bucket::validator::PageValidator;
use crate::pattern::shapes::BucketShape;

/// The collection to be swapped, under this run's fence.
#[derive(Clone)]
pub(crate) struct Frozen<'a> {
    by: Freezing<'a>,
    uuid: Binary,
    fence: Fence,
    former: FormerValidator,
}

/// The validator of a collection before it is frozen, which a thaw restores.
#[derive(Clone)]
enum FormerValidator {
    Pages(PageValidator),
    Documents(Validation),
}

impl<'a> Frozen<'a> {
    /// Fences a collection and removes any other fence. After this, late freezes and thaws of other
    /// runs fail.
    pub(crate) async fn fence(by: Freezing<'a>, described: &Document, stop: &CancellationToken) -> Result<Self, Halt> {
        let uuid = uuid_of(described)?;
        let fenced = Held {
            client: by.client,
            target: by.target,
            uuid: &uuid,
        };
        let fence = fencing::put_up(fenced, stop).await?;
        Ok(Self {
            by,
            former: FormerValidator::of(by, &uuid).await?,
            uuid,
            fence,
        })
    }

    /// The same collection with the validator that it has by now.
    pub(crate) async fn renewed(&self) -> Result<Self, Halt> {
        Ok(Self {
            by: self.by,
            uuid: self.uuid.clone(),
            fence: self.fence,
            former: FormerValidator::of(self.by, &self.uuid).await?,
        })
    }

    pub(crate) fn by(&self) -> Freezing<'a> {
        self.by
    }

    pub(crate) fn uuid(&self) -> &Binary {
        &self.uuid
    }

    /// The clauses that the validator of a collection of pages had before it was frozen.
    pub(crate) fn page_validator(&self) -> PageValidator {
        match &self.former {
            FormerValidator::Pages(validator) => validator.clone(),
            FormerValidator::Documents(_) => PageValidator::default(),
        }
    }

    /// Fails if another run has replaced the fence.
    pub(crate) async fn is_fenced(&self) -> Result<(), Halt> {
        self.modify(self.fence.freeze(), &RawDocumentBuf::new(), None).await
    }

    /// Refuses all inserts and updates from now on. When this returns, earlier writes have
    /// completed in mongod.
    pub(crate) async fn freeze(&self, stop: &CancellationToken) -> Result<(), Halt> {
        let options = self.former.frozen();
        loop {
            self.modify(self.fence.freeze(), &options, Some(stop)).await?;
            // From here on, a late change of the validator by a proxy fails.
            let target = self.by.target;
            fencing::take_down_validator_fences(&target.database, &target.collection, &self.uuid).await?;
            let described = description(&target.database, &target.collection).await?;
            if described.is_none_or(|described| self.by.work.has_frozen(&described)) {
                return Ok(());
            }
        }
    }

    /// Undoes a freeze and keeps the fence: that of an earlier run, before this one has frozen anything, or
    /// one of this run that was acknowledged, so that none is on its way.
    pub(crate) async fn thaw_for_now(&self) -> Result<(), Halt> {
        self.modify(self.fence.thaw(), &self.former.thawed(), None).await
    }

    /// Undoes the freeze and drops the fence. After this, late freezes of this run fail.
    pub(crate) async fn thaw(&self) -> Result<(), Halt> {
        match self.try_to_thaw().await {
            Err(Halt::Failed(error)) if has_code(&error, &[NAMESPACE_NOT_FOUND, UUID_MISMATCH]) => Ok(()),
            Err(Halt::Failed(error)) if has_code(&error, &[INDEX_NOT_FOUND]) => Err(Halt::Words(format!(
                "another run has replaced the fence, or another program has dropped it; if no run is in progress, run `{}` again",
                self.by.work.command()
            ))),
            Err(Halt::Failed(error)) => Err(Halt::Words(format!(
                "{}; the collection may still be frozen and refuse all writes; run `{}` again",
                explain(&error),
                self.by.work.command()
            ))),
            thawed => thawed,
        }
    }

    async fn try_to_thaw(&self) -> Result<(), Halt> {
        let target = self.by.target;
        self.drop_index(&self.fence.freeze()).await?;
        // From here on a late freeze fails. Any other validator of the collection is not the run's.
        let described = description(&target.database, &target.collection).await?;
        if described.is_some_and(|described| self.by.work.has_frozen(&described)) {
            let thaw = self.modification(self.fence.thaw(), &self.former.thawed());
            self.by.insist(&target.database, thaw).await?;
        }
        self.drop_index(&self.fence.thaw()).await
    }

    async fn drop_index(&self, name: &str) -> Result<(), Halt> {
        let target = self.by.target;
        let command = fencing::drop_indexes(&target.collection, &self.uuid, &[name.to_owned()]);
        match self.by.insist(&target.database, command).await {
            Err(Halt::Failed(error)) if has_code(&error, &[INDEX_NOT_FOUND]) => Ok(()),
            dropped => dropped,
        }
    }

    /// A `collMod` that sets these options only if the collection has the fence's index.
    fn modification(&self, index: String, options: &RawDocument) -> RawDocumentBuf {
        let mut command = single("collMod", self.by.target.collection.as_str());
        command.append(cstr!("collectionUUID"), &self.uuid);
        let mut fence = single("name", index);
        fence.append(cstr!("hidden"), true);
        command.append(cstr!("index"), fence);
        append_fields(&mut command, options);
        command
    }

    async fn modify(&self, index: String, options: &RawDocument, stop: Option<&CancellationToken>) -> Result<(), Halt> {
        let command = self.modification(index, options);
        self.by.run(&self.by.target.database, command, stop).await
    }
}

impl FormerValidator {
    /// That of a collection or, while it is frozen, the one that the freeze records.
    async fn of(by: Freezing<'_>, uuid: &Binary) -> Result<Self, Halt> {
        let (database, name) = (&by.target.database, by.target.collection.as_str());
        let Some(shape) = by.target.bucket().filter(|_| by.work.is_of_pages()) else {
            let options = listed_options(database, name).await?;
            return Ok(Self::Documents(Validation::of(&options.unwrap_or_default())));
        };
        // From here on, a proxy changes no validator of the application.
        fencing::take_down_validator_fences(database, name, uuid).await?;
        let described = description(database, name).await?;
        let recorded = described.as_ref().and_then(page_validator).unwrap_or_default();
        with_indexes(recorded, by.target, shape, name).await.map(Self::Pages)
    }

    /// The options that freeze the collection, as arguments of a `collMod`.
    fn frozen(&self) -> RawDocumentBuf {
        let freeze = match self {
            Self::Pages(validator) => validator.frozen(),
            Self::Documents(validation) => validation.frozen(),
        };
        let [validator, level, action] = VALIDATION;
        let mut options = single(validator, &freeze);
        put(&mut options, level, "strict");
        put(&mut options, action, "error");
        options
    }

    /// The options before the freeze.
    fn thawed(&self) -> RawDocumentBuf {
        match self {
            Self::Pages(validator) => {
                let mut options = RawDocumentBuf::new();
                validator.append_to(&mut options);
                options
            }
            Self::Documents(validation) => validation.arguments(),
        }
    }
}

/// Sets the validator of a collection of pages. The clauses of its unique indexes are derived from the
/// indexes.
pub(crate) async fn set_validator(
    target: &ShapedCollection,
    shape: &BucketShape,
    collection: &str,
    validator: PageValidator,
) -> Result<(), Halt> {
    let validator = with_indexes(validator, target, shape, collection).await?.document();
    if validator.is_empty() {
        return Ok(());
    }
    let mut command = single("collMod", collection);
    command.append(cstr!("validator"), &validator);
    append_concern(&mut command);
    concern_kept(&target.database.run_raw_command(command).await?)
}

/// The validator with the clauses of the unique indexes that a collection of pages has.
async fn with_indexes(
    validator: PageValidator,
    target: &ShapedCollection,
    shape: &BucketShape,
    collection: &str,
) -> Result<PageValidator, Halt> {
    let there = indexes_of(&target.database, collection).await?;
    let indexes = UniqueIndex::all(shape, raw_specs(&there));
    Ok(PageValidator {
        indexes: indexes.iter().map(|index| ClauseOfIndex::of(shape, index)).collect(),
        ..validator
    })
}

/// The clauses that a listed collection has or, while it is frozen, records.
fn page_validator(described: &Document) -> Option<PageValidator> {
    PageValidator::parse(&described_validator(described)?)
}
