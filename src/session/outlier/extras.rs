//! Writing pages, and removing those that nobody counts.

use bson::oid::ObjectId;
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::Outlier;
use super::send::{Part, Told};
use crate::command::arguments::Carried;
use crate::command::document::{array_of, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::pattern::outlier::layout::{begins_at, is_of_generation};
use crate::pattern::outlier::{index, page};
use crate::session::error::RunError;

/// How long a transaction waits for the index, in milliseconds: it may be its own locks that are in the way.
const MAX_INDEX_TIME_MS: i32 = 100;
/// mongod's code for what took longer (`MaxTimeMSExpired`).
const MAX_TIME_EXPIRED: i32 = 50;

/// Pages that were written for a document, which may not count them.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) id: RawBson,
    pub(super) generation: ObjectId,
}

impl Outlier<'_> {
    /// Writes whole arrays' pages, which nobody counts yet.
    pub(super) async fn write_pages(&mut self, pages: &[RawDocumentBuf]) -> Result<(), RunError> {
        self.store_pages(pages).await?;
        for _ in pages.iter().filter(|page| begins_at(page) == Some(0)) {
            self.shared.metrics.outliers.spilled(&self.label());
        }
        Ok(())
    }

    /// Stores pages.
    pub(super) async fn store_pages(&mut self, pages: &[RawDocumentBuf]) -> Result<(), RunError> {
        if pages.is_empty() {
            return Ok(());
        }
        if pages.iter().any(|page| begins_at(page) == Some(0)) {
            self.index_extras().await?;
        }
        let pages: Vec<&RawDocument> = pages.iter().map(RawDocumentBuf::as_ref).collect();
        let extras = self.shape.extras_collection();
        let told = self
            .write_all((extras, "insert", "documents"), &pages, Part::Beside)
            .await?;
        told.succeeded().map(|_| ())
    }

    /// Sees to the indexes, each time that a document gets its first page: the collection may have been dropped since the last time,
    /// by anybody, and where they are there mongod does nothing. Where it says another shape mongod refuses. They are made outside of a transaction: one that has
    /// written extras sees it.
    async fn index_extras(&mut self) -> Result<(), RunError> {
        let mut command = single("createIndexes", self.shape.extras_collection());
        command.append(cstr!("indexes"), array_of(&index::specs(self.shape)));
        command.append(cstr!("writeConcern"), single("w", 1));
        if self.head.in_transaction() {
            command.append(cstr!("maxTimeMS"), MAX_INDEX_TIME_MS);
        }
        Carried::of(self.head.body()).append_identity(&mut command);
        match self.link.run(&command).await {
            // The next one sees to it.
            Err(RunError::Command(CommandError::Upstream(reply)))
                if self.head.in_transaction() && reply.get_i32("code").is_ok_and(|code| code == MAX_TIME_EXPIRED) =>
            {
                Ok(())
            }
            indexed => indexed.map(|_| ()),
        }
    }

    /// Removes the pages of a generation that a document had, and cannot have again. What cannot be removed is nothing all the
    /// same, so that the client is not told.
    pub(super) async fn remove_pages(&mut self, id: RawBsonRef<'_>, generation: ObjectId) -> Result<(), RunError> {
        let statement = page::removal(self.shape, id, generation);
        let extras = self.shape.extras_collection();
        let told = self.write((extras, "delete"), &statement, Part::Beside).await;
        let removed = told.and_then(Told::succeeded).map(|_| ());
        self.left_to_others(removed)
    }

    /// Removes of these pages those that no document counts, now that none is about to.
    pub(super) async fn remove_uncounted(&mut self, written: &[Written]) -> Result<(), RunError> {
        for Written { id, generation } in written {
            let id = id.as_raw_bson_ref();
            let mut filter = single("_id", single("$eq", id));
            for (name, value) in is_of_generation(self.shape, *generation).iter().flatten() {
                filter.append(name, value);
            }
            let mut find = single("find", self.namespace.collection);
            find.append(cstr!("filter"), &filter);
            find.append(cstr!("projection"), single("_id", 1));
            let counted = match self.ask(find).await {
                Ok(found) => !found.is_empty(),
                // The transaction has ended, and its pages with it.
                Err(RunError::Command(error))
                    if self.head.in_transaction() && error.is(ErrorCode::NoSuchTransaction) =>
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
