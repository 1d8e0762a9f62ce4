//! The collection while it is replaced: frozen by a validator, which any number of proxies meet, under a
//! [fence](Fence).
//!
//! Whatever was once sent may still arrive. So every command here names the UUIDs of the collections that it
//! is about, a freeze and a thaw the run's fence, and what a late one would undo is made impossible before
//! anything relies on it: see `docs/decisions/0027-late-messages-are-fenced.md`.

use bson::raw::{RawDocument, RawDocumentBuf, cstr};
use bson::{Binary, Document};
use tokio_util::sync::CancellationToken;

use super::fencing::{self, Held};
use super::halt::Halt;
use super::kind::NAMESPACE_NOT_FOUND;
use super::kind::{SwapKind, uuid_of};
use super::send::{Freezing, INDEX_NOT_FOUND, UUID_MISMATCH, has_code};
use crate::command::document::single;
use crate::maintenance::upstream::{description, explain};
use crate::pattern::bucket::fence::Fence;
use crate::pattern::bucket::{compact, pack};

/// A collection to be replaced, under the fence of this run.
pub(crate) struct Frozen<'a> {
    by: Freezing<'a>,
    uuid: Binary,
    fence: Fence,
}

impl<'a> Frozen<'a> {
    /// Puts the fence of this run around a collection, in place of any other. Nothing that another run has
    /// sent freezes or thaws it after this.
    pub(crate) async fn fence(by: Freezing<'a>, described: &Document, stop: &CancellationToken) -> Result<Self, Halt> {
        let uuid = uuid_of(described)?;
        let fenced = Held {
            client: by.client,
            target: by.target,
            uuid: &uuid,
        };
        let fence = fencing::put_up(fenced, stop).await?;
        Ok(Self { by, uuid, fence })
    }

    pub(crate) fn by(&self) -> Freezing<'a> {
        self.by
    }

    pub(crate) fn uuid(&self) -> &Binary {
        &self.uuid
    }

    /// That no other run has put up its fence.
    pub(crate) async fn is_fenced(&self) -> Result<(), Halt> {
        self.modify(self.fence.freeze(), None, None).await
    }

    /// Lets nothing be inserted nor updated. mongod has done whatever it had begun when this returns.
    pub(crate) async fn freeze(&self, stop: &CancellationToken) -> Result<(), Halt> {
        let validator = match self.by.work {
            SwapKind::Compact => compact::freeze(),
            SwapKind::Pack => pack::freeze(),
        };
        self.modify(self.fence.freeze(), Some(&validator), Some(stop)).await
    }

    /// Takes back what an earlier run has done, before this one has frozen anything.
    pub(crate) async fn thaw_for_now(&self) -> Result<(), Halt> {
        self.modify(self.fence.thaw(), Some(&RawDocumentBuf::new()), None).await
    }

    /// Takes the freezing back, and the fence down. No freeze of this run that is still on its way can do
    /// anything then.
    pub(crate) async fn thaw(&self) -> Result<(), Halt> {
        match self.try_to_thaw().await {
            Err(Halt::Failed(error)) if has_code(&error, &[NAMESPACE_NOT_FOUND, UUID_MISMATCH]) => Ok(()),
            Err(Halt::Failed(error)) if has_code(&error, &[INDEX_NOT_FOUND]) => Err(Halt::Words(format!(
                "another run has taken over, or somebody has dropped an index of this one; if none runs, run `{}` again",
                self.by.work.command()
            ))),
            Err(Halt::Failed(error)) => Err(Halt::Words(format!(
                "{}; it may still be frozen, so that nothing can be written to it until `{}` is run again",
                explain(&error),
                self.by.work.command()
            ))),
            thawed => thawed,
        }
    }

    async fn try_to_thaw(&self) -> Result<(), Halt> {
        let target = self.by.target;
        self.drop_index(&self.fence.freeze()).await?;
        // From here on nothing freezes it. Whatever other validator it has is none of ours.
        let described = description(&target.database, &target.collection).await?;
        if described.is_some_and(|described| self.by.work.has_frozen(&described)) {
            let thaw = self.modification(self.fence.thaw(), Some(&RawDocumentBuf::new()));
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

    /// The validator is set if the collection has the index, and nothing is done if it has not.
    fn modification(&self, index: String, validator: Option<&RawDocument>) -> RawDocumentBuf {
        let mut command = single("collMod", self.by.target.collection.as_str());
        command.append(cstr!("collectionUUID"), &self.uuid);
        let mut fence = single("name", index);
        fence.append(cstr!("hidden"), true);
        command.append(cstr!("index"), fence);
        if let Some(validator) = validator {
            command.append(cstr!("validator"), validator);
            command.append(cstr!("validationLevel"), "strict");
            command.append(cstr!("validationAction"), "error");
        }
        command
    }

    async fn modify(
        &self,
        index: String,
        validator: Option<&RawDocument>,
        stop: Option<&CancellationToken>,
    ) -> Result<(), Halt> {
        let command = self.modification(index, validator);
        self.by.run(&self.by.target.database, command, stop).await
    }
}
