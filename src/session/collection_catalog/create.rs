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

    /// Creates the shape's indexes in the client's transaction, and the collection if it is
    /// missing. Returns mongod's reply. Changes nothing if the indexes exist.
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

/// Whether mongod refused to create a collection because of the transaction's read concern.
fn is_unsupported_read_concern(error: &CommandError) -> bool {
    error.is(ErrorCode::InvalidOptions) && error.message().contains("read concern not supported")
}
