//! Fields whose names begin with `$`, empty timestamps, unusual `_id`s: which writes may store them, and how.
//! Each case of a table runs on a plain and on a shaped collection, on a separate document.

mod dollar;
mod ids;
mod repeated;
mod sizes;
mod timestamps;

use anyhow::{Context as _, Result, bail};
use bson::Timestamp;
use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::{Document, doc};
use proto_tests::ItemIds;
use proto_tests::Shape;
use proto_tests::raw::Connection;
use proto_tests::sides::{Pattern, Sides as AnySides};

use crate::updates::sides::{COLLECTION, Sides, at};

/// The code of a refusal by the proxy.
const UNSUPPORTED: i32 = 115;

/// Two empty collections.
fn open(item_ids: ItemIds) -> Result<Sides> {
    AnySides::open(Shape {
        item_ids,
        time: Some("at".to_owned()),
        max_items: 4,
        items_change: true,
        rename: vec![("quantity".to_owned(), "qty".to_owned())],
        ..Shape::new(&["k"])
    })
}

/// The codes of a reply, its counts, and the documents that it names.
fn outcome(reply: &Document) -> String {
    let errors = reply.get_array("writeErrors").into_iter().flatten();
    let codes: Vec<_> = errors
        .filter_map(|error| Some(error.as_document()?.get("code").cloned()))
        .collect();
    let counts = ["ok", "code", "n", "nModified"].map(|name| reply.get(name).cloned());
    let updated = reply
        .get_document("lastErrorObject")
        .ok()
        .map(|last| last.get("n").cloned());
    format!("{counts:?} {codes:?} {updated:?}")
}

fn is_refusal(reply: &Document) -> bool {
    let errors = reply.get_array("writeErrors").into_iter().flatten();
    let mut codes = errors.filter_map(|error| error.as_document()?.get_i32("code").ok());
    reply.get_i32("code").ok() == Some(UNSUPPORTED) || codes.any(|code| code == UNSUPPORTED)
}

/// A command, and the documents that it is about.
struct Case {
    existing: Vec<Document>,
    command: Document,
}

/// A document, and the number of its case, from its `_id`.
struct Stored {
    case: Option<i32>,
    text: String,
}

/// A value, but for what differs from one command to the next.
fn text(value: RawBsonRef<'_>) -> String {
    match value {
        RawBsonRef::ObjectId(_) => "an ObjectId".to_owned(),
        RawBsonRef::Timestamp(Timestamp { time, .. }) if time > 1_000_000 => "a timestamp".to_owned(),
        value => format!("{value:?}"),
    }
}

/// The documents of a collection, in full: repeated fields and the order of fields count.
fn documents(connection: &mut Connection, database: &str) -> Result<Vec<Stored>> {
    let sort = doc! { "_id": 1 };
    let find = doc! { "find": COLLECTION, "sort": sort, "batchSize": 100_000, "$db": database };
    let reply: RawDocumentBuf = connection.command_raw(&find)?;
    let batch = reply.get_document("cursor")?.get_array("firstBatch")?;
    let documents = batch.into_iter().map(|document| {
        let document = document?.as_document().context("no document")?;
        let case = document.get_i32("_id").ok().map(|id| id / 10);
        let mut fields: Vec<(&str, String)> = document
            .iter()
            .flatten()
            .map(|(name, value)| (name.as_str(), text(value)))
            .collect();
        // Where a key field stands is not kept. Repeated ones stay in their order.
        fields.sort_by_key(|(name, _)| *name);
        Ok(Stored {
            case,
            text: format!("{fields:?}"),
        })
    });
    documents.collect()
}

/// Filled collections.
struct Current {
    /// The inserted documents.
    existing: Vec<Document>,
    stored: Vec<Stored>,
}

/// A table's run: what differs is collected, so that one run shows all of it.
struct Table {
    sides: Sides,
    /// What is run on the documents before each command.
    first: Option<Document>,
    /// Both collections, if the last commands have changed nothing.
    current: Option<Current>,
    cases: usize,
    refused: Vec<String>,
    differing: Vec<String>,
}

impl Table {
    fn open(item_ids: ItemIds) -> Result<Self> {
        Ok(Self {
            sides: open(item_ids)?,
            first: None,
            current: None,
            cases: 0,
            refused: Vec::new(),
            differing: Vec::new(),
        })
    }

