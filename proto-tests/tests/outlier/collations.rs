//! Documents whose `_id`s are equal under the collation of a command: each is changed by itself. And
//! collections that are dropped after a proxy has checked their collation.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::Outlier;
use proto_tests::sides::{COLLECTION, Sides};

/// Strings that differ only in case are equal.
fn insensitive() -> Document {
    doc! { "locale": "en", "strength": 2 }
}

/// Both sides with pairs of documents whose `_id`s are equal under the collation. `lengths`: of their arrays.
fn sides(lengths: [i32; 2]) -> Result<Sides<Outlier>> {
    let symbol = |text: &str| Bson::Symbol(text.to_owned());
    let pairs = [
        ["a".into(), "A".into()],
        [bson!({ "k": "x", "v": [1, "y"] }), bson!({ "k": "X", "v": [1, "y"] })],
        [symbol("s"), symbol("S")],
    ];
    let ids = pairs.into_iter().flat_map(|pair| pair.into_iter().zip(lengths));
    let documents: Vec<Document> = (1..)
        .zip(ids)
        .map(|(n, (id, length))| doc! { "_id": id, "n": n, "tags": (0..length).collect::<Vec<i32>>() })
        .collect();
    let mut sides = Sides::open(Outlier::new("tags", (5, 7)))?;
    sides.alike(&doc! { "insert": COLLECTION, "documents": documents })?;
    Ok(sides)
}

/// The commands, without their collation.
fn commands() -> Vec<Document> {
    let update = |filter: Document, change: Document, multi: bool| {
        let statement = doc! { "q": filter, "u": change, "multi": multi, "collation": insensitive() };
        doc! { "update": COLLECTION, "updates": [statement] }
    };
    let delete = |filter: Document, limit: i32| {
        let statement = doc! { "q": filter, "limit": limit, "collation": insensitive() };
        doc! { "delete": COLLECTION, "deletes": [statement] }
    };
    let modify = |filter: Document, more: Document| {
        let mut command = doc! { "findAndModify": COLLECTION, "query": filter, "collation": insensitive() };
        command.extend(more);
        command
    };
    vec![
        update(doc! {}, doc! { "$push": { "tags": 1 } }, true),
        update(doc! { "tags": 1 }, doc! { "$pull": { "tags": 1 } }, true),
        update(doc! { "n": { "$gt": 2 } }, doc! { "$set": { "tags.9": "x" } }, true),
        update(doc! { "n": 2 }, doc! { "$push": { "tags": 2 } }, false),
        update(doc! { "n": 4 }, doc! { "$set": { "tags.1": "y" } }, false),
        modify(
            doc! { "n": { "$gt": 0 } },
            doc! { "sort": { "n": -1 }, "update": { "$inc": { "n": 10 } } },
        ),
        modify(
            doc! { "n": 4 },
            doc! { "update": { "$push": { "tags": "z" } }, "new": true },
        ),
        modify(doc! { "n": { "$lt": 3 } }, doc! { "sort": { "n": -1 }, "remove": true }),
        delete(doc! { "n": 4 }, 1),
        delete(doc! { "tags": "X", "n": { "$gt": 9 } }, 0),
    ]
}

#[test]
fn each_of_two_documents_with_equal_ids_is_changed_by_itself() -> Result<()> {
    for lengths in [[2, 2], [20, 20], [2, 20], [20, 2]] {
        let mut sides = sides(lengths)?;
        for command in commands() {
            sides.alike(&command)?;
            sides.check().with_context(|| format!("{lengths:?}, after {command}"))?;
        }
    }
    Ok(())
}

/// Upserts of documents with long arrays.
fn long_upserts() -> [Bson; 3] {
    let long: Vec<i32> = (0..20).collect();
    [
        bson!({ "tags": long.clone() }),
        bson!([{ "$set": { "tags": { "$range": [0, 20] } } }]),
        bson!({ "$setOnInsert": { "tags": long } }),
    ]
}

#[test]
fn upsert_of_a_long_array_succeeds_after_the_collection_was_dropped() -> Result<()> {
    let mut sides = Sides::open(Outlier::new("tags", (5, 7)))?;
    let document = doc! { "_id": 1, "tags": (0..20).collect::<Vec<i32>>() };
    let pull = doc! { "q": { "_id": 1 }, "u": { "$pull": { "tags": 3 } } };
    for is_dropped_by_the_client in [true, false] {
        for change in long_upserts() {
            sides.alike(&doc! { "insert": COLLECTION, "documents": [&document] })?;
            // The proxy checks the collation.
            sides.alike(&doc! { "update": COLLECTION, "updates": [&pull] })?;
            if is_dropped_by_the_client {
                sides.alike(&doc! { "dropDatabase": 1 })?;
            } else {
                for database in [sides.plain_database(), sides.shaped_database()] {
                    sides.plain.command_ok(&doc! { "dropDatabase": 1, "$db": database })?;
                }
            }
            let upsert = doc! { "q": { "_id": 2 }, "u": change, "upsert": true };
            let reply = sides.alike(&doc! { "update": COLLECTION, "updates": [upsert] })?;
            ensure!(reply.contains_key("upserted"), "{reply}");
            sides.check()?;
            sides.alike(&doc! { "delete": COLLECTION, "deletes": [{ "q": {}, "limit": 0 }] })?;
        }
    }
    Ok(())
}
