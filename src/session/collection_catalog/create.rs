//! Creates missing indexes of the shape, and the collection.

use std::sync::atomic::Ordering;

use bson::raw::RawDocumentBuf;

use super::CatalogSession;
use crate::command::document::{array_of, get, put, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::pattern::bucket::index;
use crate::session::error::RunError;

impl CatalogSession<'_> {
    pub(super) async fn create_indexes(&mut self) -> Result<(), RunError> {
        let mut command = single("createIndexes", self.namespace.collection);
        put(&mut command, "indexes", array_of(&index::specs(self.shape)));
        self.carried.append_identity(&mut command);
        let reply = self.link.run(&command).await?;
        // Of many who begin at once, one does it and says so.
        if get(&reply, "numIndexesBefore") != get(&reply, "numIndexesAfter") {
            tracing::info!(namespace = %self.namespace, "created the shape's indexes");
        }
        Ok(())
    }

    pub(super) fn makes_it_in_transaction(&self) -> bool {
        self.transaction.is_some_and(|transaction| !transaction.makes_none)
    }

    /// Has the client's transaction make the collection. Where its read concern turns out to be one that
    /// mongod does not do that with, it is made outside, and the transaction, which that has ended, is to be
    /// tried again.
    pub(super) async fn create_in_transaction(&mut self) -> Result<(), RunError> {
        match self.make_in_transaction().await {
            Err(RunError::Command(error)) if is_unsupported_read_concern(&error) => {
                self.create_indexes().await?;
                let message = format!(
                    "{} was created for this transaction: try the transaction again",
                    self.namespace
                );
                Err(CommandError::new(ErrorCode::WriteConflict, message).transient().into())
            }
            made => made.map(drop),
        }
    }

    /// Has the client's transaction make the shape's indexes, with the collection where it is not there, and
    /// gives the answer. Changes nothing where it has done so before.
    pub(in crate::session) async fn make_in_transaction(&mut self) -> Result<RawDocumentBuf, RunError> {
        let mut command = single("createIndexes", self.namespace.collection);
        put(&mut command, "indexes", array_of(&index::specs(self.shape)));
        let begun = self
            .transaction
            .map(|transaction| transaction.begun.swap(true, Ordering::Relaxed));
        self.carried
            .begun(begun.unwrap_or_default())
            .append_to_write(&mut command);
        self.link.run(&command).await
    }
}

/// mongod's error for a transaction that may make nothing explicitly.
fn is_unsupported_read_concern(error: &CommandError) -> bool {
    error.is(ErrorCode::InvalidOptions) && error.message().contains("read concern not supported")
}
