//! Writes pages of extras, and removes pages that no base document references.

use bson::oid::ObjectId;
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::OutlierCommand;
use super::internal_write::{OutlierWriteResult, WriteOrigin};
use crate::command::arguments::InheritedOptions;
use crate::command::document::{append_fields, array_of, get, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::write_batch::command_ranges;
use crate::pattern::outlier::layout::{begins_at, is_of_generation};
use crate::pattern::outlier::statement::{has_empty_timestamp, upserting};
use crate::pattern::outlier::{index, page};
use crate::session::error::RunError;

/// Maximum time in milliseconds that a transaction waits for the index, because the transaction's
/// own locks can block it.
const MAX_INDEX_TIME_MS: i32 = 100;
/// mongod's code for an exceeded `maxTimeMS` (`MaxTimeMSExpired`).
const MAX_TIME_EXPIRED: i32 = 50;

/// Pages that were written for a document, whose base document may not reference them.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) id: RawBson,
    pub(super) generation: ObjectId,
}

impl Written {
    /// The pages of a base document before it is stored. Empty if there are none.
    pub(super) fn of(base: &RawDocument, generation: ObjectId, pages: &[RawDocumentBuf]) -> Vec<Self> {
        let id = get(base, "_id").filter(|_| !pages.is_empty()).map(RawBson::from);
        id.into_iter().map(|id| Self { id, generation }).collect()
    }
}

impl OutlierCommand<'_> {
    /// Writes the pages of whole arrays, before a base document references them. If mongod refuses
    /// some, the stored ones are removed.
    pub(super) async fn write_pages(&mut self, pages: &[RawDocumentBuf], written: &[Written]) -> Result<(), RunError> {
        if let Err(error) = self.store_pages(pages).await {
            return Err(self.withdrawn(error, written).await?);
        }
        for _ in pages.iter().filter(|page| begins_at(page) == Some(0)) {
            self.context.shared.metrics.outliers.spilled(&self.label());
        }
        Ok(())
    }

    pub(super) async fn store_pages(&mut self, pages: &[RawDocumentBuf]) -> Result<(), RunError> {
        if pages.is_empty() {
            return Ok(());
        }
        if pages.iter().any(|page| begins_at(page) == Some(0)) {
            self.index_extras().await?;
        }
        // An insert replaces an empty timestamp in a top-level field, an upsert with a pipeline does
        // not.
        let (upserted, inserted): (Vec<_>, Vec<_>) = pages.iter().partition(|page| has_empty_timestamp(page));
        let upserts: Vec<RawDocumentBuf> = upserted.into_iter().map(|page| upserting(page)).collect();
        self.store_each("insert", inserted).await?;
        self.store_each("update", upserts.iter().collect()).await
    }

    /// Sends statements on the extras collection, in as few commands as possible.
    async fn store_each(&mut self, name: &str, statements: Vec<&RawDocumentBuf>) -> Result<(), RunError> {
        let statements: Vec<&RawDocument> = statements.into_iter().map(RawDocumentBuf::as_ref).collect();
        let sizes = statements.iter().map(|statement| statement.as_bytes().len());
        for range in command_ranges(sizes) {
            let extras = self.shape.extras_collection();
            let some = statements.get(range).unwrap_or_default();
            let result = self.write_all(extras, name, some, WriteOrigin::Internal).await?;
            result.succeeded()?;
        }
        Ok(())
    }

    /// Removes the pages of a change that mongod refused, and returns mongod's error. Nothing is
    /// removed in a transaction, whose pages end with it, and after a connection error, because the
    /// change may have succeeded.
    pub(super) async fn withdrawn(&mut self, error: RunError, written: &[Written]) -> Result<RunError, RunError> {
        if matches!(error, RunError::Command(_)) && !self.context.head.in_transaction() {
            self.remove_uncounted(written).await?;
        }
        Ok(error)
    }

    /// Returns the result of a change of a base document. If the change was not made, its pages are
    /// removed.
    pub(super) async fn settled(
        &mut self,
        made: Result<OutlierWriteResult, RunError>,
        written: &[Written],
    ) -> Result<OutlierWriteResult, RunError> {
        let result = match made {
            Ok(result) => result,
            Err(error) => return Err(self.withdrawn(error, written).await?),
        };
        let is_made = result.error.is_none() && result.n > 0 && !result.resent;
        let has_ended = self.context.head.in_transaction() && result.error.is_some();
        if !is_made && !has_ended {
            self.remove_uncounted(written).await?;
        }
        Ok(result)
    }

    /// Creates the indexes of the extras collection. Called for the first page of each document, because the
    /// collection may have been dropped in the meantime. If the indexes exist, mongod does nothing. If the
    /// shape marker records another shape, mongod reports an error. The command is sent outside of a
    /// transaction. A transaction that has written extras can block it.
    async fn index_extras(&mut self) -> Result<(), RunError> {
        let mut command = single("createIndexes", self.shape.extras_collection());
        command.append(cstr!("indexes"), array_of(&index::specs(self.shape)));
        command.append(cstr!("writeConcern"), single("w", 1));
        if self.context.head.in_transaction() {
            command.append(cstr!("maxTimeMS"), MAX_INDEX_TIME_MS);
        }
        InheritedOptions::of(self.context.head.body()).append_identity(&mut command);
        match self.context.link.run(&command).await {
            // The index is created with the first page of the next document.
            Err(RunError::Command(CommandError::Upstream(reply)))
                if self.context.head.in_transaction()
                    && reply.get_i32("code").is_ok_and(|code| code == MAX_TIME_EXPIRED) =>
            {
                Ok(())
            }
            indexed => indexed.map(|_| ()),
        }
    }

    /// Removes the pages of a former generation of a document. A failure is ignored, because the
    /// remaining pages are orphans.
    pub(super) async fn remove_pages(&mut self, id: RawBsonRef<'_>, generation: ObjectId) -> Result<(), RunError> {
        let statement = page::removal(self.shape, id, generation);
        let extras = self.shape.extras_collection();
        let result = self.write(extras, "delete", &statement, WriteOrigin::Internal).await;
        let removed = result.and_then(OutlierWriteResult::succeeded).map(|_| ());
        self.left_to_others(removed)
    }

    /// Removes those pages that no base document references.
    pub(super) async fn remove_uncounted(&mut self, written: &[Written]) -> Result<(), RunError> {
        for Written { id, generation } in written {
            let id = id.as_raw_bson_ref();
            let mut filter = single("_id", single("$eq", id));
            append_fields(&mut filter, &is_of_generation(self.shape, *generation));
            let mut find = single("find", self.namespace.collection);
            find.append(cstr!("filter"), &filter);
            find.append(cstr!("projection"), single("_id", 1));
            let counted = match self.ask(find).await {
                Ok(found) => !found.is_empty(),
                // The transaction has been aborted, and its pages with it.
                Err(RunError::Command(error))
                    if self.context.head.in_transaction() && error.is(ErrorCode::NoSuchTransaction) =>
                {
                    return Ok(());
                }
                Err(error) => return self.left_to_others(Err(error)),
            };
            if !counted {
                self.remove_pages(id, *generation).await?;
            }
        }
        Ok(())
    }
}
