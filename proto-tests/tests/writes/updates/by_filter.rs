//! Updates of one item that is found by any filter, for each `_id` option.

use anyhow::{Context as _, Result};
use bson::{Bson, Document, doc};
use proto_tests::ItemIds;

use crate::updates::by_id::changes;
use crate::updates::sides::{self, ALL_IDS, COLLECTION, at, update};

/// Changes by operators and replacements that are not made of an item by its `_id`.
pub(crate) fn more_changes(id: i32) -> Vec<Document> {
    vec![
        doc! { "$rename": { "n": "m" } },
        doc! { "$rename": { "m": "n", "none": "some" }, "$set": { "name": 1 } },
        doc! { "$rename": { "quantity": "amount", "inner.deep": "inner.other" } },
        doc! { "$rename": { "amount": "quantity" } },
        doc! { "$rename": { "n": "n" } },
        doc! { "$rename": { "n": "lines.a" }, "$set": { "lines": 1 } },
        doc! { "$set": { "k": id % 3, "at": at(i64::from(id)) } },
        doc! { "$set": { "k": id % 3, "at": at(i64::from(id)), "n": 78 } },
        doc! { "$set": { "k": id % 3 }, "$unset": { "nothing": 1 } },
        doc! { "$set": { "stamp": bson::Timestamp { time: 0, increment: 0 } } },
        doc! { "$set": { "tags.$[t]": 0 } },
        doc! { "$inc": { "n": 1_i64 } },
        doc! { "$mul": { "n": 1.0 } },
        doc! { "k": id % 3, "at": at(i64::from(id)), "u": id, "$x": 1 },
        doc! { "k": id % 3, "at": at(i64::from(id)), "u": id, "x": [1, { "y": 2.0 }], "quantity": -0.0, "n": 3_i64 },
        doc! { "k": id % 3, "at": at(i64::from(id)), "u": id, "x": [1, { "y": 2.0 }], "quantity": -0.0, "n": 3_i64 },
        doc! { "k": id % 3, "at": at(i64::from(id)), "u": id, "s": bson::Timestamp { time: 0, increment: 1 } },
    ]
}

pub(crate) fn of_ids(id: i32) -> Vec<Document> {
    vec![
        doc! { "$set": { "_id": id + 1 } },
        doc! { "$set": { "_id": f64::from(id) } },
        doc! { "$unset": { "_id": 1 } },
        doc! { "$rename": { "_id": "x" } },
        doc! { "_id": id + 100, "k": id % 3, "at": at(i64::from(id)), "u": id },
        doc! { "_id": i64::from(id), "k": id % 3, "at": at(i64::from(id)), "u": id },
        doc! { "_id": id, "k": id % 3, "at": at(i64::from(id)), "u": id },
        doc! { "_id": id, "k": id % 3, "at": at(i64::from(id)), "u": id },
    ]
}

pub(crate) fn pipelines(id: i32) -> Vec<Vec<Document>> {
    vec![
        vec![doc! { "$set": { "n": { "$add": ["$n", 1] }, "q2": "$quantity" } }],
        vec![
            doc! { "$unset": ["name", "q2"] },
            doc! { "$addFields": { "quantity": { "$multiply": ["$quantity", 2] } } },
        ],
        vec![doc! { "$set": { "n": "$n" } }],
        vec![],
        vec![doc! { "$set": { "tags": { "$concatArrays": ["$tags", [{ "$literal": "$x" }]] } } }],
        vec![doc! { "$project": { "k": 1, "at": 1, "u": 1, "n": 1 } }],
        vec![doc! { "$replaceWith": { "$mergeObjects": ["$$ROOT", { "z": 1 }] } }],
        vec![doc! { "$set": { "n": { "$add": ["$n", "x"] } } }],
        vec![doc! { "$replaceWith": "$n" }],
        vec![doc! { "$set": { "stamp": bson::Timestamp { time: 0, increment: 0 } } }],
        vec![doc! { "$match": {} }],
        vec![doc! { "$set": { "n": "$$none" } }],
        vec![doc! { "$set": { "k": id % 3, "n": { "$divide": [1, 0] } } }],
    ]
}

/// Filters that match one item.
pub(crate) fn filters(id: i32) -> Vec<Document> {
    vec![
        doc! { "u": id },
        doc! { "u": { "$gt": id - 1, "$lt": id + 1 }, "k": id % 3 },
        doc! { "$expr": { "$eq": ["$u", id] } },
        doc! { "u": id, "$or": [{ "tags": "x" }, { "nothing": Bson::Null }] },
        doc! { "$nor": [{ "u": { "$ne": id } }] },
        doc! { "u": id, "$jsonSchema": { "required": ["at"] } },
        doc! { "u": id, "at": { "$lte": at(i64::from(id)) } },
        doc! { "u": id, "k": 17 },
        doc! { "u": { "$bad": 1 } },
        doc! { "$expr": { "$bad": 1 } },
        doc! { "u": id, "$comment": "x", "lines": { "$elemMatch": { "b": 2 } } },
    ]
}

