//! Updates of items by their `_id`.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::{ItemIds, Proxy, ProxyOptions, mongod};

use crate::updates::sides::{self, COLLECTION, Sides, at, update};

/// Changes of one item that a shaped collection makes as a plain one does.
pub(crate) fn changes(id: i32) -> Vec<Document> {
    vec![
        doc! { "$set": { "n": 5 } },
        doc! { "$set": { "n": id } },
        doc! { "$set": { "name": "another", "fresh": { "a": 1 } } },
        doc! { "$set": { "z": 1, "b": 2, "aa": 3 } },
        doc! { "$set": { "inner.deep.er": "x", "lines.0.a": 9, "tags.1": Bson::Null, "far.away.from": 1 } },
        doc! { "$set": { "_id": id, "k": id % 3, "at": at(i64::from(id)), "n": 77 } },
        doc! { "$set": { "_id": id } },
        doc! { "$set": {} },
        doc! { "$unset": { "name": "" } },
        doc! { "$unset": { "nothing": "", "inner.other": 1 } },
        doc! { "$inc": { "n": 3, "quantity": 0.5 } },
        doc! { "$inc": { "counter": 1 } },
        doc! { "$inc": { "n": 2_147_483_647 } },
        doc! { "$mul": { "n": 2, "none": 3_i64 } },
        doc! { "$min": { "n": 3 }, "$max": { "quantity": 100 } },
        doc! { "$push": { "tags": 4 } },
        doc! { "$push": { "tags": { "$each": [3, 1, 2], "$sort": 1, "$slice": -4 } } },
        doc! { "$push": { "lines": { "$each": [{ "a": 0 }], "$position": 0 } } },
        doc! { "$addToSet": { "tags": { "$each": ["x", "y"] } } },
        doc! { "$pull": { "tags": "x" } },
        doc! { "$pull": { "lines": { "a": { "$gte": 7 } } } },
        doc! { "$pullAll": { "tags": [id, "x"] } },
        doc! { "$pop": { "tags": -1 } },
        doc! { "$bit": { "n": { "or": 8 } } },
        doc! { "$set": { "lines.$[].b": 3 } },
        doc! { "$setOnInsert": { "n": 1, "k": 9, "made": true }, "$set": { "seen": true } },
        // Statements that mongod refuses, with mongod's error text.
        doc! { "$inc": { "name": 1 } },
        doc! { "$inc": { "n": "x" } },
        doc! { "$push": { "name": 1 } },
        doc! { "$set": { "name.sub": 1 } },
        doc! { "$set": { "n": 1 }, "$inc": { "n": 1 } },
        doc! { "$set": { "inner": 1, "inner.deep": 2 } },
        doc! { "$unknown": { "n": 1 } },
        doc! { "$set": 5 },
        doc! { "$bit": { "n": { "nand": 1 } } },
        doc! { "$pop": { "tags": 3 } },
        doc! { "$pullAll": { "tags": 1 } },
        doc! { "$set": { "n": 1 }, "x": 1 },
        doc! { "$set": { "lines.$[x].b": 3 } },
        // Replacements.
        doc! { "k": id % 3, "at": at(i64::from(id)), "x": [1, { "y": 2 }], "quantity": 3 },
        doc! { "_id": id, "k": id % 3, "at": at(i64::from(id)) },
        doc! { "k": id % 3, "at": at(i64::from(id)), "_id": id },
    ]
}

/// Further conditions beside the `_id`: some match, some do not.
pub(crate) fn filters(id: i32) -> Vec<Document> {
    vec![
        doc! { "_id": id },
        doc! { "_id": f64::from(id) },
        doc! { "_id": { "$eq": id }, "k": id % 3 },
        doc! { "_id": id, "k": (id + 1) % 3 },
        doc! { "_id": id, "n": { "$gte": 0 }, "name": { "$regex": "^name" } },
        doc! { "_id": id, "tags": "x", "lines.a": 7 },
        doc! { "_id": id, "lines": { "$elemMatch": { "a": 7, "b": 2 } } },
        doc! { "_id": id, "quantity": { "$lt": 10 }, "nothing": Bson::Null },
        doc! { "$and": [{ "_id": id }, { "$or": [{ "n": 5 }, { "name": { "$exists": true } }] }] },
        doc! { "_id": id, "at": { "$lte": at(20) } },
        doc! { "_id": 1000 + id },
        doc! { "_id": "nobody" },
    ]
}

