//! A command on an empty or missing collection.

use anyhow::{Context as _, Result, ensure};
use bson::raw::RawBsonRef;
use bson::{Document, doc};

use super::writes::Writes;
use super::{Operation, Outcome, aggregate, count, delete, distinct, find, find_and_modify, indexes, insert, update};
use crate::differential::compare::{self, Canon};
use crate::differential::grammar::{EMPTY, Emptiness, OnEmpty};
use crate::differential::sides::{COLLECTION, field, show};
use crate::differential::{Generator, Sides, contents};

#[derive(Debug)]
struct Empty {
    state: Emptiness,
    operation: Box<dyn Operation>,
    canon: Canon,
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    let had_indexes = generator.has_indexes;
    let (state, kind) = generator.group(&EMPTY, |generator| {
        (generator.take::<Emptiness>(), generator.take::<OnEmpty>())
    });
    let operation = match kind {
        OnEmpty::Find => find::generate(generator),
        OnEmpty::Count => count::generate(generator),
        OnEmpty::Aggregate => aggregate::generate(generator),
        OnEmpty::Distinct => distinct::generate(generator),
        OnEmpty::Insert => insert::generate(generator),
        OnEmpty::Update => update::generate(generator),
        OnEmpty::Delete => delete::generate(generator),
        OnEmpty::DeleteEverything => everything(generator, "delete", doc! { "q": {}, "limit": 0 }),
        OnEmpty::UpdateEverything => everything(
            generator,
            "update",
            doc! { "q": {}, "u": { "$set": { "qty": 1 } }, "multi": true },
        ),
        OnEmpty::FindAndModify => find_and_modify::generate(generator),
        OnEmpty::Indexes => indexes::generate(generator),
    };
    // Indexes that it made are elsewhere.
    generator.has_indexes = had_indexes;
    Box::new(Empty {
        state,
        operation,
        canon: generator.canon(),
    })
}

fn everything(generator: &Generator, name: &'static str, statement: Document) -> Box<dyn Operation> {
    Box::new(Writes {
        name,
        list: if name == "delete" { "deletes" } else { "updates" },
        statements: vec![statement],
        options: doc! {},
        sent: 0,
        canon: generator.canon(),
    })
}

impl Operation for Empty {
    fn commands(&self) -> Vec<Document> {
        self.operation.commands()
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        sides.elsewhere(|sides| {
            self.prepare(sides).context("making it empty")?;
            let outcome = self.operation.run(sides)?;
            contents::unchanged(sides, self.canon)?;
            if outcome != Outcome::Refused {
                same_collections(sides)?;
            }
            Ok(outcome)
        })
    }
}

impl Empty {
    fn prepare(&self, sides: &mut Sides) -> Result<()> {
        let filled = doc! { "insert": COLLECTION, "documents": [{ "_id": 1, "n": 1, "k": 1 }] };
        let deleted = doc! { "delete": COLLECTION, "deletes": [{ "q": {}, "limit": 0 }] };
        let commands = match self.state {
            Emptiness::NeverCreated => vec![],
            Emptiness::Created => vec![doc! { "create": COLLECTION }],
            Emptiness::CreatedWithoutProxy => {
                let create = doc! { "create": COLLECTION };
                for reply in [sides.plain.run(&create)?, sides.stored.run(&create)?] {
                    ensure!(compare::succeeded(&reply), "{}", show(&reply));
                }
                vec![]
            }
            Emptiness::Dropped => vec![filled, doc! { "drop": COLLECTION }],
            Emptiness::Emptied => vec![filled, deleted],
            Emptiness::DatabaseDropped => vec![filled, doc! { "dropDatabase": 1 }],
        };
        for command in commands {
            let [plain, shaped] = sides.both(&command)?;
            ensure!(compare::outcomes(&plain, &shaped)?, "{}", show(&plain));
        }
        Ok(())
    }
}

/// Compares whether the collection is there.
fn same_collections(sides: &mut Sides) -> Result<()> {
    let list = doc! { "listCollections": 1, "filter": { "name": COLLECTION }, "nameOnly": true };
    let [plain, shaped] = sides.both(&list)?.map(|reply| {
        let cursor = field(&reply, "cursor").and_then(RawBsonRef::as_document);
        let batch = cursor
            .and_then(|cursor| field(cursor, "firstBatch"))
            .and_then(RawBsonRef::as_array);
        batch.is_some_and(|batch| batch.into_iter().next().is_some())
    });
    ensure!(plain == shaped, "the collection exists: {plain} plain, {shaped} shaped");
    Ok(())
}
