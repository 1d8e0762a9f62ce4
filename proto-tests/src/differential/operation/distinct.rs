//! `distinct`.

use anyhow::{Context as _, Result, ensure};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{Bson, Document, doc};

use super::{Operation, Outcome};
use crate::differential::compare::{self, Canon, Order};
use crate::differential::grammar::{DISTINCT, DistinctForm, DistinctPath, Harmless};
use crate::differential::sides::{COLLECTION, field};
use crate::differential::{Generator, Sides};

#[derive(Debug)]
struct Distinct {
    command: Document,
    /// Whether there may be an index on the path, which mongod then reads instead of documents: and shows
    /// `null` where there is no such field, and what is in arrays within arrays.
    has_indexes: bool,
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    let command = match generator.take::<DistinctForm>() {
        DistinctForm::Ordinary => generator.group(&DISTINCT, ordinary),
        DistinctForm::Mistake => wrong(generator),
    };
    Box::new(Distinct {
        command,
        has_indexes: generator.has_indexes,
    })
}

/// Compares a `distinct` on a path with an index.
pub(super) fn compare_indexed(sides: &mut Sides, command: &Document) -> Result<()> {
    let distinct = Distinct {
        command: command.clone(),
        has_indexes: true,
    };
    distinct.run(sides).map(drop)
}

fn ordinary(generator: &mut Generator) -> Document {
    // Timestamps of mongod differ from each other; one of mongod and one of the proxy may be equal.
    let path = Some(generator.distinct_path()).filter(|path| path != "stamp");
    let mut command = doc! { "distinct": COLLECTION, "key": path.as_deref().unwrap_or("qty") };
    let filter = generator.filter();
    if !filter.is_empty() || generator.chance(50) {
        command.insert("query", filter);
    }
    if let Some(collation) = generator.collation() {
        command.insert("collation", collation);
    }
    if generator.take::<Harmless>() == Harmless::Some {
        command.insert("readConcern", doc! { "level": "local" });
        command.insert("comment", "nothing");
        command.insert("maxTimeMS", 20_000);
    }
    command
}

fn wrong(generator: &mut Generator) -> Document {
    let mistakes = [
        doc! { "key": "" },
        doc! { "key": "a." },
        doc! { "key": "a..b" },
        doc! { "key": "$a" },
        doc! { "key": 1 },
        doc! { "key": Bson::Null },
        doc! { "nope": 1 },
        doc! { "hint": "_id_" },
        doc! { "query": 1 },
        doc! { "query": { "$nope": 1 } },
        doc! { "query": { "k": { "$nope": 1 } } },
        doc! { "collation": { "locale": "nope" } },
        doc! { "collation": 1 },
        doc! { "maxTimeMS": -1 },
        doc! { "maxTimeMS": "x" },
        doc! { "writeConcern": { "w": 1 } },
        doc! { "readConcern": { "level": "nope" } },
        doc! { "apiVersion": "1", "apiStrict": true },
    ];
    let mut command = doc! { "distinct": COLLECTION, "key": "qty" };
    command.extend(generator.example("distinct.mistake", &mistakes));
    command
}

impl Generator {
    fn distinct_path(&mut self) -> String {
        if self.take::<DistinctPath>() == DistinctPath::Odd {
            let odd = [
                "history.x.0",
                "qty.0.x",
                "tags.0.0",
                "tags.00",
                "a.b",
                "nested.x.0.x",
                "tags.y.0",
            ];
            return self.example("distinct.path.odd", &odd).to_owned();
        }
        loop {
            let path = self.field();
            // A part that begins with `$` is answered by a plain collection, and refused as a path by ours.
            if !path.is_empty() && !path.contains('$') {
                return path;
            }
        }
    }
}

impl Operation for Distinct {
    fn commands(&self) -> Vec<Document> {
        vec![self.command.clone()]
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        let shaped = sides.shaped.run(&self.command)?;
        let plain = sides.plain.run(&self.by_documents())?;
        if sides.is_refused(&self.command, &shaped) {
            return Ok(Outcome::Refused);
        }
        if !compare::outcomes(&plain, &shaped)? {
            return Ok(Outcome::Failed);
        }
        let (plain, shaped) = (values(&plain)?, values(&shaped)?);
        if self.command.contains_key("collation") {
            // Which of several equal strings is shown depends on the order of keys.
            ensure!(plain.len() == shaped.len(), "{shaped:?} instead of {plain:?}");
            return Ok(Outcome::Done);
        }
        let canon = Canon {
            without_id: false,
            loose: true,
            ..Canon::default()
        };
        compare::documents(canon, &Order::Defined, &plain, &shaped, &[])?;
        Ok(Outcome::Done)
    }
}

impl Distinct {
    /// The command with a condition that every document satisfies and no index covers.
    fn by_documents(&self) -> Document {
        let mut command = self.command.clone();
        let query = command.get_document("query").cloned();
        if self.has_indexes && (query.is_ok() || !command.contains_key("query")) {
            let all = doc! { "nowhere": { "$exists": false } };
            command.insert("query", doc! { "$and": [query.unwrap_or_default(), all] });
        }
        command
    }
}

/// Each value in a document.
fn values(reply: &RawDocument) -> Result<Vec<RawDocumentBuf>> {
    let values = field(reply, "values").and_then(RawBsonRef::as_array);
    let values = values.context("no values")?.into_iter().flatten();
    Ok(values
        .map(|value| {
            let mut document = RawDocumentBuf::new();
            document.append(cstr!("v"), value);
            document
        })
        .collect())
}
