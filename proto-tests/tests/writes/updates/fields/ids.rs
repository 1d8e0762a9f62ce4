//! Values of an `_id`: given by an insert, or by an upsert's filter, operators, replacement or stages.

use anyhow::Result;
use bson::{Bson, Document, Timestamp, bson, doc};
use proto_tests::measure::rows;
use proto_tests::mongod::{self, Version};

use super::{Case, Table};
use crate::updates::sides::{COLLECTION, at};

fn ids() -> Vec<Bson> {
    vec![
        bson!({ "$b": 1 }),
        bson!({ "a": { "$b": 1 } }),
        bson!({ "a": [{ "$b": 1 }] }),
        bson!({ "a": [[{ "x": { "$b": 1 } }]] }),
        bson!({ "a": { "b": { "c": { "$d": 1 } } } }),
        bson!({ "$ref": "c", "$id": 1 }),
        bson!({ "$ref": "c", "$id": 1, "$db": "d" }),
        bson!({ "$ref": "c", "$id": { "$x": 1 } }),
        bson!({ "$ref": "c", "$id": 1, "x": 1 }),
        bson!({ "$ref": "c", "$id": 1, "$x": 1 }),
        bson!({ "$ref": "c" }),
        bson!({ "$ref": 1, "$id": 1 }),
        bson!({ "$ref": "c", "x": 1, "$id": 1 }),
        bson!({ "$ref": "c", "$db": "d", "$id": 1 }),
        bson!({ "$id": 1 }),
        bson!({ "$id": 1, "$ref": "c" }),
        bson!({ "$db": "d" }),
        bson!({ "x": 1, "$ref": "c", "$id": 1 }),
        bson!({ "a": { "$ref": "c", "$id": 1 } }),
        bson!({ "a": { "$ref": "c", "$id": 1, "$db": "d" } }),
        bson!({ "a": { "$ref": "c" } }),
        bson!({ "a": { "$id": 1 } }),
        bson!({ "a": { "$id": 1, "$ref": "c" } }),
        bson!({ "a": { "$db": "d" } }),
        bson!({ "a": [{ "$ref": "c", "$id": 1 }] }),
        bson!({ "a": [{ "$id": 1 }] }),
        bson!({ "a.b": 1 }),
        bson!({ "": 1 }),
        bson!({}),
        bson!([]),
        bson!([1]),
        Bson::Null,
        Bson::Undefined,
        Bson::Timestamp(Timestamp { time: 0, increment: 0 }),
        bson!({ "a": Timestamp { time: 0, increment: 0 } }),
        Bson::RegularExpression(bson::Regex {
            pattern: bson::raw::cstr!("x").into(),
            options: bson::raw::cstr!("").into(),
        }),
    ]
}

fn commands(id: &Bson) -> Vec<Document> {
    let of = |q: Document, u: Bson| {
        doc! { "update": COLLECTION, "updates": [{ "q": q, "u": u, "upsert": true }] }
    };
    let find_and_modify = |query: Document, update: Bson| {
        doc! { "findAndModify": COLLECTION, "query": query, "update": update, "upsert": true, "new": true }
    };
    let literal = bson!({ "$literal": id.clone() });
    let whole = bson!({ "_id": id.clone(), "k": 1, "at": at(1) });
    let filters = [doc! { "_id": id.clone() }, doc! { "_id": { "$eq": id.clone() } }];
    let mut commands = vec![
        doc! { "insert": COLLECTION, "documents": [{ "_id": id.clone(), "k": 1 }] },
        doc! { "insert": COLLECTION, "documents": [{ "k": 1, "_id": id.clone() }] },
        of(doc! { "n": 1 }, bson!({ "$set": { "_id": id.clone() } })),
        of(
            doc! { "n": 1 },
            bson!({ "$setOnInsert": { "_id": id.clone(), "k": 3 } }),
        ),
        of(doc! { "n": 1 }, whole.clone()),
        of(doc! { "n": 1 }, bson!([{ "$set": { "_id": literal.clone() } }])),
        of(
            doc! { "n": 1 },
            bson!([{ "$replaceWith": { "$literal": whole.clone() } }]),
        ),
        find_and_modify(doc! { "n": 1 }, bson!({ "$setOnInsert": { "_id": id.clone() } })),
        find_and_modify(doc! { "n": 1 }, whole.clone()),
        doc! { "update": COLLECTION, "updates": [{ "q": { "k": 9 }, "u": whole.clone() }] },
        doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 9 }, "u": whole.clone() }] },
        doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 9 }, "u": { "$set": { "_id": id.clone() } } }] },
        doc! { "update": COLLECTION, "updates": [{ "q": { "k": 9 }, "u": [{ "$set": { "_id": literal } }] }] },
    ];
    for filter in filters {
        commands.push(of(filter.clone(), bson!({ "$set": { "k": 1 } })));
        commands.push(of(filter.clone(), bson!({ "k": 1 })));
        commands.push(of(filter.clone(), whole.clone()));
        commands.push(of(filter.clone(), bson!([{ "$set": { "k": 1 } }])));
        commands.push(find_and_modify(filter, bson!({ "$set": { "k": 1 } })));
    }
    commands
}

#[test]
fn id_is_accepted_where_a_plain_collection_accepts_it() -> Result<()> {
    let all_ids = [proto_tests::ItemIds::Unique, proto_tests::ItemIds::Stored];
    for (place, item_ids) in all_ids.into_iter().enumerate() {
        let mut table = Table::open(item_ids)?;
        let existing = vec![doc! { "_id": 9, "k": 9, "at": at(9) }];
        // An update of later versions accepts some names that begin with `$`. The proxy refuses them, as an insert
        // does.
        let is_accepted = mongod::find_program()?.version > Version::OLDEST;
        let ids = ids()
            .into_iter()
            .filter(|id| !is_accepted || !id.to_string().contains("\"$"));
        for (number, id) in ids.enumerate() {
            for command in rows(commands(&id), 8, number + 4 * place) {
                table.cases(&[Case {
                    existing: existing.clone(),
                    command,
                }])?;
            }
        }
        // Upserts by a pipeline of what cannot be an `_id`: what mongod reports depends on the stages.
        table.end(39)?;
    }
    Ok(())
}
