//! Checks and creates the collection of a command.

use bson::raw::RawBsonRef;

use super::command::BucketCommand;
use super::indexes;
use crate::command::find::check_hint_form;
use crate::session::error::RunError;

impl BucketCommand<'_> {
    /// Refuses a collection with content that the shape cannot read.
    ///
    /// A hint is checked only if the collection exists: mongod ignores hints on missing collections.
    pub(super) async fn ensure_readable(&mut self, hint: Option<RawBsonRef<'_>>) -> Result<(), RunError> {
        let settings = self.context.settings;
        check_hint_form(hint)?;
        self.collection = settings.catalog.for_reading(&mut self.catalog_session()).await?;
        if self.collection.is_none() {
            return Ok(());
        }
        if let Err(error) = indexes::check_hint(self, hint).await {
            self.context.fail_transaction(self.namespace.collection).await?;
            return Err(error);
        }
        Ok(())
    }

    /// Creates a missing collection before an upsert, as mongod does. So a failed upsert leaves an
    /// empty collection, and its hint is checked.
    pub(super) async fn ensure_created(&mut self) -> Result<(), RunError> {
        if self.collection.is_none() {
            let settings = self.context.settings;
            let ready = settings.catalog.for_writing(&mut self.catalog_session()).await?;
            self.collection = Some(ready);
        }
        Ok(())
    }

    /// Creates a collection again that was dropped after it was cached. Called if an upsert failed
    /// before any write had named the collection's UUID. The upsert's error is returned to the
    /// client, so errors here are ignored. Costs one `listCollections`.
    pub(super) async fn ensure_still_there(&mut self) -> Result<(), RunError> {
        if self.context.head.in_transaction() {
            return Ok(());
        }
        self.context.settings.catalog.forget(self.namespace);
        let known = self.collection.take();
        match self.ensure_created().await {
            Err(RunError::Command(_)) => {
                self.collection = known;
                Ok(())
            }
            created => created,
        }
    }
}
