//! Results of statements, and the reply.

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use crate::command::document::{as_whole_number, get};
use crate::command::error::WriteError;
use crate::command::header::CommandHeader;
use crate::command::write_reply::WriteReply;

/// The outcome of one statement.
#[derive(Clone, Debug, Default)]
pub(super) struct UpdateOutcome {
    pub(super) matched: i64,
    pub(super) modified: i64,
    pub(super) failed: Option<WriteError>,
    /// The `_id` of the inserted item.
    pub(super) upserted: Option<RawBson>,
    /// Whether the statement was executed before.
    pub(super) retried: bool,
    /// mongod's last reply.
    pub(super) answer: RawDocumentBuf,
}

impl UpdateOutcome {
    /// Reads the outcome from mongod's reply to a command with one statement.
    pub(super) fn of(answer: RawDocumentBuf) -> Self {
        let number = |name| get(&answer, name).and_then(as_whole_number).unwrap_or(0);
        Self {
            matched: number("n"),
            modified: number("nModified"),
            failed: first_error(&answer),
            upserted: None,
            retried: get(&answer, "retriedStmtIds").is_some(),
            answer,
        }
    }

    /// The outcome for an item that internal commands changed. `answer`: the last reply.
    pub(super) fn of_one(answer: RawDocumentBuf) -> Self {
        Self {
            matched: 1,
            modified: 1,
            answer,
            ..Self::default()
        }
    }

    /// Adds the outcome of one more item.
    pub(super) fn add(&mut self, other: Self) {
        self.matched = self.matched.saturating_add(other.matched);
        self.modified = self.modified.saturating_add(other.modified);
        self.failed = self.failed.take().or(other.failed);
        self.answer = other.answer;
    }
}

/// The first error of a statement in mongod's reply.
pub(super) fn first_error(answer: &RawDocument) -> Option<WriteError> {
    let errors = get(answer, "writeErrors").and_then(RawBsonRef::as_array);
    let mut errors = errors.into_iter().flatten().flatten();
    let first = errors.find_map(RawBsonRef::as_document)?;
    WriteError::parse(first).map(|(_, error)| error)
}

/// The reply of an `update`, built while its statements are executed.
#[derive(Debug)]
pub(super) struct UpdateReply {
    reply: WriteReply,
    has_begun: bool,
}

impl UpdateReply {
    pub(super) fn new() -> Self {
        Self {
            reply: WriteReply::of_update(),
            has_begun: false,
        }
    }

    /// Adds the outcome of the statement with this index and `stmtId`. Items that a statement
    /// changed before it failed are not counted, as in mongod.
    pub(super) fn add(&mut self, index: usize, id: i32, outcome: UpdateOutcome) {
        self.has_begun = true;
        if let Some(error) = &outcome.failed {
            self.reply.fail(index, error);
        } else {
            self.reply.count(outcome.matched);
            self.reply.count_modified(outcome.modified);
        }
        if let Some(made) = outcome.upserted {
            self.reply.add_upserted(index, made);
        }
        if outcome.retried {
            self.reply.add_retried(id);
        }
        self.reply.take_answer(outcome.answer);
    }

    /// Records a statement that the proxy refused.
    pub(super) fn fail(&mut self, index: usize, error: &WriteError) {
        self.reply.fail(index, error);
    }

    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    pub(super) fn has_failed(&self) -> bool {
        self.reply.has_failed()
    }

    pub(super) fn into_document(self, head: &CommandHeader<'_>) -> RawDocumentBuf {
        self.reply.into_document(head)
    }
}

/// The outcome for an item that the update leaves unchanged, with the cluster time and other fields
/// of mongod's reply.
pub(super) fn unchanged(answer: &RawDocument, counted: bool) -> UpdateOutcome {
    UpdateOutcome {
        matched: 1,
        modified: i64::from(counted),
        answer: answer.to_owned(),
        ..UpdateOutcome::default()
    }
}
