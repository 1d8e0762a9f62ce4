//! What mongos refuses on a sharded collection. Nothing is changed by it.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::replies::first_code;

use crate::beside::{Beside, COLLECTION};

fn update(filter: Document, change: Document, is_upsert: bool) -> Document {
    let statement = doc! { "q": filter, "u": change, "upsert": is_upsert };
    doc! { "update": COLLECTION, "updates": [statement] }
}

#[test]
fn statements_without_the_shard_key_are_refused() -> Result<()> {
    let mut beside = Beside::with_items(20)?;
    let set = doc! { "$set": { "n": 1000 } };
    let delete = doc! { "q": { "n": 7 }, "limit": 1 };
    let modify = doc! { "findAndModify": COLLECTION, "query": { "_id": 1 }, "update": set.clone() };
    let index = doc! { "key": { "n": 1 }, "name": "n", "unique": true };
    let refused = [
        (update(doc! { "n": 7 }, set.clone(), false), 72),
        (update(doc! { "_id": 200 }, set, true), 61),
        (doc! { "delete": COLLECTION, "deletes": [delete] }, 61),
        (modify, 61),
        (update(doc! { "_id": 1 }, doc! { "$set": { "k": 5 } }, false), 20),
        (
            doc! { "insert": COLLECTION, "documents": [{ "_id": 201, "k": [1] }] },
            61,
        ),
        (doc! { "createIndexes": COLLECTION, "indexes": [index] }, 67),
        (doc! { "planCacheClear": COLLECTION }, 59),
    ];
    for (command, code) in refused {
        let reply = beside.run(&command)?;
        ensure!(first_code(&reply) == code, "{command}\n{reply}");
        beside.check()?;
    }
    Ok(())
}

#[test]
fn a_refused_statement_ends_an_ordered_batch_only() -> Result<()> {
    for is_ordered in [true, false] {
        let mut beside = Beside::with_items(20)?;
        let set = doc! { "$set": { "n": 1000 } };
        let statement = |filter: Document| doc! { "q": filter, "u": set.clone() };
        let updates = vec![
            statement(doc! { "_id": 1 }),
            statement(doc! { "n": 7 }),
            statement(doc! { "k": 3 }),
        ];
        let command = doc! { "update": COLLECTION, "updates": updates, "ordered": is_ordered };
        let reply = beside.run(&command)?;
        ensure!(first_code(&reply) == 72, "{reply}");
        ensure!(reply.get_i32("n")? == if is_ordered { 1 } else { 2 }, "{reply}");
    }
    Ok(())
}
