//! The merged replies of the shards to parts of a batch.

use bson::{Bson, Document, doc};

use super::super::refusal::Refusal;
use super::super::statements::{count, documents, number};

/// Counts and errors of the whole batch. Positions are those in the client's batch.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    n: i64,
    /// Only of updates.
    modified: Option<i64>,
    upserted: Vec<Document>,
    errors: Vec<Document>,
    concern_error: Option<Document>,
    labels: Option<Bson>,
    retried: Vec<Bson>,
    /// A shard has executed a part.
    has_replies: bool,
}

impl Outcome {
    /// Of the statements in the list of this name.
    pub(super) fn for_kind(kind: &str) -> Self {
        Self {
            modified: (kind == "updates").then_some(0),
            ..Self::default()
        }
    }

    /// Whether nothing was executed or refused yet.
    pub(super) fn is_empty(&self) -> bool {
        !self.has_replies && self.errors.is_empty()
    }

    pub(super) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Statements that are not executed.
    pub(super) fn refuse(&mut self, refusal: &Refusal, positions: &[usize]) {
        for position in positions {
            self.error(refusal.write_error(index(*position)));
        }
    }

    /// A statement that is sent to several shards has the first error.
    fn error(&mut self, error: Document) {
        let at = number(&error, "index");
        if !self.errors.iter().any(|known| number(known, "index") == at) {
            self.errors.push(error);
        }
    }

    /// Adds the reply of a shard to the statements at these positions. Gives the positions without errors.
    pub(super) fn add(&mut self, reply: &Document, positions: &[usize], is_ordered: bool) -> Vec<usize> {
        self.has_replies = true;
        self.n += number(reply, "n");
        if let Some(modified) = &mut self.modified {
            *modified += number(reply, "nModified");
        }
        let mapped = |mut entry: Document| -> Document {
            let position = usize::try_from(number(&entry, "index")).ok();
            let position = position.and_then(|at| positions.get(at)).copied().unwrap_or(0);
            entry.insert("index", index(position));
            entry
        };
        self.upserted
            .extend(documents(reply, "upserted").into_iter().map(mapped));
        let errors: Vec<Document> = documents(reply, "writeErrors").into_iter().map(mapped).collect();
        if let (None, Ok(error)) = (&self.concern_error, reply.get_document("writeConcernError")) {
            self.concern_error = Some(error.clone());
        }
        if let Some(labels) = reply.get("errorLabels") {
            self.labels = Some(labels.clone());
        }
        if let Ok(retried) = reply.get_array("retriedStmtIds") {
            self.retried.extend(retried.iter().cloned());
        }
        let failed: Vec<i64> = errors.iter().map(|error| number(error, "index")).collect();
        for error in errors {
            self.error(error);
        }
        let is_executed = |position: &usize| {
            let at = i64::from(index(*position));
            if is_ordered {
                failed.iter().all(|failed| at < *failed)
            } else {
                !failed.contains(&at)
            }
        };
        positions.iter().copied().filter(is_executed).collect()
    }

    /// The reply to the client.
    pub(super) fn into_reply(mut self) -> Document {
        let mut reply = doc! { "n": count(self.n) };
        if let Some(modified) = self.modified {
            reply.insert("nModified", count(modified));
        }
        for (name, mut entries) in [("upserted", self.upserted), ("writeErrors", self.errors)] {
            if !entries.is_empty() {
                entries.sort_by_key(|entry| number(entry, "index"));
                reply.insert(name, entries);
            }
        }
        if let Some(error) = self.concern_error.take() {
            reply.insert("writeConcernError", error);
        }
        if let Some(labels) = self.labels.take() {
            reply.insert("errorLabels", labels);
        }
        if !self.retried.is_empty() {
            reply.insert("retriedStmtIds", self.retried);
        }
        reply.insert("ok", 1.0);
        reply
    }
}

fn index(position: usize) -> i32 {
    i32::try_from(position).unwrap_or(i32::MAX)
}
