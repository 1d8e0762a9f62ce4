//! `createIndexes`, `dropIndexes` and `listIndexes`.

use anyhow::{Result, ensure};
use bson::raw::RawDocument;
use bson::{Bson, Document, bson, doc};

use super::{Operation, Outcome};
use crate::differential::compare::{self, Canon};
use crate::differential::grammar::IndexForm;
use crate::differential::refusal;
use crate::differential::sides::{COLLECTION, field, first_batch, show};
use crate::differential::{Generator, Sides};

#[derive(Debug)]
struct Indexes {
    command: Document,
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    let command = match generator.take::<IndexForm>() {
        IndexForm::Create => create(generator),
        IndexForm::Drop => {
            let choices = [
                bson!("qty_1"),
                bson!("nested.x_-1"),
                bson!({ "qty": 1 }),
                bson!({ "count": 1 }),
                bson!(["qty_1", "count_1"]),
                bson!("*"),
                bson!("_id_"),
                bson!("nope"),
            ];
            doc! { "dropIndexes": COLLECTION, "index": generator.example("indexes.drop", &choices) }
        }
        IndexForm::List => doc! { "listIndexes": COLLECTION },
    };
    Box::new(Indexes { command })
}

fn create(generator: &mut Generator) -> Document {
    // With an index, the plain side may answer in its order.
    generator.has_indexes = true;
    let key = generator.shape.key[0].clone();
    let index = |key: Document| {
        let name: Vec<String> = key
            .iter()
            .map(|(path, direction)| format!("{path}_{direction}"))
            .collect();
        doc! { "name": name.join("_"), "key": key }
    };
    let mut wanted = vec![
        index(doc! { "qty": 1 }),
        index(doc! { "qty": 1 }),
        index(doc! { "count": 1 }),
        index(doc! { "quantity": -1 }),
        index(doc! { "nested.x": -1 }),
        index(doc! { "n": 1 }),
        index(doc! { &key: 1, "n": -1 }),
        doc! { "key": { "n": 1 }, "name": "qty_1" },
        doc! { "key": { "qty": 1 }, "name": "another" },
        doc! { "key": { "qty": 1 } },
        doc! { "key": { "qty": 1 }, "name": "single", "unique": true, "sparse": true },
        doc! { "key": { "qty": 1 }, "name": "sparse", "sparse": true },
        doc! { "key": { "nested.x": 1 }, "name": "partial", "partialFilterExpression": { "qty": { "$gt": 1 } } },
        doc! { "key": { "qty": 1 }, "name": "qty_1", "collation": { "locale": "de" } },
        // No wildcard index: beside one, mongod 6.0.5 fails (16410) for filters with a field that begins with `$`.
        // No date that is generated expires: both sides would delete at times of their own.
        doc! { "key": { "qty": 1 }, "name": "long", "expireAfterSeconds": 2_000_000_000 },
        doc! { "key": { "qty": 1 }, "name": "qty_1", "expireAfterSeconds": 2_000_000_000 },
        doc! { "key": { "qty": 0 }, "name": "none" },
    ];
    if generator.names_keys {
        // The plain collection is not sharded. A sharded one has no unique index without the shard key, and an index
        // that cannot be built on one shard can stay on the others.
        wanted.retain(|spec| !spec.contains_key("unique") && !spec.contains_key("collation"));
        // Each document has a number of its own.
        let fields = generator.shape.key.iter().map(String::as_str).chain(["n"]);
        let unique: Document = fields.map(|field| (field.to_owned(), Bson::Int32(1))).collect();
        wanted.push(doc! { "key": unique, "name": "numbers", "unique": true });
    }
    let mut indexes: Vec<Bson> = vec![generator.example("indexes.create", &wanted).into()];
    if generator.chance(20) {
        indexes.push(generator.pick(&wanted).into());
    }
    doc! { "createIndexes": COLLECTION, "indexes": indexes }
}

impl Operation for Indexes {
    fn commands(&self) -> Vec<Document> {
        vec![self.command.clone()]
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        // On the plain side an upsert that fails has made the collection.
        sides.both(&doc! { "create": COLLECTION })?;
        let shaped = sides.shaped.run(&self.command)?;
        if let Some(kind) = refusal::of_write(&sides.write_request(&self.command), &shaped) {
            sides.refused(kind);
            return same_indexes(sides).map(|()| Outcome::Refused);
        }
        let plain = sides.plain.run(&self.command)?;
        if !compare::outcomes(&plain, &shaped)? {
            same_indexes(sides)?;
            return Ok(Outcome::Failed);
        }
        for name in [
            "numIndexesBefore",
            "numIndexesAfter",
            "createdCollectionAutomatically",
            "note",
            "nIndexesWas",
        ] {
            let [plain, shaped] = [&plain, &shaped].map(|reply| field(reply, name));
            ensure!(plain == shaped, "{name}: {shaped:?} instead of {plain:?}");
        }
        same_indexes(sides)?;
        Ok(Outcome::Done)
    }
}

fn same_indexes(sides: &mut Sides) -> Result<()> {
    let [plain, shaped] = sides.both(&doc! { "listIndexes": COLLECTION })?;
    if !compare::outcomes(&plain, &shaped)? {
        return Ok(());
    }
    ensure!(
        listed(&plain) == listed(&shaped),
        "the indexes differ.\n  plain:  {}\n  shaped: {}",
        show(&plain),
        show(&shaped)
    );
    Ok(())
}

/// All indexes, in any order.
fn listed(reply: &RawDocument) -> Vec<Vec<u8>> {
    let specs = first_batch(reply).into_iter();
    let mut specs: Vec<Vec<u8>> = specs.map(|spec| Canon::default().of(spec)).collect();
    specs.sort();
    specs
}
