//! Moves a tail to pages. Executed by the push that fills the tail, by the idle connection, and after a crash
//! by the next push. Safe to repeat: pages accept only the next elements, and the base document counts only
//! elements that it has not counted.

use super::deferred_spill::Tail;
use bson::oid::ObjectId;
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::OutlierCommand;
use super::hot_documents::KnownOutliers;
use super::internal_write::WriteOrigin;
use crate::command::document::{put, single};
use crate::command::error::ErrorCode;
use crate::command::reply::{CursorReply, succeeded};
use crate::pattern::outlier::layout::{Extras, path};
use crate::pattern::outlier::page::{ExtrasPage, moving, of_generation};
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

/// The state before a spill: the extras that the base document records, and the last page.
pub(super) struct Looked {
    extras: Extras,
    last: Option<ExtrasPage>,
}

impl OutlierCommand<'_> {
    /// Moves the tail of a document to pages, if it has one. `looked`: the state read last. `None`:
    /// the document is not an outlier.
    pub(super) async fn spill(&mut self, id: RawBsonRef<'_>, mut looked: Option<Looked>) -> Result<(), RunError> {
        for attempt in 0..MAX_ATTEMPTS {
            pause(attempt).await;
            let Some(Looked { extras, last }) = looked else {
                return Ok(());
            };
            let Some(moving) = moving(self.shape, id, &extras, last) else {
                return Ok(());
            };
            if self.append(moving.append.as_deref()).await? && self.begin_pages(&moving.pages).await? {
                let result = self
                    .write(
                        self.namespace.collection,
                        "update",
                        &moving.count,
                        WriteOrigin::Internal,
                    )
                    .await?;
                if result.succeeded()?.n > 0 {
                    self.context.shared.metrics.outliers.spilled(&self.label());
                    return Ok(());
                }
            }
            let former = extras.generation;
            looked = self.look(id, former).await?;
            let is_former = looked.as_ref().is_none_or(|looked| looked.extras.generation != former);
            if is_former && !moving.pages.is_empty() {
                // The writer that changed the generation may have removed the old pages before some of
                // these were inserted.
                self.remove_pages(id, former).await?;
            }
        }
        // Given up. The elements in the tail are part of the document, and the next push spills them.
        Ok(())
    }

    /// Appends to the last page. Returns false if the page has changed since it was read.
    async fn append(&mut self, append: Option<&RawDocument>) -> Result<bool, RunError> {
        let Some(append) = append else { return Ok(true) };
        let collection = self.shape.extras_collection();
        let result = self.write(collection, "update", append, WriteOrigin::Internal).await?;
        Ok(result.succeeded()?.n > 0)
    }

    /// Inserts new pages. Returns false if another writer has inserted one of them.
    async fn begin_pages(&mut self, pages: &[RawDocumentBuf]) -> Result<bool, RunError> {
        match self.store_pages(pages).await {
            Err(RunError::Command(error))
                if error.is(ErrorCode::DuplicateKey) && !self.context.head.in_transaction() =>
            {
                Ok(false)
            }
            written => written.map(|()| true),
        }
    }

    pub(super) async fn look(&mut self, id: RawBsonRef<'_>, generation: ObjectId) -> Result<Option<Looked>, RunError> {
        let looks = self.looks(id, generation);
        let requests = looks.each_ref().map(|look| UpstreamRequest::plain(look));
        let answers = self.context.link.call_all(&requests).await?;
        self.looked(id, answers, generation).await
    }

    /// The queries for the extras that a base document records, and for the last page of a
    /// generation. They are sent in this order, so every element that the base document counts is
    /// in the pages read.
    pub(super) fn looks(&self, id: RawBsonRef<'_>, generation: ObjectId) -> [RawDocumentBuf; 2] {
        let mut projection = single(self.shape.flag(), 1);
        put(&mut projection, self.shape.control(), 1);
        let mut extras = single("find", self.namespace.collection);
        extras.append(cstr!("filter"), single("_id", single("$eq", id)));
        extras.append(cstr!("projection"), &projection);
        extras.append(cstr!("collation"), single("locale", "simple"));
        let mut last = single("find", self.shape.extras_collection());
        last.append(cstr!("filter"), of_generation(self.shape, id, generation));
        last.append(cstr!("sort"), single(path::FROM, -1));
        last.append(cstr!("projection"), ExtrasPage::projection());
        let mut looks = [extras, last];
        for look in &mut looks {
            look.append(cstr!("limit"), 1);
            look.append(cstr!("singleBatch"), true);
            self.context.inherited().append_to_read_of_write(look);
        }
        looks
    }

    /// Reads the replies to [`OutlierCommand::looks`]. `None`: the document is not an outlier.
    pub(super) async fn looked(
        &mut self,
        id: RawBsonRef<'_>,
        answers: impl IntoIterator<Item = RawDocumentBuf>,
        generation: ObjectId,
    ) -> Result<Option<Looked>, RunError> {
        let mut found = Vec::new();
        for answer in answers {
            let answer = succeeded(answer)?;
            let first = CursorReply::parse(&answer).and_then(|cursor| cursor.documents().next());
            found.push(first.map(RawDocument::to_owned));
        }
        let mut found = found.into_iter();
        let Some(stored) = found.next().flatten() else {
            return Ok(None);
        };
        let Some(extras) = self.extras_of(&stored)? else {
            return Ok(None);
        };
        let place = KnownOutliers::place(self.namespace, id);
        self.context.settings.known_outliers.learn(place, extras.generation);
        let page = if extras.generation == generation {
            found.next().flatten()
        } else {
            let [_, last] = self.looks(id, extras.generation);
            let answer = self.context.link.run(&last).await?;
            let first = CursorReply::parse(&answer).and_then(|cursor| cursor.documents().next());
            first.map(RawDocument::to_owned)
        };
        let last = page.and_then(|page| ExtrasPage::parse(&page));
        Ok(Some(Looked { extras, last }))
    }
}

/// Fields of a push that are repeated in the internal command that spills the tail.
const CARRIED: &[&str] = &[
    "bypassDocumentValidation",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
    "$db",
];

/// Maximum time in milliseconds that a statement of a spill waits for the document. It may be
/// locked by a transaction whose next command comes on this connection.
const MAX_TIME_MS: i32 = 100;
impl OutlierCommand<'_> {
    /// Defers the spill of a document's tail, or spills at once if too many are deferred.
    pub(super) async fn leave(&mut self, id: RawBsonRef<'_>) -> Result<(), RunError> {
        let mut command = single("update", self.namespace.collection);
        for (name, value) in self.context.head.body().iter().flatten() {
            if CARRIED.contains(&name.as_str()) {
                command.append(name, value);
            }
        }
        put(&mut command, "maxTimeMS", MAX_TIME_MS);
        let id = RawBson::from(id);
        if self.tails.leave(Tail {
            command,
            id: id.clone(),
        }) {
            return Ok(());
        }
        let moved = self.move_tail(id.as_raw_bson_ref()).await;
        self.left_to_others(moved)
    }

    /// Spills the tail of a document, if it is an outlier and has one.
    pub(in crate::session) async fn move_tail(&mut self, id: RawBsonRef<'_>) -> Result<(), RunError> {
        let place = KnownOutliers::place(self.namespace, id);
        let generation = self.context.settings.known_outliers.get(&place);
        let looked = self.look(id, generation.unwrap_or_default()).await?;
        self.spill(id, looked).await
    }
}
