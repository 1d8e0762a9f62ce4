//! Internal commands of an outlier command.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::OutlierCommand;
use crate::command::arguments::{InheritedOptions, is_unacknowledged, with_replaced};
use crate::command::document::{as_whole_number, get, put, single};
use crate::command::error::{CommandError, WriteError};
use crate::command::reply::{CursorReply, succeeded};
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

/// Maximum bytes of the documents in one batch of mongod, unless the batch has a single document.
const LONGEST_BATCH: usize = 16 * 1024 * 1024;
/// Maximum bytes of a reply without its documents.
const AROUND_DOCUMENTS: usize = 4096;

/// Whether a write is the client's or internal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteOrigin {
    /// The client's own statement. If the client's command is retryable, mongod keeps a retry
    /// record under this `stmtId`.
    Client(i32),
    /// Internal: may be executed twice, and does not wait for the write concern.
    Internal,
}

/// The result of one statement.
#[derive(Debug)]
pub(super) struct OutlierWriteResult {
    /// Documents matched.
    pub(super) n: i64,
    /// Documents changed.
    pub(super) modified: i64,
    /// Whether mongod has a retry record: the statement was executed before.
    pub(super) resent: bool,
    /// The first write error.
    pub(super) error: Option<WriteError>,
    /// mongod's reply.
    pub(super) answer: RawDocumentBuf,
}

impl OutlierWriteResult {
    pub(super) fn of(answer: RawDocumentBuf) -> Self {
        let number = |name: &str| get(&answer, name).and_then(as_whole_number).unwrap_or_default();
        Self {
            n: number("n"),
            modified: number("nModified"),
            resent: get(&answer, "retriedStmtIds").is_some(),
            error: first_error(&answer).map(|(_, error)| error),
            answer,
        }
    }

    /// Fails with the statement's error, if any.
    pub(super) fn succeeded(self) -> Result<Self, RunError> {
        match self.error {
            Some(error) => Err(error.into_command_error().into()),
            None => Ok(self),
        }
    }
}

/// The first write error of a reply, and the position of its statement.
pub(super) fn first_error(answer: &RawDocument) -> Option<(usize, WriteError)> {
    let errors = get(answer, "writeErrors").and_then(RawBsonRef::as_array)?;
    let first = errors.into_iter().flatten().next()?;
    first.as_document().and_then(WriteError::parse)
}

/// Number of documents that a `findAndModify` matched, from its reply.
pub(super) fn matched_count(answer: &RawDocument) -> i64 {
    let of = get(answer, "lastErrorObject").and_then(RawBsonRef::as_document);
    let n = of.and_then(|of| get(of, "n")).and_then(as_whole_number);
    n.unwrap_or_default()
}