#[test]
fn every_update_equals_a_plain_collection() -> Result<()> {
    let mut sides = sides::open()?;
    for (number, change) in changes(7).into_iter().enumerate() {
        sides.alike(&update(doc! { "_id": 7 }, change.clone()))?;
        sides
            .check()
            .with_context(|| format!("after number {number}, {change}"))?;
    }
    for filter in filters(8) {
        sides.alike(&update(
            filter,
            doc! { "$inc": { "n": 1 }, "$set": { "name": "name x" } },
        ))?;
    }
    sides.check()?;
    let series = format!(
        "mongoshape_rejected_total{{command=\"update\",namespace=\"{}_s.{COLLECTION}\",reason=\"write\"}}",
        sides.database
    );
    ensure!(sides.proxy.metric(&series) < 0.5, "something was refused");
    Ok(())
}

/// Each of two fields is stored under the other's name.
#[test]
fn fields_of_several_operators_are_added_in_the_order_of_their_names() -> Result<()> {
    let mut sides = Sides::open(sides::shape(ItemIds::Unique))?;
    let items = [1, 2].map(|id| doc! { "_id": id, "k": 1, "at": at(1) });
    sides.alike(&doc! { "insert": COLLECTION, "documents": items.to_vec() })?;
    let change = doc! { "$set": { "quantity": 1 }, "$inc": { "qty": 1 } };
    sides.alike(&update(doc! { "_id": 1 }, change.clone()))?;
    sides.alike(&doc! { "findAndModify": COLLECTION, "query": { "_id": 2 }, "update": change })?;
    let databases = [sides.plain_database(), sides.shaped_database()];
    for (connection, database) in [&mut sides.plain, &mut sides.shaped].into_iter().zip(databases) {
        let find = doc! { "find": COLLECTION, "projection": { "k": 0, "at": 0 }, "$db": database };
        for item in connection.all(&find)? {
            let names: Vec<&str> = item.keys().map(String::as_str).collect();
            ensure!(names == ["_id", "qty", "quantity"], "{item}");
        }
    }
    sides.check()
}

#[test]
fn options_and_several_statements_equal_a_plain_collection() -> Result<()> {
    let mut sides = sides::open()?;
    let statement = |id: i32, change: Document| doc! { "q": { "_id": id }, "u": change };
    let fails = doc! { "$inc": { "name": 1 } };
    for ordered in [true, false] {
        let updates = vec![
            statement(1, doc! { "$inc": { "n": 1 } }),
            statement(2, fails.clone()),
            statement(3, doc! { "$inc": { "n": 1 } }),
            statement(99, doc! { "$inc": { "n": 1 } }),
            statement(1, doc! { "$push": { "tags": 1 } }),
        ];
        sides.alike(&doc! { "update": COLLECTION, "updates": updates, "ordered": ordered })?;
        sides.check()?;
    }
    let with = |more: Document| {
        let mut statement = statement(5, doc! { "$set": { "lines.$[x].b": 9 } });
        statement.extend(more);
        doc! { "update": COLLECTION, "updates": [statement] }
    };
    sides.alike(&with(doc! { "arrayFilters": [{ "x.a": 7 }] }))?;
    sides.alike(&with(doc! { "arrayFilters": [{ "y.a": 7 }] }))?;
    sides.alike(&with(doc! { "arrayFilters": [{ "x.a": 7 }, { "y.a": 7 }] }))?;
    sides.alike(&with(
        doc! { "arrayFilters": [{ "x.a": 5 }], "hint": { "_id": 1 }, "multi": true },
    ))?;
    sides.alike(&with(doc! { "arrayFilters": [{ "x.a": 5 }], "upsert": true }))?;
    sides.check()?;
    for wrong in [
        doc! { "update": COLLECTION },
        doc! { "update": COLLECTION, "updates": [] },
        doc! { "update": COLLECTION, "updates": [{ "u": { "$set": { "a": 1 } } }] },
        doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "a": 1 } }, "nope": 1 }] },
        doc! { "update": COLLECTION, "updates": [{ "q": 1, "u": { "$set": { "a": 1 } } }] },
        doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "a": 1 } }, "multi": "x" }] },
        doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "a": 1 } } }], "nope": 1 },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 1 } },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 1 }, "update": { "$set": { "a": 1 } }, "remove": true },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 1 }, "remove": true, "new": true },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 1 }, "update": { "$set": { "a": 1 } }, "nope": true },
    ] {
        sides.alike(&wrong)?;
    }
    Ok(())
}

