//! What the application was told, and what the set holds.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use bson::{Document, doc};
use mongodb::error::{Error, ErrorKind, WriteFailure};
use proto_tests::Mongod;
use proto_tests::raw::Connection;

/// One write.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// Documents with these ids, in one command.
    Insert(Vec<String>),
    /// Adds 1 to this field of this counter.
    Increment(i32, &'static str),
}

/// How often something was acknowledged, and how often it was not known what became of it.
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

    /// One line for who runs this by hand; the test runner hides it otherwise.
    #[expect(
        clippy::print_stdout,
        reason = "the test's own output, which the test runner captures"
    )]
    pub(crate) fn show(&self, name: &str) {
        let increments: i64 = self.increments.values().map(|count| count.acknowledged).sum();
        let inserted = self.inserted.len();
        println!(
            "{name}: {inserted} documents and {increments} increments acknowledged, errors: {:?}",
            self.errors
        );
        let _ = std::io::stdout().flush();
    }

    /// Everything in which the set differs from what was acknowledged.
    pub(crate) fn compare(&self, set: &Mongod) -> Result<Vec<String>> {
        let mut primary = Connection::open(set.addresses()[set.primary()?])?;
        let mut read = |collection: &str| {
            let concern = doc! { "level": "majority" };
            primary.all(&doc! { "find": collection, "readConcern": concern, "$db": &self.database })
        };
        let mut wrong = self.compare_documents(&read("documents")?)?;
        wrong.extend(self.compare_counters(&read("counters")?)?);
        Ok(wrong)
    }

    fn compare_documents(&self, stored: &[Document]) -> Result<Vec<String>> {
        let stored = stored.iter().map(|document| document.get_str("_id"));
        let stored: BTreeSet<_> = stored.collect::<Result<_, _>>()?;
        let lost = self.inserted.iter().filter(|id| !stored.contains(id.as_str()));
        let lost = lost.map(|id| format!("document {id} was acknowledged and is lost"));
        let known = |id: &&&str| !self.inserted.contains(**id) && !self.open.contains(**id);
        let foreign = stored.iter().filter(known);
        Ok(lost
            .chain(foreign.map(|id| format!("document {id} was never sent")))
            .collect())
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
        ErrorKind::Command(error) => format!("command: {}", error.code_name),
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