fn with_id_where_kept(ids: ItemIds, id: i32) -> Vec<Document> {
    let mut all = changes(id);
    all.extend(more_changes(id));
    if ids == ItemIds::Dropped {
        all.retain(|change| !change.to_string().contains("_id"));
    } else {
        all.extend(of_ids(id));
    }
    all
}

#[test]
fn every_update_equals_a_plain_collection() -> Result<()> {
    for ids in ALL_IDS {
        let mut sides = sides::of(ids)?;
        for (number, change) in with_id_where_kept(ids, 7).into_iter().enumerate() {
            // Replacements that others may follow leave the item to be found again.
            sides.alike(&update(
                doc! { "k": 1, "at": at(7), "u": { "$in": [7, Bson::Null] } },
                change.clone(),
            ))?;
            sides
                .check()
                .with_context(|| format!("{ids:?}, after number {number}, {change}"))?;
        }
        for (number, stages) in pipelines(8).into_iter().enumerate() {
            let statement = doc! { "q": { "u": 8 }, "u": &stages };
            sides.alike(&doc! { "update": COLLECTION, "updates": [statement] })?;
            sides
                .check()
                .with_context(|| format!("{ids:?}, after pipeline {number}"))?;
        }
        for filter in filters(9) {
            sides.alike(&update(
                filter,
                doc! { "$inc": { "n": 1 }, "$set": { "name": "name x" } },
            ))?;
        }
        sides.check()?;
    }
    Ok(())
}

/// mongod reports the first error in the order of the paths.
#[test]
fn errors_of_paths_before_the_id_are_reported_first() -> Result<()> {
    for ids in [ItemIds::Unique, ItemIds::Stored] {
        let mut sides = sides::of(ids)?;
        let filter = doc! { "u": 7 };
        sides.alike(&update(filter.clone(), doc! { "$set": { "Name": "text" } }))?;
        for change in [
            doc! { "$set": { "Name.x": 1, "_id": 99 } },
            doc! { "$set": { "_id": 99 }, "$inc": { "Name": 1 } },
            doc! { "$rename": { "_id": "x" }, "$inc": { "Name": 1 } },
            doc! { "$set": { "_id": 99, "Fresh": 1 } },
            doc! { "$set": { "_id": 99, "name.x": 1 } },
        ] {
            sides.alike(&update(filter.clone(), change))?;
        }
        sides.check()?;
    }
    Ok(())
}

/// mongod adds fields in the order of their names, and has the stored names only.
#[test]
fn fields_are_added_in_the_order_of_their_names() -> Result<()> {
    for ids in ALL_IDS {
        let mut sides = sides::of(ids)?;
        sides.alike(&doc! { "update": COLLECTION, "updates": [
            { "q": {}, "u": { "$unset": { "quantity": 1 } }, "multi": true },
        ] })?;
        let changes = [
            doc! { "$set": { "quantity": 1, "qu": 2 }, "$push": { "qty": 3 } },
            doc! { "$unset": { "quantity": 1, "qty": 1 }, "$inc": { "n": 1 } },
            doc! { "$inc": { "quantity": 1 }, "$set": { "qty.deep": 2, "a": { "b": 2.0 } }, "$currentDate": { "n": true } },
            doc! { "$rename": { "name": "quantity", "tags": "qty" } },
        ];
        let by_id = doc! { "_id": 7 };
        let filters = [
            doc! { "u": 5, "k": 2 },
            if ids == ItemIds::Unique {
                by_id
            } else {
                doc! { "u": 7 }
            },
        ];
        for filter in filters {
            for change in &changes {
                sides.alike(&update(filter.clone(), change.clone()))?;
                // Which holds the time of day.
                sides.alike(&update(filter.clone(), doc! { "$unset": { "n": 1 } }))?;
                sides.check().with_context(|| format!("{ids:?}, after {change}"))?;
            }
        }
    }
    Ok(())
}