#[test]
fn an_item_is_found_and_changed_in_one_step() -> Result<()> {
    let mut sides = sides::open()?;
    let changes = changes(9);
    for (number, change) in changes.into_iter().enumerate() {
        let command = doc! {
            "findAndModify": COLLECTION, "query": { "_id": 9 }, "update": change.clone(), "new": number % 2 == 0,
        };
        let [plain, shaped] = sides.run(&command)?;
        // Its words go round the error once more.
        let words = |reply: &Document| {
            (
                reply.get("code").cloned(),
                reply.get("value").cloned(),
                reply.get("lastErrorObject").cloned(),
            )
        };
        ensure!(
            words(&plain) == words(&shaped),
            "{command}\n  plain:  {plain}\n  shaped: {shaped}"
        );
        sides.check().with_context(|| format!("after {change}"))?;
    }
    for filter in filters(10) {
        for fields in [
            doc! {},
            doc! { "n": 1 },
            doc! { "tags": 0, "_id": 0 },
            doc! { "k": 1, "quantity": 1, "_id": 0 },
            doc! { "lines": { "$slice": [-1, 1] } },
            doc! { "lines": { "$elemMatch": { "a": { "$gte": 1 } } }, "n": 1 },
            doc! { "lines.a": 1, "k": 1 },
            doc! { "lines.a": 0 },
            doc! { "double": { "$add": ["$n", "$n"] }, "whole": "$$ROOT.quantity" },
            // Invalid: nothing is changed.
            doc! { "n": 1, "tags": 0 },
            doc! { "n": { "$nothing": 1 } },
        ] {
            let modify = |fields: &Document| doc! { "findAndModify": COLLECTION, "query": &filter, "fields": fields.clone(), "sort": { "n": 1 } };
            for new in [false, true] {
                let mut update = modify(&fields);
                update.extend(doc! { "update": { "$inc": { "n": 1 } }, "new": new });
                sides.alike(&update)?;
            }
        }
    }
    sides.check()
}

#[test]
fn removed_and_upserted_items_are_returned_after_any_projection() -> Result<()> {
    let mut sides = sides::open()?;
    let fields = doc! { "lines": { "$slice": 1 }, "inner.deep": 0, "tags": 0 };
    for query in [doc! { "_id": 4 }, doc! { "n": { "$gt": 5 } }, doc! { "_id": "none" }] {
        let remove =
            doc! { "findAndModify": COLLECTION, "query": query, "remove": true, "sort": { "n": 1 }, "fields": &fields };
        sides.alike(&remove)?;
    }
    for new in [false, true] {
        let filter = doc! { "_id": format!("new {new}"), "k": 1 };
        let upsert = doc! { "$set": { "lines": [{ "a": 1 }, { "a": 2 }], "inner": { "deep": 1, "x": 2 } } };
        sides.alike(&doc! {
            "findAndModify": COLLECTION, "query": filter, "update": upsert, "upsert": true, "new": new, "fields": &fields,
        })?;
    }
    sides.check()
}