    /// Runs cases in a row, from collections of their documents alone. The `_id`s of a case's documents are
    /// ten times its number and a digit, unless it is the only case.
    fn cases(&mut self, cases: &[Case]) -> Result<()> {
        let existing: Vec<Document> = cases.iter().flat_map(|case| case.existing.clone()).collect();
        let before = match self.current.take() {
            Some(current) if current.existing == existing => current.stored,
            _ => self.fill(&existing)?,
        };
        let mut replies = Vec::new();
        for case in cases {
            replies.push(self.sides.run(&case.command)?);
        }
        let (plain, shaped) = (self.all(false)?, self.all(true)?);
        for (number, (case, replies)) in (0..).zip(cases.iter().zip(&replies)) {
            let of_case = |all: &[Stored]| -> Vec<String> {
                let own = all
                    .iter()
                    .filter(|stored| cases.len() == 1 || stored.case == Some(number));
                own.map(|stored| stored.text.clone()).collect()
            };
            let stored = [&before, &plain, &shaped].map(|all| of_case(all));
            self.judge(&case.command, replies, &stored)?;
        }
        let others = |all: &[Stored]| all.iter().filter(|stored| stored.case.is_none()).count();
        if cases.len() > 1 && others(&plain) + others(&shaped) > 0 {
            bail!("documents of no case");
        }
        self.cases += cases.len();
        let is_unchanged = |all: &[Stored]| all.iter().map(|one| &one.text).eq(before.iter().map(|one| &one.text));
        self.current = (is_unchanged(&plain) && is_unchanged(&shaped)).then_some(Current {
            existing,
            stored: before,
        });
        Ok(())
    }

    /// Both collections contain these documents alone. Returns them as stored.
    fn fill(&mut self, existing: &[Document]) -> Result<Vec<Stored>> {
        self.sides
            .run(&doc! { "delete": COLLECTION, "deletes": [{ "q": {}, "limit": 0 }] })?;
        if !existing.is_empty() {
            self.sides
                .alike(&doc! { "insert": COLLECTION, "documents": existing })?;
        }
        if let Some(first) = &self.first {
            self.sides.run(first)?;
        }
        self.all(true)
    }

    fn judge(
        &mut self,
        command: &Document,
        [plain, shaped]: &[Document; 2],
        [before, expected, after]: &[Vec<String>; 3],
    ) -> Result<()> {
        let text = format!("{:?} {command}", self.sides.shape.item_ids);
        if is_refusal(shaped) && !is_refusal(plain) {
            if after != before {
                bail!("{text} is refused and has changed something: {shaped}");
            }
            self.refused
                .push(format!("{text}\n  plain:  {plain}\n  shaped: {shaped}"));
        } else if outcome(plain) != outcome(shaped) || expected != after {
            let stored = format!("  plain:  {plain} {expected:?}\n  shaped: {shaped} {after:?}");
            self.differing.push(format!("{text}\n{stored}"));
        }
        Ok(())
    }

    fn all(&mut self, is_shaped: bool) -> Result<Vec<Stored>> {
        if is_shaped {
            let database = self.sides.shaped_database();
            documents(&mut self.sides.shaped, &database)
        } else {
            let database = self.sides.plain_database();
            documents(&mut self.sides.plain, &database)
        }
    }

    /// Fails where anything differed, or more was refused than may be.
    fn end(self, most_refused: usize) -> Result<()> {
        let (differing, refused) = (self.differing.len(), self.refused.len());
        if differing > 0 || refused > most_refused {
            let texts = [self.differing, self.refused].concat().join("\n");
            bail!(
                "{differing} of {} cases differ, {refused} are refused\n{texts}",
                self.cases
            );
        }
        let mut sides = self.sides;
        sides
            .shape
            .check(&mut sides.plain, &format!("{}_s", sides.database), COLLECTION)
    }
}

/// The document that a case is about, `_id` ten times its number and 1, with another beside it in its bucket.
fn existing(case: i32) -> Vec<Document> {
    let document = |id: i32| {
        doc! {
            "_id": id, "k": case, "at": at(i64::from(id)), "n": id, "a": { "b": 1, "c": [1, 2] }, "list": [{ "x": 1 }, 5],
            "quantity": 3, "$old": 1, "tree": { "$in": 1 }, "old": 4,
        }
    };
    vec![document(case * 10 + 1), document(case * 10 + 2)]
}