impl<'a> OutlierCommand<'a> {
    /// The body to send next: the client's, or one made from it. Fields that begin a transaction
    /// are sent once.
    pub(super) fn next<'b>(&self, body: &'b RawDocument) -> Cow<'b, RawDocument> {
        let was_begun = self.context.txn_started.swap(true, Ordering::Relaxed);
        if was_begun && get(body, "startTransaction").is_some() {
            Cow::Owned(with_replaced(
                body,
                &[("startTransaction", None), ("readConcern", None)],
            ))
        } else {
            Cow::Borrowed(body)
        }
    }

    /// Sends the client's command unchanged.
    pub(super) async fn as_it_is(&mut self) -> Result<RawDocumentBuf, RunError> {
        self.with_body(self.context.head.body()).await
    }

    /// Sends another body with the client's document sequence.
    pub(super) async fn with_body(&mut self, body: &RawDocument) -> Result<RawDocumentBuf, RunError> {
        let body = &*self.next(body);
        let Some(sequence) = self.context.head.message.sequences.first() else {
            return self.context.link.run(body).await;
        };
        let name = match sequence.identifier {
            "documents" => "documents",
            "updates" => "updates",
            "deletes" => "deletes",
            other => return Err(CommandError::unknown_field(self.context.head.name, other).into()),
        };
        let documents: Vec<&RawDocument> = sequence.documents().flatten().collect();
        let request = UpstreamRequest {
            body,
            sequence: Some((name, &documents)),
        };
        Ok(succeeded(self.context.link.call(request).await?)?)
    }

    pub(super) async fn write(
        &mut self,
        collection: &str,
        name: &str,
        statement: &RawDocument,
        part: WriteOrigin,
    ) -> Result<OutlierWriteResult, RunError> {
        self.write_all(collection, name, &[statement], part).await
    }

    /// Sends statements on a collection in one ordered command.
    pub(super) async fn write_all(
        &mut self,
        collection: &str,
        name: &str,
        statements: &[&RawDocument],
        part: WriteOrigin,
    ) -> Result<OutlierWriteResult, RunError> {
        let field = match name {
            "insert" => "documents",
            "delete" => "deletes",
            _ => "updates",
        };
        let mut body = single(name, collection);
        self.append_own(&mut body, part);
        let request = UpstreamRequest {
            body: &body,
            sequence: Some((field, statements)),
        };
        Ok(OutlierWriteResult::of(succeeded(
            self.context.link.call(request).await?,
        )?))
    }

    /// Sends a statement of an `update` that stores a document evaluated in a scratch collection.
    pub(super) async fn write_evaluated(
        &mut self,
        statement: &RawDocument,
        id: i32,
    ) -> Result<OutlierWriteResult, RunError> {
        let mut body = single("update", self.namespace.collection);
        self.append_collection(&mut body);
        self.append_own(&mut body, WriteOrigin::Client(id));
        let request = UpstreamRequest {
            body: &body,
            sequence: Some(("updates", &[statement])),
        };
        Ok(OutlierWriteResult::of(succeeded(
            self.context.link.call(request).await?,
        )?))
    }

    /// Sends an internal `findAndModify` in place of the client's.
    pub(super) async fn find_and_modify(
        &mut self,
        mut command: RawDocumentBuf,
    ) -> Result<OutlierWriteResult, RunError> {
        self.append_bypass(&mut command);
        self.context.inherited().append_to_write(&mut command);
        let answer = succeeded(self.context.link.call(UpstreamRequest::plain(&command)).await?)?;
        let n = matched_count(&answer);
        Ok(OutlierWriteResult {
            n,
            modified: n,
            resent: get(&answer, "retriedStmtId").is_some(),
            error: None,
            answer,
        })
    }

    /// Appends the inherited options of a write.
    pub(super) fn append_own(&self, body: &mut RawDocumentBuf, part: WriteOrigin) {
        let carried = match part {
            WriteOrigin::Client(id) => {
                if self.context.head.is_retryable_write() {
                    put(body, "stmtIds", [id].into_iter().collect::<RawArrayBuf>());
                }
                // `insert` does not have `let`.
                if let Some(variables) = get(self.context.head.body(), "let")
                    && get(body, "insert").is_none()
                {
                    put(body, "let", variables);
                }
                self.context.inherited()
            }
            WriteOrigin::Internal => self.beside(),
        };
        self.append_bypass(body);
        carried.append_to_write(body);
    }

    /// Whether the client waits for a write concern. Writes to a scratch collection do not.
    pub(super) fn has_write_concern(&self) -> bool {
        get(self.context.head.body(), "writeConcern").is_some_and(|concern| !is_unacknowledged(concern))
    }

    /// Appends the client's `bypassDocumentValidation`.
    fn append_bypass(&self, body: &mut RawDocumentBuf) {
        if let Some(bypass) = get(self.context.head.body(), "bypassDocumentValidation")
            && get(body, "delete").is_none()
        {
            put(body, "bypassDocumentValidation", bypass);
        }
    }

    fn beside(&self) -> InheritedOptions<'a> {
        let carried = self.context.inherited().not_retryable();
        if self.context.head.in_transaction() {
            carried
        } else {
            carried.without_wait()
        }
    }

    /// Appends the inherited options of an internal read, including its read concern.
    fn append_to_look_up(&mut self, query: &mut RawDocumentBuf) {
        if self.context.head.is_write() {
            return self.context.inherited().append_to_read_of_write(query);
        }
        self.context.inherited().append_to_internal_read(query);
        if let Some(concern) = self.read_concern() {
            query.append(cstr!("readConcern"), concern);
        }
    }

    /// The read concern of an internal read. If base documents were read from a snapshot, pages are
    /// read at the same cluster time. If base documents must be majority committed, so must pages. If they
    /// need not, neither need pages. `None` in a transaction, which has its own snapshot, and if the client
    /// leaves both to the server's default.
    fn read_concern(&self) -> Option<RawDocumentBuf> {
        if self.context.head.in_transaction() {
            return None;
        }
        if let Some(time) = self.facts.snapshot_time {
            let mut concern = single("level", "snapshot");
            concern.append(cstr!("atClusterTime"), time);
            return Some(concern);
        }
        let concern = get(self.context.head.body(), "readConcern").and_then(RawBsonRef::as_document);
        let level = concern.and_then(|concern| get(concern, "level"))?;
        let is_majority = level == RawBsonRef::String("majority");
        Some(single("level", if is_majority { "majority" } else { "local" }))
    }

    /// Returns all documents of an internal query. `None`: the replies exceed `most_bytes`.
    pub(super) async fn ask_within(
        &mut self,
        mut query: RawDocumentBuf,
        most_bytes: usize,
    ) -> Result<Option<Vec<RawDocumentBuf>>, RunError> {
        let collection = query.iter().next().and_then(|first| first.ok()?.1.as_str());
        let collection = collection.unwrap_or_default().to_owned();
        if most_bytes < LONGEST_BATCH {
            return self.ask_at_once(query, most_bytes).await;
        }
        // The first batch is empty, so its reply is short and returns the cursor id. A longer reply
        // could exceed the limit.
        query.append(cstr!("batchSize"), 0);
        self.append_to_look_up(&mut query);
        let opened = self.context.link.run(&query).await?;
        let Some(id) = CursorReply::parse(&opened).map(|cursor| cursor.id) else {
            return Ok(Some(Vec::new()));
        };
        let mut documents = Vec::new();
        let mut left = most_bytes.saturating_add(AROUND_DOCUMENTS);
        let mut is_open = id != 0;
        while is_open {
            let mut more = single("getMore", id);
            more.append(cstr!("collection"), collection.as_str());
            self.context.inherited().append_to_get_more(&mut more);
            let Some(answer) = self
                .context
                .link
                .call_within(UpstreamRequest::plain(&more), left)
                .await?
            else {
                self.close_cursor(&collection, id).await?;
                return Ok(None);
            };
            let answer = succeeded(answer)?;
            left = left.saturating_sub(answer.as_bytes().len());
            let Some(cursor) = CursorReply::parse(&answer) else {
                break;
            };
            documents.extend(cursor.documents().map(RawDocument::to_owned));
            is_open = cursor.id != 0;
        }
        Ok(Some(documents))
    }

    /// Like [`Self::ask_within`], for a limit that fits in one reply.
    async fn ask_at_once(
        &mut self,
        mut query: RawDocumentBuf,
        most_bytes: usize,
    ) -> Result<Option<Vec<RawDocumentBuf>>, RunError> {
        query.append(cstr!("batchSize"), i32::MAX);
        query.append(cstr!("singleBatch"), true);
        self.append_to_look_up(&mut query);
        let most_bytes = most_bytes.saturating_add(AROUND_DOCUMENTS);
        let Some(answer) = self
            .context
            .link
            .call_within(UpstreamRequest::plain(&query), most_bytes)
            .await?
        else {
            return Ok(None);
        };
        let answer = succeeded(answer)?;
        let documents =
            CursorReply::parse(&answer).map(|cursor| cursor.documents().map(RawDocument::to_owned).collect());
        Ok(Some(documents.unwrap_or_default()))
    }

    /// Closes an upstream cursor. A failed transaction has closed it.
    pub(super) async fn close_cursor(&mut self, collection: &str, id: i64) -> Result<(), RunError> {
        let mut command = single("killCursors", collection);
        let ids: RawArrayBuf = [RawBsonRef::Int64(id)].into_iter().collect();
        command.append(cstr!("cursors"), &ids);
        self.context.inherited().append_to_get_more(&mut command);
        self.context.link.call(UpstreamRequest::plain(&command)).await?;
        Ok(())
    }

    /// Returns all documents of an internal query.
    pub(super) async fn ask(&mut self, mut query: RawDocumentBuf) -> Result<Vec<RawDocumentBuf>, RunError> {
        let collection = query.iter().next().and_then(|first| first.ok()?.1.as_str());
        let collection = collection.unwrap_or_default().to_owned();
        self.append_to_look_up(&mut query);
        let mut answer = self.context.link.run(&query).await?;
        let mut documents = Vec::new();
        loop {
            let Some(cursor) = CursorReply::parse(&answer) else {
                return Ok(documents);
            };
            documents.extend(cursor.documents().map(RawDocument::to_owned));
            if cursor.id == 0 {
                return Ok(documents);
            }
            let mut more = single("getMore", cursor.id);
            more.append(cstr!("collection"), collection.as_str());
            self.context.inherited().append_to_get_more(&mut more);
            answer = self.context.link.run(&more).await?;
        }
    }
}
