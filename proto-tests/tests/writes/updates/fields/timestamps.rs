//! Empty timestamps: which writes fill them in.

use anyhow::{Result, ensure};
use bson::{Bson, Document, Timestamp, bson, doc};
use proto_tests::ItemIds;
use proto_tests::measure::rows;

use super::{Case, Table, open};
use crate::updates::sides::{COLLECTION, at};

const EMPTY: Timestamp = Timestamp { time: 0, increment: 0 };

/// Ways to make, to leave and to move one.
fn updates() -> Vec<Bson> {
    let empty = || bson!({ "$literal": EMPTY });
    vec![
        bson!({ "$set": { "t": EMPTY } }),
        bson!({ "$set": { "a.t": EMPTY } }),
        bson!({ "$set": { "t": EMPTY, "k": 900 } }),
        bson!({ "$set": { "t": EMPTY, "at": at(900) } }),
        bson!({ "$set": { "t": EMPTY, "$old": 5 } }),
        bson!({ "$set": { "quantity": EMPTY } }),
        bson!({ "$set": { "n": 5 } }),
        bson!({ "$set": { "k": 900 } }),
        bson!({ "$set": { "at": at(900) } }),
        bson!({ "$setOnInsert": { "t": EMPTY } }),
        bson!({ "$min": { "t": EMPTY } }),
        bson!({ "$max": { "t": EMPTY } }),
        bson!({ "$push": { "list": EMPTY } }),
        bson!({ "$push": { "fresh": EMPTY } }),
        bson!({ "$rename": { "empty": "other" } }),
        bson!({ "$currentDate": { "t": { "$type": "timestamp" } } }),
        bson!({ "k": 900, "at": at(2), "t": EMPTY }),
        bson!({ "k": 1, "at": at(1), "t": EMPTY, "a": { "t": EMPTY } }),
        bson!({ "k": 1, "at": EMPTY, "t": 1 }),
        bson!({ "k": EMPTY, "at": at(1), "t": 1 }),
        bson!([{ "$set": { "t": empty() } }]),
        bson!([{ "$set": { "a.t": empty() } }]),
        bson!([{ "$set": { "t": empty(), "k": 900 } }]),
        bson!([{ "$set": { "t": empty(), "at": at(900) } }]),
        bson!([{ "$set": { "n": 5 } }]),
        bson!([{ "$set": { "k": 900 } }]),
        bson!([{ "$set": { "at": at(900) } }]),
        bson!([{ "$set": { "at": empty() } }]),
        bson!([{ "$replaceWith": { "$literal": { "k": 900, "t": EMPTY } } }]),
        bson!([{ "$replaceWith": { "$literal": { "k": 1, "at": at(1), "t": EMPTY } } }]),
    ]
}

fn commands(update: &Bson) -> Vec<Document> {
    let of = |q: Document, options: Document| {
        let mut statement = doc! { "q": q, "u": update };
        statement.extend(options);
        doc! { "update": COLLECTION, "updates": [statement] }
    };
    let find_and_modify = |query: Document, options: Document| {
        let mut command = doc! { "findAndModify": COLLECTION, "query": query, "update": update };
        command.extend(options);
        command
    };
    let upsert = doc! { "upsert": true };
    vec![
        of(doc! { "_id": 1 }, doc! {}),
        of(doc! { "n": 1 }, doc! {}),
        of(doc! { "_id": 1 }, upsert.clone()),
        find_and_modify(doc! { "_id": 1 }, doc! {}),
        find_and_modify(doc! { "n": 1 }, doc! {}),
        of(doc! { "_id": 7 }, upsert.clone()),
        of(doc! { "_id": 7, "w": EMPTY }, upsert.clone()),
        of(doc! { "_id": 7, "k": 1, "w.x": EMPTY }, upsert.clone()),
        find_and_modify(doc! { "_id": 7, "k": 1 }, upsert),
    ]
}

/// A document with an empty timestamp, which only a pipeline makes.
fn existing() -> [Document; 2] {
    let insert = doc! { "_id": 1, "k": 1, "at": at(1), "n": 1, "a": { "b": 1 }, "list": [1], "quantity": 3, "old": 4 };
    [insert, doc! { "_id": 2, "k": 1, "at": at(2), "n": 2 }]
}

#[test]
fn empty_timestamps_are_filled_in_where_a_plain_collection_does_it() -> Result<()> {
    for (place, item_ids) in [ItemIds::Unique, ItemIds::Stored].into_iter().enumerate() {
        let mut table = Table::open(item_ids)?;
        let make = bson!([{ "$set": { "empty": { "$literal": EMPTY }, "a.empty": { "$literal": EMPTY } } }]);
        table.first = Some(doc! { "update": COLLECTION, "updates": [{ "q": {}, "u": make, "multi": true }] });
        for (number, update) in updates().into_iter().enumerate() {
            for command in rows(commands(&update), 9, number + 4 * place) {
                table.cases(&[Case {
                    existing: existing().to_vec(),
                    command,
                }])?;
            }
        }
        for document in [
            doc! { "_id": EMPTY, "k": 1 },
            doc! { "_id": 1, "k": EMPTY },
            doc! { "_id": 1, "k": 1, "at": EMPTY },
            doc! { "_id": 1, "k": 1, "t": EMPTY, "u": EMPTY, "a": { "t": EMPTY }, "list": [EMPTY] },
        ] {
            let command = doc! { "insert": COLLECTION, "documents": [document] };
            table.cases(&[Case {
                existing: Vec::new(),
                command,
            }])?;
        }
        table.end(0)?;
    }
    Ok(())
}

#[test]
fn an_upsert_of_an_empty_timestamp_as_key_is_refused() -> Result<()> {
    let mut sides = open(ItemIds::Unique)?;
    let update = doc! { "q": { "_id": 7, "k": EMPTY }, "u": { "$set": { "n": 1 } }, "upsert": true };
    let command = doc! { "update": COLLECTION, "updates": [update], "$db": sides.shaped_database() };
    let reply = sides.shaped.command(&command)?;
    let error = reply.get_array("writeErrors")?[0]
        .as_document()
        .cloned()
        .unwrap_or_default();
    ensure!(
        error.get_str("errmsg")?.contains("an empty timestamp cannot be a key"),
        "{reply}"
    );
    ensure!(sides.items(true)?.is_empty());
    Ok(())
}
