//! Has mongod evaluate an update on a copy of the whole document, in a scratch collection.

use std::time::SystemTime;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::OutlierCommand;
use crate::command::arguments::InheritedOptions;
use crate::command::document::{array_of, as_flag, get, put, single};
use crate::command::error::{CommandError, ErrorCode, WriteError};
use crate::command::namespace::Namespace;
use crate::command::reply::{CursorReply, succeeded};
use crate::pattern::bucket::near::NearFilter;
use crate::pattern::outlier::orphans::{own_scratch, shared_scratch};
use crate::pattern::outlier::statement::{has_empty_timestamp, upserting};
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

/// Attempts in the shared scratch collection.
const MAX_SHARED: u32 = 8;

/// The result of an evaluation.
#[derive(Debug)]
pub(super) struct Computed {
    /// mongod's reply to the change.
    pub(super) answer: RawDocumentBuf,
    /// The document after the change. `None`: there is none.
    pub(super) then: Option<RawDocumentBuf>,
}

fn has_failed(answer: &RawDocument) -> bool {
    get(answer, "ok").and_then(as_flag) != Some(true) || get(answer, "writeErrors").is_some()
}

/// Whether a part of a command has the positional operator `$` in a path.
fn has_positional(part: &RawDocument) -> bool {
    part.iter().flatten().any(|(name, value)| {
        name.as_str().split('.').any(|step| step == "$") || value.as_document().is_some_and(has_positional)
    })
}

impl OutlierCommand<'_> {
    /// The filter for the copy of a document that matches `filter`: without conditions on distances, for
    /// which the scratch collection has no index. `parts`: the update and the projection.
    ///
    /// # Errors
    /// A positional `$` beside a condition on a distance, which may determine its element.
    pub(super) fn filter_of_copy<'p>(
        &self,
        filter: &RawDocument,
        parts: impl IntoIterator<Item = &'p RawDocument>,
    ) -> Result<RawDocumentBuf, CommandError> {
        let Some(NearFilter { rest, .. }) = NearFilter::of(filter) else {
            return Ok(filter.to_owned());
        };
        if parts.into_iter().any(has_positional) {
            return Err(self.unsupported("a positional operator beside a condition on a distance"));
        }
        Ok(rest)
    }

    /// Executes a change on a copy of the document, or without a document. `change`: makes one
    /// statement of an `update`, or a whole `findAndModify`, for a collection.
    pub(super) async fn compute(
        &mut self,
        whole: Option<&RawDocument>,
        change: impl Fn(&str) -> RawDocumentBuf,
    ) -> Result<Computed, RunError> {
        self.check_collation().await?;
        let shared = self.shared_scratch().await?;
        for attempt in 0..MAX_ATTEMPTS {
            pause(attempt).await;
            let own;
            // Another command uses the `_id`, or a crashed proxy left its copy.
            let collection = if attempt < MAX_SHARED && whole.is_some() {
                &shared
            } else {
                own = own_scratch(self.shape);
                &own
            };
            if let Some(whole) = whole
                && !self.put_copy(collection, whole).await?
            {
                continue;
            }
            let answer = self.on_copy(change(collection)).await?;
            let then = self.copy(collection, whole, &answer).await;
            if let Err(RunError::Link(error)) = then {
                return Err(error.into());
            }
            self.clear(collection, collection == &shared, whole).await?;
            let then = then?;
            if self.context.head.in_transaction() && has_failed(&answer) {
                self.context.abort_transaction().await?;
            }
            return Ok(Computed { answer, then });
        }
        Err(self.lost_too_often().into())
    }

    /// Stores the copy. Returns false if a copy of the document is already there.
    async fn put_copy(&mut self, collection: &str, whole: &RawDocument) -> Result<bool, RunError> {
        let is_as_it_is = !has_empty_timestamp(whole);
        let (name, field) = if is_as_it_is {
            ("insert", "documents")
        } else {
            ("update", "updates")
        };
        let mut insert = single(name, collection);
        insert.append(cstr!("bypassDocumentValidation"), true);
        self.append_scratch(&mut insert);
        let upsert = upserting(whole);
        let request = UpstreamRequest {
            body: &insert,
            sequence: Some((field, &[if is_as_it_is { whole } else { &upsert }])),
        };
        let answer = succeeded(self.context.link.call(request).await?)?;
        let errors = get(&answer, "writeErrors").and_then(RawBsonRef::as_array);
        let Some(error) = errors.and_then(|errors| errors.into_iter().flatten().next()) else {
            return Ok(true);
        };
        let error = error.as_document().and_then(WriteError::parse).map(|(_, error)| error);
        match error {
            Some(error) if error.code == ErrorCode::DuplicateKey.number() => Ok(false),
            Some(error) => Err(error.into_command_error().into()),
            None => Err(CommandError::Upstream(answer).into()),
        }
    }

    async fn on_copy(&mut self, mut change: RawDocumentBuf) -> Result<RawDocumentBuf, RunError> {
        self.append_scratch(&mut change);
        self.context.options().append_limit(&mut change);
        Ok(self.context.link.call(UpstreamRequest::plain(&change)).await?)
    }

    async fn copy(
        &mut self,
        collection: &str,
        whole: Option<&RawDocument>,
        answer: &RawDocument,
    ) -> Result<Option<RawDocumentBuf>, RunError> {
        let upserted = get(answer, "upserted").and_then(RawBsonRef::as_array);
        let upserted = upserted.and_then(|upserted| upserted.into_iter().flatten().next()?.as_document());
        let upserted = upserted.and_then(|upserted| get(upserted, "_id"));
        let id = whole.and_then(|whole| get(whole, "_id")).or(upserted);
        let mut find = single("find", collection);
        if let Some(id) = id {
            find.append(cstr!("filter"), single("_id", single("$eq", id)));
        }
        find.append(cstr!("limit"), 1);
        find.append(cstr!("singleBatch"), true);
        self.append_scratch(&mut find);
        let answer = self.context.link.run(&find).await?;
        let cursor = CursorReply::parse(&answer);
        Ok(cursor.and_then(|cursor| cursor.documents().next().map(RawDocument::to_owned)))
    }

    async fn clear(&mut self, collection: &str, is_shared: bool, whole: Option<&RawDocument>) -> Result<(), RunError> {
        let mut command;
        match whole.and_then(|whole| get(whole, "_id")).filter(|_| is_shared) {
            Some(id) => {
                let mut statement = single("q", single("_id", single("$eq", id)));
                put(&mut statement, "limit", 1);
                command = single("delete", collection);
                command.append(cstr!("deletes"), array_of(&[statement]));
            }
            None => command = single("drop", collection),
        }
        self.append_scratch(&mut command);
        self.context.link.call(UpstreamRequest::plain(&command)).await?;
        Ok(())
    }
}

impl OutlierCommand<'_> {
    /// The scratch collection that all commands use at this time.
    pub(super) async fn shared_scratch(&mut self) -> Result<String, RunError> {
        let name = shared_scratch(self.shape, SystemTime::now());
        let extras = Namespace::new(self.context.head.database, self.shape.extras_collection());
        if let Some(former) = self.context.settings.scratches.take(extras, &name) {
            let mut command = single("drop", former);
            self.append_scratch(&mut command);
            // mongod reports a missing collection, which is ignored.
            self.context.link.call(UpstreamRequest::plain(&command)).await?;
        }
        Ok(name)
    }

    /// Appends only the session's identity: the command is not part of a transaction or a retryable
    /// write.
    pub(super) fn append_scratch(&self, command: &mut RawDocumentBuf) {
        InheritedOptions::of(self.context.head.body()).append_identity(command);
    }
}
