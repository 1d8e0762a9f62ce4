//! The reply to `insert`, `update` and `delete`.

use bson::raw::{BindRawBsonRef, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::arguments::is_unacknowledged;
use super::document::{array_of, get, single};
use super::error::{WriteError, is_retryable, label_retryable};
use super::header::CommandHeader;
use super::reply::copy_cluster_time;

/// The result of the statements of a command so far.
#[derive(Debug, Default)]
pub struct WriteReply {
    /// Documents that were inserted, matched or deleted.
    pub n: i64,
    /// Documents that an `update` modified. `None`: another command.
    pub modified: Option<i64>,
    upserted: Vec<RawDocumentBuf>,
    errors: Vec<RawDocumentBuf>,
    retried: Vec<i32>,
    write_concern_error: Option<RawDocumentBuf>,
    last_answer: RawDocumentBuf,
}

impl WriteReply {
    /// The reply to an `update`.
    #[must_use]
    pub fn of_update() -> Self {
        Self {
            modified: Some(0),
            ..Self::default()
        }
    }

    /// Adds to `n`: documents that were inserted, matched or deleted.
    pub fn count(&mut self, n: i64) {
        self.n = self.n.saturating_add(n);
    }

    /// Adds to the documents that were modified. Replies to commands other than `update` do not
    /// contain the number.
    pub fn count_modified(&mut self, modified: i64) {
        self.modified = self.modified.map(|sum| sum.saturating_add(modified));
    }

    /// Takes the write concern's error and the cluster time from mongod's reply to a statement.
    pub fn take_answer(&mut self, answer: RawDocumentBuf) {
        if let Some(error) = get(&answer, "writeConcernError").and_then(RawBsonRef::as_document) {
            self.write_concern_error = Some(error.to_owned());
        }
        self.last_answer = answer;
    }

    /// Sets the write concern's error from another reply than the last one.
    pub fn set_write_concern_error(&mut self, error: &RawDocument) {
        self.write_concern_error = Some(error.to_owned());
    }

    /// Records the failure of the statement, or of the document to insert, with this index.
    pub fn fail(&mut self, index: usize, error: &WriteError) {
        self.errors.push(error.to_document(index));
    }

    /// Records the `_id` of the document that the statement with this index has inserted.
    pub fn add_upserted(&mut self, index: usize, id: impl BindRawBsonRef) {
        let mut element = single("index", i32::try_from(index).unwrap_or(i32::MAX));
        element.append(cstr!("_id"), id);
        self.upserted.push(element);
    }

    /// Records that an earlier attempt had executed the statement with this number.
    pub fn add_retried(&mut self, statement: i32) {
        self.retried.push(statement);
    }

    /// Whether a statement has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Whether mongod has replied to a statement.
    #[must_use]
    pub fn has_answer(&self) -> bool {
        !self.last_answer.is_empty()
    }

    /// The reply, with its fields in mongod's order. An unacknowledged write returns `n: 0` alone.
    #[must_use]
    pub fn into_document(self, head: &CommandHeader<'_>) -> RawDocumentBuf {
        let number = |number: i64| i32::try_from(number).unwrap_or(i32::MAX);
        let mut reply = RawDocumentBuf::new();
        if get(head.body(), "writeConcern").is_some_and(is_unacknowledged) {
            reply.append(cstr!("n"), 0);
            if self.modified.is_some() {
                reply.append(cstr!("nModified"), 0);
            }
            reply.append(cstr!("ok"), 1.0);
            return reply;
        }
        reply.append(cstr!("n"), number(self.n));
        if !self.errors.is_empty() {
            reply.append(cstr!("writeErrors"), array_of(&self.errors));
        }
        if let Some(error) = &self.write_concern_error {
            reply.append(cstr!("writeConcernError"), error);
        }
        append_retried(&mut reply, self.retried);
        if !self.upserted.is_empty() {
            reply.append(cstr!("upserted"), array_of(&self.upserted));
        }
        if let Some(modified) = self.modified {
            reply.append(cstr!("nModified"), number(modified));
        }
        append_end(&mut reply, head, &self.last_answer, self.write_concern_error.as_deref());
        reply
    }
}

/// Appends the numbers of the statements that an earlier attempt had executed, if there are any.
pub(super) fn append_retried(reply: &mut RawDocumentBuf, mut statements: Vec<i32>) {
    if statements.is_empty() {
        return;
    }
    statements.sort_unstable();
    statements.dedup();
    reply.append(cstr!("retriedStmtIds"), statements.into_iter().collect::<RawArrayBuf>());
}

/// Appends the last fields of a successful reply: `ok`, the cluster time of mongod's last answer, and the
/// label of an error of the write concern.
pub(super) fn append_end(
    reply: &mut RawDocumentBuf,
    head: &CommandHeader<'_>,
    last_answer: &RawDocument,
    write_concern_error: Option<&RawDocument>,
) {
    reply.append(cstr!("ok"), 1.0);
    copy_cluster_time(reply, last_answer);
    let code = write_concern_error.and_then(|error| error.get_i32("code").ok());
    if head.is_retryable_write() && code.is_some_and(is_retryable) {
        label_retryable(reply);
    }
}