#[test]
fn refused_update_changes_nothing() -> Result<()> {
    let mut sides = sides::open()?;
    let id = || doc! { "_id": 4 };
    let set = || doc! { "$set": { "n": 0 } };
    let commands = [
        update(id(), doc! { "$inc": { "_id": 1 } }),
        update(id(), doc! { "$rename": { "lines.0.a": "x" } }),
        update(
            doc! { "_id": 4, "tags": { "$ne": 50 } },
            doc! { "$set": { "tags.$": 0 } },
        ),
        update(doc! { "$text": { "$search": "x" } }, set()),
        update(doc! { "$expr": { "$gt": ["$$ROOT", 1] } }, set()),
        update(doc! { "$jsonSchema": { "maxProperties": 12 } }, set()),
        doc! { "findAndModify": COLLECTION, "query": id(), "update": set(), "fields": { "lines.$": 1 } },
    ];
    for command in commands {
        sides.refused(&command)?;
    }
    Ok(())
}

#[test]
fn an_update_that_is_sent_again_is_done_once() -> Result<()> {
    let mut sides = sides::open()?;
    let second = Proxy::start(
        &ProxyOptions::new(&mongod::shared_replica_set().uri())
            .config(&sides.shape.toml(&format!("{}_s.{COLLECTION}", sides.database))),
    )?;
    let mut other = Connection::open(second.address())?;
    let session = lsid("again");
    let numbered = |number: i64, command: Document| {
        let mut command = command;
        command.extend(doc! { "lsid": session.clone(), "txnNumber": number, "$db": format!("{}_s", sides.database) });
        command
    };
    let commands = [
        numbered(1, update(doc! { "_id": 3, "n": 3 }, doc! { "$inc": { "n": 1 } })),
        numbered(
            2,
            doc! { "update": COLLECTION, "updates": [
                { "q": { "_id": 3 }, "u": { "$inc": { "n": 1 } } }, { "q": { "_id": 6 }, "u": { "$push": { "tags": 1 } } },
            ] },
        ),
        numbered(
            3,
            doc! { "findAndModify": COLLECTION, "query": { "_id": 3 }, "update": { "$inc": { "n": 1 } }, "new": true },
        ),
        numbered(4, update(doc! { "_id": 3 }, doc! { "k": 0, "at": at(3), "n": 100 })),
    ];
    for command in &commands {
        let first = sides.shaped.command_ok(command)?;
        let again = other.command_ok(command)?;
        for field in ["n", "nModified", "value", "lastErrorObject"] {
            ensure!(first.get(field) == again.get(field), "{command}\n  {first}\n  {again}");
        }
    }
    let found = sides.items(true)?;
    assert_eq!(found[3], doc! { "_id": 3, "k": 0, "at": at(3), "n": 100 });
    assert_eq!(found[6].get_array("tags")?.len(), 4);
    Ok(())
}

#[test]
fn aborted_transaction_undoes_updates() -> Result<()> {
    let mut sides = sides::open()?;
    let before = sides.items(true)?;
    let database = format!("{}_s", sides.database);
    let session = lsid("transaction");
    let begun = doc! { "lsid": &session, "txnNumber": 1_i64, "autocommit": false, "$db": &database };
    let within = |mut command: Document, begins: bool| {
        command.extend(begun.clone());
        if begins {
            command.insert("startTransaction", true);
        }
        command
    };
    sides
        .shaped
        .command_ok(&within(update(doc! { "_id": 3 }, doc! { "$inc": { "n": 5 } }), true))?;
    let found = sides.shaped.command_ok(&within(
        doc! { "findAndModify": COLLECTION, "query": { "_id": 3 }, "update": { "$inc": { "n": 5 } } },
        false,
    ))?;
    assert_eq!(found.get_document("value")?.get_i32("n")?, 8);
    ensure!(sides.items(true)? == before);
    let mut abort = doc! { "abortTransaction": 1 };
    abort.extend(begun.clone());
    abort.insert("$db", "admin");
    sides.shaped.command_ok(&abort)?;
    ensure!(sides.items(true)? == before);
    Ok(())
}