#[test]
fn update_options_equal_a_plain_collection() -> Result<()> {
    for ids in ALL_IDS {
        let mut sides = sides::of(ids)?;
        let statements = [
            doc! { "q": { "name": "NAME 5" }, "u": { "$set": { "n": 50 } }, "collation": { "locale": "en", "strength": 2 } },
            doc! { "q": { "u": 6 }, "u": { "$pull": { "tags": "X" } }, "collation": { "locale": "en", "strength": 2 } },
            doc! { "q": { "u": 7 }, "u": { "$addToSet": { "tags": "X" } }, "collation": { "locale": "en", "strength": 2 } },
            doc! { "q": { "u": 7 }, "u": { "$addToSet": { "tags": "X" } } },
            doc! { "q": { "u": 7 }, "u": { "$set": { "lines.$[x].b": 9 } }, "arrayFilters": [{ "x.a": 7 }] },
            doc! { "q": { "u": 7 }, "u": { "$set": { "lines.$[x].b": 9 } }, "arrayFilters": [{ "y.a": 7 }] },
            doc! { "q": { "u": 7 }, "u": { "$set": { "tags.$[x]": 9 } }, "arrayFilters": [{ "x": "X" }],
            "collation": { "locale": "en", "strength": 2 } },
            doc! { "q": { "u": 8 }, "u": { "$set": { "n": 5 } }, "hint": { "_id": 1 } },
            doc! { "q": { "u": 8 }, "u": { "$set": { "n": 6 } }, "upsert": true },
            doc! { "q": { "$expr": { "$eq": ["$u", "$$wanted"] } }, "u": [{ "$set": { "n": "$$wanted" } }] },
            doc! { "q": { "u": 11 }, "u": [{ "$set": { "n": "$$c", "m": "$$wanted" } }], "c": { "c": "$literal" } },
            doc! { "q": { "u": 11 }, "u": { "$set": { "n": 1 } }, "c": { "c": 1 } },
            doc! { "q": { "u": 11 }, "u": { "$set": { "n": 1 } }, "collation": { "locale": "nowhere" } },
            doc! { "q": { "u": 12 }, "u": { "$currentDate": { "x": 1 } } },
        ];
        for statement in &statements {
            sides.alike(&doc! { "update": COLLECTION, "updates": [statement], "let": { "wanted": 10 } })?;
            sides.check().with_context(|| format!("{ids:?}, after {statement}"))?;
        }
        for ordered in [true, false] {
            let command =
                doc! { "update": COLLECTION, "updates": &statements[..], "let": { "wanted": 10 }, "ordered": ordered };
            sides.alike(&command)?;
            sides.check()?;
        }
        let unacknowledged = doc! {
            "update": COLLECTION, "updates": [{ "q": { "u": 13 }, "u": { "$inc": { "n": 1 } } }], "writeConcern": { "w": 0 },
        };
        sides.alike(&unacknowledged)?;
        sides.check()?;
        let mut majority = unacknowledged;
        majority.insert("writeConcern", doc! { "w": "majority" });
        sides.alike(&majority)?;
        sides.check()?;
    }
    Ok(())
}

#[test]
fn an_item_is_found_by_any_filter_and_changed() -> Result<()> {
    for ids in ALL_IDS {
        let mut sides = sides::of(ids)?;
        for (number, change) in with_id_where_kept(ids, 7).into_iter().enumerate() {
            let command = doc! {
                "findAndModify": COLLECTION, "query": { "k": 1, "at": at(7) }, "update": change, "new": number % 2 == 0,
            };
            sides.alike(&command)?;
            sides.check().with_context(|| format!("{ids:?}, after {command}"))?;
        }
        for stages in pipelines(8) {
            sides.alike(&doc! { "findAndModify": COLLECTION, "query": { "u": 8 }, "update": stages, "new": true })?;
            sides.check()?;
        }
        for (number, filter) in filters(9).into_iter().enumerate() {
            let fields = [doc! {}, doc! { "n": 1 }, doc! { "k": 1, "quantity": 1, "_id": 0 }];
            sides.alike(&doc! {
                "findAndModify": COLLECTION, "query": filter, "update": { "$inc": { "n": 1 } }, "fields": &fields[number % 3],
            })?;
        }
        for sort in [
            doc! { "u": -1 },
            doc! { "k": 1, "u": 1 },
            doc! { "inner.deep.er": -1 },
            doc! { "u": "x" },
        ] {
            let query = doc! { "u": { "$gt": 11, "$lt": 30 } };
            sides.alike(
                &doc! { "findAndModify": COLLECTION, "query": query, "update": { "$inc": { "n": 1 } }, "sort": sort },
            )?;
        }
        let collation = doc! { "locale": "en", "strength": 2 };
        let query = doc! { "name": "NAME 12", "$expr": { "$lt": ["$u", "$$most"] } };
        sides.alike(&doc! {
            "findAndModify": COLLECTION, "query": query, "update": { "$set": { "tags.$[t]": 9 } }, "new": true,
            "arrayFilters": [{ "t": "X" }], "collation": collation, "let": { "most": 20 }, "writeConcern": { "w": "majority" },
        })?;
        sides.check()?;
    }
    Ok(())
}
