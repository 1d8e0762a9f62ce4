//! Compares the replies of the application with the stored documents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use bson::{Document, doc};
use mongodb::error::{Error, ErrorKind, WriteFailure};
use proto_tests::Mongod;
use proto_tests::raw::Connection;

use crate::failover::workload::{COUNTERS, Workload};

/// One write.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// Documents with these ids, in one command.
    Insert(Vec<String>),
    /// Adds 1 to this field of this counter.
    Increment(i32, &'static str),
}

/// How often something was acknowledged, and how often the outcome was unknown.
#[derive(Debug, Default, Clone, Copy)]
struct Count {
    acknowledged: i64,
    open: i64,
}

/// The account of one writer, or of all of them.
#[derive(Debug)]
pub(crate) struct Ledger {
    database: String,
    inserted: BTreeSet<String>,
    /// Documents of commands that were answered with an error.
    open: BTreeSet<String>,
    increments: BTreeMap<(i32, &'static str), Count>,
    /// Errors that the application saw, by kind.
    errors: BTreeMap<String, u32>,
}

impl Ledger {
    pub(crate) fn new(database: &str) -> Self {
        Self {
            database: database.to_owned(),
            inserted: BTreeSet::new(),
            open: BTreeSet::new(),
            increments: BTreeMap::new(),
            errors: BTreeMap::new(),
        }
    }

    pub(crate) fn acknowledge(&mut self, change: Change) {
        match change {
            Change::Insert(ids) => self.inserted.extend(ids),
            Change::Increment(id, field) => self.increments.entry((id, field)).or_default().acknowledged += 1,
        }
    }

    pub(crate) fn leave_open(&mut self, change: Change, error: &Error) {
        *self.errors.entry(kind(error)).or_default() += 1;
        match change {
            Change::Insert(ids) => self.open.extend(ids),
            Change::Increment(id, field) => self.increments.entry((id, field)).or_default().open += 1,
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.inserted.extend(other.inserted);
        self.open.extend(other.open);
        // Each writer has counters of its own.
        self.increments.extend(other.increments);
        for (kind, count) in other.errors {
            *self.errors.entry(kind).or_default() += count;
        }
    }

    pub(crate) fn errors(&self) -> &BTreeMap<String, u32> {
        &self.errors
    }

    /// How many documents and increments were acknowledged.
    pub(crate) fn acknowledged(&self) -> (usize, i64) {
        let increments = self.increments.values().map(|count| count.acknowledged);
        (self.inserted.len(), increments.sum())
    }

    /// Everything in which the set differs from what was acknowledged.
    pub(crate) fn compare(&self, set: &Mongod, workload: Workload) -> Result<Vec<String>> {
        let mut primary = Connection::open(set.addresses()[set.primary()?])?;
        let (documents, mut wrong) = workload.stored(&mut primary, &self.database)?;
        wrong.extend(self.compare_documents(&documents)?);
        let concern = doc! { "level": "majority" };
        let find = doc! { "find": COUNTERS, "readConcern": concern, "$db": &self.database };
        wrong.extend(self.compare_counters(&primary.all(&find)?)?);
        Ok(wrong)
    }

    fn compare_documents(&self, stored: &[Document]) -> Result<Vec<String>> {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for document in stored {
            *counts.entry(document.get_str("_id")?).or_default() += 1;
        }
        let lost = self.inserted.iter().filter(|id| !counts.contains_key(id.as_str()));
        let lost = lost.map(|id| format!("document {id} was acknowledged and is lost"));
        let repeated = counts.iter().filter(|(_, count)| **count > 1);
        let repeated = repeated.map(|(id, count)| format!("document {id} is stored {count} times"));
        let is_known = |id: &str| self.inserted.contains(id) || self.open.contains(id);
        let foreign = counts.keys().filter(|id| !is_known(id));
        let foreign = foreign.map(|id| format!("document {id} was never sent"));
        Ok(lost.chain(repeated).chain(foreign).collect())
    }

    fn compare_counters(&self, stored: &[Document]) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        for ((id, field), count) in &self.increments {
            let counter = stored
                .iter()
                .find(|counter| counter.get_i32("_id").is_ok_and(|stored| stored == *id));
            let value = counter.context("a counter is lost")?.get_i64(field)?;
            let Count { acknowledged, open } = *count;
            if value < acknowledged {
                wrong.push(format!(
                    "counter {id}.{field} is {value} after {acknowledged} increments"
                ));
            }
            if value > acknowledged + open {
                wrong.push(format!(
                    "counter {id}.{field} is {value} after {acknowledged} increments and {open} with an open end"
                ));
            }
        }
        Ok(wrong)
    }
}

/// What an application would branch on. A duplicate key is an insert that was applied twice.
fn kind(error: &Error) -> String {
    match error.kind.as_ref() {
        ErrorKind::Io(error) => format!("I/O: {:?}", Arc::as_ref(error).kind()),
        ErrorKind::Command(error) => format!("command: {}: {}", error.code_name, error.message),
        ErrorKind::Write(WriteFailure::WriteError(error)) => format!("write: {}", error.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(error)) => format!("write concern: {}", error.code_name),
        ErrorKind::InsertMany(error) => {
            let writes = error.write_errors.iter().flatten().map(|error| error.code.to_string());
            let concern = error.write_concern_error.iter().map(|error| error.code_name.clone());
            format!("insertMany: {}", writes.chain(concern).collect::<Vec<_>>().join(", "))
        }
        other => {
            let text = format!("{other:?}");
            text.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        let mut ledger = Ledger::new("d");
        let error = Error::custom("lost");
        ledger.acknowledge(Change::Insert(vec!["a".to_owned(), "b".to_owned()]));
        ledger.leave_open(Change::Insert(vec!["c".to_owned()]), &error);
        ledger.acknowledge(Change::Increment(1, "n"));
        ledger.acknowledge(Change::Increment(1, "n"));
        ledger.leave_open(Change::Increment(1, "n"), &error);
        ledger
    }

    fn check_documents(stored: &[&str], expected: &[&str]) {
        let stored: Vec<_> = stored.iter().map(|id| doc! { "_id": *id }).collect();
        assert_eq!(ledger().compare_documents(&stored).unwrap(), expected);
    }

    #[test]
    fn ledger_reports_lost_repeated_and_foreign_documents_but_not_pending_ones() {
        check_documents(&["a", "b"], &[]);
        check_documents(&["a", "b", "c"], &[]);
        check_documents(&["a", "c"], &["document b was acknowledged and is lost"]);
        check_documents(&["a", "b", "c", "c"], &["document c is stored 2 times"]);
        check_documents(&["a", "b", "x"], &["document x was never sent"]);
    }

    fn check_counter(stored: i64, expected: &[&str]) {
        let stored = [doc! { "_id": 1, "n": stored }];
        assert_eq!(ledger().compare_counters(&stored).unwrap(), expected);
    }

    #[test]
    fn counters_may_differ_by_pending_writes() {
        check_counter(2, &[]);
        check_counter(3, &[]);
        check_counter(1, &["counter 1.n is 1 after 2 increments"]);
        check_counter(4, &["counter 1.n is 4 after 2 increments and 1 with an open end"]);
        assert!(ledger().compare_counters(&[]).is_err());
    }
}
