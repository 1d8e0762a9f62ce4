//! Empty collections without a page index: they answer like plain ones.

use anyhow::Result;
use bson::{Document, doc};
use proto_tests::measure::rows;
use proto_tests::sides::{ALL_IDS, COLLECTION, Sides};
use proto_tests::{ItemIds, Shape};

fn commands(item_ids: ItemIds) -> Vec<Document> {
    let update = |q: Document, multi: bool, upsert: bool| {
        doc! { "update": COLLECTION, "updates": [{ "q": q, "u": { "$set": { "x": 1 } }, "multi": multi, "upsert": upsert }] }
    };
    let delete = |q: Document, limit: i32| doc! { "delete": COLLECTION, "deletes": [{ "q": q, "limit": limit }] };
    let find = |fields: Document| {
        let mut find = doc! { "find": COLLECTION };
        find.extend(fields);
        find
    };
    let modify = |fields: Document| {
        let mut modify = doc! { "findAndModify": COLLECTION };
        modify.extend(fields);
        modify
    };
    let mut commands = Vec::new();
    for filter in [
        doc! {},
        doc! { "_id": 1 },
        doc! { "k": 1 },
        doc! { "x": 1 },
        doc! { "k": 1, "x": 1 },
    ] {
        commands.extend([
            delete(filter.clone(), 0),
            delete(filter.clone(), 1),
            update(filter.clone(), true, false),
            update(filter.clone(), false, false),
            modify(doc! { "query": filter.clone(), "update": { "$set": { "x": 1 } } }),
            modify(doc! { "query": filter.clone(), "remove": true }),
            doc! { "count": COLLECTION, "query": filter.clone() },
            doc! { "distinct": COLLECTION, "key": "x", "query": filter.clone() },
            doc! { "aggregate": COLLECTION, "pipeline": [{ "$match": filter.clone() }], "cursor": {} },
            find(doc! { "filter": filter.clone() }),
            find(doc! { "filter": filter.clone(), "sort": { "at": -1 }, "limit": 3 }),
            find(doc! { "filter": filter.clone(), "sort": { "at": 1 }, "skip": 30, "limit": 3 }),
            find(doc! { "filter": filter.clone(), "hint": "_id_" }),
            find(doc! { "filter": filter, "sort": { "_id": 1 } }),
        ]);
    }
    // Without stored `_id`s the second upsert would not match the item of the first.
    if item_ids != ItemIds::Dropped {
        commands.push(update(doc! { "k": 1, "_id": 7 }, false, true));
    }
    commands
}

#[test]
fn a_collection_without_page_index_answers_as_an_empty_one() -> Result<()> {
    for (place, item_ids) in ALL_IDS.into_iter().enumerate() {
        let shape = Shape {
            item_ids,
            time: Some("at".to_owned()),
            ..Shape::new(&["k"])
        };
        let mut sides = Sides::open(shape)?;
        let mut wrong = Vec::new();
        for command in rows(commands(item_ids), 5, place) {
            for database in [sides.plain_database(), sides.shaped_database()] {
                // Directly on mongod, since the proxy caches its own writes.
                sides.plain.command_ok(&doc! { "dropDatabase": 1, "$db": &database })?;
                sides
                    .plain
                    .command_ok(&doc! { "create": COLLECTION, "$db": &database })?;
            }
            for _ in 0..2 {
                if let Err(error) = sides.alike(&command) {
                    wrong.push(format!("{item_ids:?} {error}"));
                }
            }
        }
        anyhow::ensure!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    }
    Ok(())
}
