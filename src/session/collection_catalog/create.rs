//! Creates missing indexes of the shape, and the collection.

use std::sync::atomic::Ordering;

use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::rawdoc;

use super::CatalogSession;
use super::inspect::ListedCollection;
use crate::command::collection::{IMAGES, enabled_images};
use crate::command::document::{array_of, get, put, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::pattern::bucket::fence::ValidatorFence;
use crate::pattern::bucket::index;
use crate::pattern::bucket::validator::PageValidator;
use crate::session::error::RunError;

impl CatalogSession<'_> {
    /// Creates the collection and the shape's indexes, and enables the images, as far as they are missing.
    pub(super) async fn complete(&mut self, found: Option<&ListedCollection>) -> Result<(), RunError> {
        let Some(found) = found else {
            // Between two lists, a conversion may have given the name to another collection.
            if self.find().await?.is_some() {
                return Ok(());
            }
            // Another proxy takes a collection without the page index for a plain one if its shape is
            // automatic. So the command that creates the collection creates the indexes. No page is stored
            // before the images are enabled, because writes wait for both.
            return self.create().await;
        };
        if !found.ready.has_images && self.shape.change_streams() {
            self.enable_images().await?;
        }
        if !found.has_page_index {
            self.create_indexes().await?;
        }
        Ok(())
    }

    /// Creates the collection, if no other client does.
    async fn create(&mut self) -> Result<(), RunError> {
        let validator = PageValidator::of_new(self.shape);
        if validator == PageValidator::default() {
            return self.create_indexes().await;
        }
        if self.link.fence_of(self.namespace).is_some() {
            return self.create_automatic(&validator).await;
        }
        let mut command = single("create", self.namespace.collection);
        validator.append_to(&mut command);
        self.carried.append_identity(&mut command);
        match self.link.run(&command).await {
            Err(RunError::Command(error)) if error.is(ErrorCode::NamespaceExists) => {}
            created => drop(created?),
        }
        self.create_indexes().await
    }

    /// Creates the collection and its indexes by one command. This command also creates the fence of the
    /// change that sets the validator, so no other client's change is lost.
    async fn create_automatic(&mut self, validator: &PageValidator) -> Result<(), RunError> {
        let fence = ValidatorFence::of_run(rand::random());
        let mut indexes = index::specs(self.shape);
        indexes.push(fence.spec());
        let mut command = single("createIndexes", self.namespace.collection);
        put(&mut command, "indexes", array_of(&indexes));
        let created = match self.modify(command).await {
            // Another proxy has created the collection.
            Err(RunError::Command(error)) if error.is(ErrorCode::IndexOptionsConflict) => return Ok(()),
            created => created?,
        };
        let mut set = Ok(());
        if get(&created, "createdCollectionAutomatically") == Some(RawBsonRef::Boolean(true)) {
            let mut command = single("collMod", self.namespace.collection);
            put(&mut command, "index", rawdoc! { "name": fence.name(), "hidden": true });
            validator.append_to(&mut command);
            set = self.modify(command).await.map(drop);
        }
        let mut command = single("dropIndexes", self.namespace.collection);
        put(&mut command, "index", fence.name());
        let dropped = self.modify(command).await;
        for outcome in [set, dropped.map(drop)] {
            match outcome {
                // Another change of the validator has dropped the fence, or the collection was dropped.
                Err(RunError::Command(error))
                    if error.is(ErrorCode::IndexNotFound) || error.is(ErrorCode::NamespaceNotFound) => {}
                Err(RunError::Command(error)) if error.is(ErrorCode::Unauthorized) => {
                    let namespace = self.namespace;
                    tracing::warn!(%namespace, "direct writes are not refused: {}", error.message());
                }
                outcome => outcome?,
            }
        }
        Ok(())
    }

    async fn modify(&mut self, mut command: RawDocumentBuf) -> Result<RawDocumentBuf, RunError> {
        self.carried.append_identity(&mut command);
        self.link.run(&command).await
    }

    /// Makes mongod store every page before and after each change.
    async fn enable_images(&mut self) -> Result<(), RunError> {
        let mut command = single("collMod", self.namespace.collection);
        put(&mut command, IMAGES, enabled_images());
        self.carried.append_identity(&mut command);
        match self.link.run(&command).await {
            // Another client has dropped the collection. The caller checks it again.
            Err(RunError::Command(error)) if error.is(ErrorCode::NamespaceNotFound) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => {
                tracing::info!(namespace = %self.namespace, "enabled pre- and post-images of pages for change streams");
                Ok(())
            }
        }
    }

    pub(super) async fn create_indexes(&mut self) -> Result<(), RunError> {
        let mut command = single("createIndexes", self.namespace.collection);
        put(&mut command, "indexes", array_of(&index::specs(self.shape)));
        self.carried.append_identity(&mut command);
        let reply = self.link.run(&command).await?;
        // If several proxies create the indexes at once, only one creates and logs them.
        if get(&reply, "numIndexesBefore") != get(&reply, "numIndexesAfter") {
            tracing::info!(namespace = %self.namespace, "created the shape's indexes");
        }
        Ok(())
    }

    pub(super) fn makes_it_in_transaction(&self) -> bool {
        self.transaction.is_some_and(|transaction| !transaction.makes_none)
    }

    /// Creates the collection in the client's transaction. If the transaction's read concern does
    /// not permit that, the collection is created outside, and a transient error is returned:
    /// mongod has aborted the transaction, and the driver tries it again.
    pub(super) async fn create_in_transaction(&mut self) -> Result<(), RunError> {
        let made = match self.create_with_options_in_transaction().await {
            Ok(()) => self.make_in_transaction().await,
            Err(error) => Err(error),
        };
        match made {
            Err(RunError::Command(error)) if is_unsupported_read_concern(&error) => {
                self.complete(None).await?;
                let message = format!(
                    "{} was created for this transaction: try the transaction again",
                    self.namespace
                );
                Err(CommandError::new(ErrorCode::WriteConflict, message).transient().into())
            }
            made => made.map(drop),
        }
    }

    /// Creates the collection in the client's transaction if the shape has options of the collection.
    async fn create_with_options_in_transaction(&mut self) -> Result<(), RunError> {
        let validator = PageValidator::of_new(self.shape);
        if !self.shape.change_streams() && validator == PageValidator::default() {
            return Ok(());
        }
        let mut command = single("create", self.namespace.collection);
        if self.shape.change_streams() {
            put(&mut command, IMAGES, enabled_images());
        }
        if validator != PageValidator::default() {
            validator.append_to(&mut command);
        }
        self.append_transaction(&mut command);
        self.link.run(&command).await.map(drop)
    }

    /// Creates the shape's indexes in the client's transaction, and the collection if it is
    /// missing. Returns mongod's reply. Changes nothing if the indexes exist.
    pub(in crate::session) async fn make_in_transaction(&mut self) -> Result<RawDocumentBuf, RunError> {
        let mut command = single("createIndexes", self.namespace.collection);
        put(&mut command, "indexes", array_of(&index::specs(self.shape)));
        self.append_transaction(&mut command);
        self.link.run(&command).await
    }

    fn append_transaction(&self, command: &mut RawDocumentBuf) {
        let begun = self
            .transaction
            .map(|transaction| transaction.begun.swap(true, Ordering::Relaxed));
        self.carried.begun(begun.unwrap_or_default()).append_to_write(command);
    }
}

/// Whether mongod refused to create a collection because of the transaction's read concern.
fn is_unsupported_read_concern(error: &CommandError) -> bool {
    error.is(ErrorCode::InvalidOptions) && error.message().contains("read concern not supported")
}
