//! A command on an empty or missing collection.

use anyhow::{Context as _, Result, ensure};
use bson::raw::RawBsonRef;
use bson::{Document, doc};

use super::writes::Writes;
use super::{Operation, Outcome, aggregate, count, delete, distinct, find, find_and_modify, indexes, insert, update};
use crate::differential::compare::{self, Canon};
use crate::differential::grammar::{EMPTY, Emptiness, OnEmpty};
use crate::differential::sides::{COLLECTION, field, show};
use crate::differential::{Sides, World, contents};

#[derive(Debug)]
struct Empty {
    state: Emptiness,
    operation: Box<dyn Operation>,
    canon: Canon,
}

pub(super) fn generate(world: &mut World) -> Box<dyn Operation> {
    let had_indexes = world.has_indexes;
    let (state, asked) = world.group(&EMPTY, |world| (world.take::<Emptiness>(), world.take::<OnEmpty>()));
    let operation = match asked {
        OnEmpty::Find => find::generate(world),
        OnEmpty::Count => count::generate(world),
        OnEmpty::Aggregate => aggregate::generate(world),
        OnEmpty::Distinct => distinct::generate(world),
        OnEmpty::Insert => insert::generate(world),
        OnEmpty::Update => update::generate(world),
        OnEmpty::Delete => delete::generate(world),
        OnEmpty::DeleteEverything => everything(world, "delete", doc! { "q": {}, "limit": 0 }),
        OnEmpty::UpdateEverything => everything(
            world,
            "update",
            doc! { "q": {}, "u": { "$set": { "qty": 1 } }, "multi": true },
        ),
        OnEmpty::FindAndModify => find_and_modify::generate(world),
        OnEmpty::Indexes => indexes::generate(world),
    };
    // Indexes that it made are elsewhere.
    world.has_indexes = had_indexes;
    Box::new(Empty {
        state,
        operation,
        canon: world.canon(),
    })
}

fn everything(world: &World, name: &'static str, statement: Document) -> Box<dyn Operation> {
    Box::new(Writes {
        name,
        list: if name == "delete" { "deletes" } else { "updates" },
        statements: vec![statement],
        options: doc! {},
        sent: 0,
        canon: world.canon(),
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
    ensure!(
        plain == shaped,
        "the collection is there: {plain} naive, {shaped} shaped"
    );
    Ok(())
}
