//! Results of statements, and the reply.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::arguments::is_unacknowledged;
use crate::command::document::{array_of, as_whole_number, get, single};
use crate::command::error::{WriteError, is_retryable, label_retryable};
use crate::command::reply::copy_cluster_time;
use crate::session::bucket::command::BucketCommand;

/// What became of one statement.
#[derive(Clone, Debug, Default)]
pub(super) struct UpdateOutcome {
    pub(super) matched: i64,
    pub(super) modified: i64,
    pub(super) failed: Option<WriteError>,
    /// The `_id` of an item that was made.
    pub(super) upserted: Option<RawBson>,
    /// Whether it had been executed before.
    pub(super) retried: bool,
    /// mongod's last answer.
    pub(super) answer: RawDocumentBuf,
}

impl UpdateOutcome {
    /// Of mongod's answer to a command of this one statement.
    pub(super) fn of(answer: RawDocumentBuf) -> Self {
        let number = |name| get(&answer, name).and_then(as_whole_number).unwrap_or(0);
        let errors = get(&answer, "writeErrors").and_then(RawBsonRef::as_array);
        let mut errors = errors
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(RawBsonRef::as_document);
        let failed = errors.next().and_then(WriteError::parse).map(|(_, error)| error);
        Self {
            matched: number("n"),
            modified: number("nModified"),
            failed,
            upserted: None,
            retried: get(&answer, "retriedStmtIds").is_some(),
            answer,
        }
    }

    /// Of an item that was changed by other commands, of which this is the last answer.
    pub(super) fn of_one(answer: RawDocumentBuf) -> Self {
        Self {
            matched: 1,
            modified: 1,
            answer,
            ..Self::default()
        }
    }

    /// Adds what became of one more item.
    pub(super) fn add(&mut self, other: Self) {
        self.matched = self.matched.saturating_add(other.matched);
        self.modified = self.modified.saturating_add(other.modified);
        self.failed = self.failed.take().or(other.failed);
        self.answer = other.answer;
    }
}

/// What is told of all statements.
#[derive(Debug, Default)]
pub(super) struct UpdateReply {
    sum: UpdateOutcome,
    failed: Vec<(usize, WriteError)>,
    upserted: Vec<RawDocumentBuf>,
    retried: Vec<i32>,
    concern_error: Option<RawDocumentBuf>,
    begun: bool,
}

impl UpdateReply {
    /// Takes what became of the statement with that index and number.
    pub(super) fn add(&mut self, (index, id): (usize, i32), mut outcome: UpdateOutcome) {
        self.begun = true;
        if let Some(error) = outcome.failed.take() {
            // What a statement has changed before it failed is not counted.
            (outcome.matched, outcome.modified) = (0, 0);
            self.failed.push((index, error));
        }
        if let Some(made) = outcome.upserted.take() {
            let mut element = single("index", i32::try_from(index).unwrap_or(i32::MAX));
            element.append(cstr!("_id"), made);
            self.upserted.push(element);
        }
        if outcome.retried {
            self.retried.push(id);
        }
        let error = get(&outcome.answer, "writeConcernError").and_then(RawBsonRef::as_document);
        if let Some(error) = error {
            self.concern_error = Some(error.to_owned());
        }
        self.sum.add(outcome);
    }

    /// A statement that the proxy refuses.
    pub(super) fn fail(&mut self, index: usize, error: WriteError) {
        self.failed.push((index, error));
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    pub(super) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    pub(super) fn reply(self, run: &BucketCommand<'_>) -> RawDocumentBuf {
        let number = |number: i64| i32::try_from(number).unwrap_or(i32::MAX);
        let mut reply = RawDocumentBuf::new();
        if get(run.context.head.body(), "writeConcern").is_some_and(is_unacknowledged) {
            reply.append(cstr!("n"), 0);
            reply.append(cstr!("nModified"), 0);
            reply.append(cstr!("ok"), 1.0);
            return reply;
        }
        reply.append(cstr!("n"), number(self.sum.matched));
        if !self.failed.is_empty() {
            let errors = self.failed.iter().map(|(index, error)| error.to_document(*index));
            reply.append(cstr!("writeErrors"), array_of(&errors.collect::<Vec<_>>()));
        }
        if let Some(error) = &self.concern_error {
            reply.append(cstr!("writeConcernError"), error);
        }
        if !self.retried.is_empty() {
            reply.append(
                cstr!("retriedStmtIds"),
                self.retried.into_iter().collect::<RawArrayBuf>(),
            );
        }
        if !self.upserted.is_empty() {
            reply.append(cstr!("upserted"), array_of(&self.upserted));
        }
        reply.append(cstr!("nModified"), number(self.sum.modified));
        reply.append(cstr!("ok"), 1.0);
        copy_cluster_time(&mut reply, &self.sum.answer);
        let code = self
            .concern_error
            .as_ref()
            .map(|error: &RawDocumentBuf| error.get_i32("code"));
        if run.context.head.is_retryable_write() && code.is_some_and(|code| code.is_ok_and(is_retryable)) {
            label_retryable(&mut reply);
        }
        reply
    }
}

/// mongod's answer with other numbers, where it was asked for less than was done.
pub(super) fn unchanged(answer: &RawDocument, counted: bool) -> UpdateOutcome {
    UpdateOutcome {
        matched: 1,
        modified: i64::from(counted),
        answer: answer.to_owned(),
        ..UpdateOutcome::default()
    }
}
