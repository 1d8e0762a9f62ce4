//! Changes of key and time, and upserts, on a plain collection and on a shaped one: the replies, the items,
//! and their pages.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::replies::succeeded;
use proto_tests::sessions::{Transaction, lsid};
use proto_tests::sides::{ALL_IDS, COLLECTION, Sides};
use proto_tests::{ItemIds, Proxy, ProxyOptions, Shape, database_name, mongod};

fn at(seconds: i32) -> DateTime {
    DateTime::from_millis(1_700_000_000_000 + i64::from(seconds) * 1000)
}

fn item(n: i32) -> Document {
    doc! { "_id": n, "k": n % 3, "at": at(n), "n": n, "quantity": n / 4, "tags": ["a", n] }
}

fn shape(item_ids: ItemIds) -> Shape {
    Shape {
        time: Some("at".to_owned()),
        max_items: 4,
        items_change: true,
        rename: vec![("quantity".to_owned(), "qty".to_owned())],
        item_ids,
        ..Shape::new(&["k"])
    }
}

/// Thirty items of three keys, on pages of four.
fn sides(item_ids: ItemIds) -> Result<Sides> {
    let mut sides = Sides::open(shape(item_ids))?;
    let items: Vec<Document> = (0..30).map(item).collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    Ok(sides)
}

fn update(filter: Document, change: impl Into<Bson>) -> Document {
    doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change }] }
}

fn update_many(filter: Document, change: impl Into<Bson>) -> Document {
    doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change, "multi": true }] }
}

#[test]
fn key_change_equals_a_plain_collection() -> Result<()> {
    for item_ids in ALL_IDS {
        let mut sides = sides(item_ids)?;
        let commands = [
            // Where it lies, its time would still be between those beside it.
            update(doc! { "n": 4 }, doc! { "$set": { "at": at(5), "k": 2 } }),
            update(doc! { "n": 4 }, doc! { "$set": { "k": 2 } }),
            update(
                doc! { "n": 5 },
                doc! { "$set": { "k": "new" }, "$inc": { "quantity": 10 }, "$push": { "tags": "b" } },
            ),
            update(doc! { "n": 6 }, doc! { "$inc": { "k": 7 } }),
            update(doc! { "n": 6 }, doc! { "$inc": { "k": 0 } }),
            update(doc! { "n": 6 }, doc! { "$set": { "k": 7.0 } }),
            update(doc! { "n": 6 }, doc! { "$inc": { "k": 0, "quantity": 1 } }),
            update(doc! { "n": 6 }, doc! { "$max": { "k": 3 } }),
            update_many(doc! { "n": { "$lt": 3 } }, doc! { "$max": { "k": 1, "at": at(1) } }),
            update(doc! { "n": 7 }, doc! { "$unset": { "k": 1 } }),
            update(doc! { "n": 8 }, doc! { "k": 9, "at": at(8), "n": 8 }),
            update(
                doc! { "n": 9 },
                vec![doc! { "$set": { "k": { "$add": ["$k", 100] }, "was": "$k" } }],
            ),
            update_many(
                doc! { "k": 0, "n": { "$gte": 12 } },
                doc! { "$set": { "k": 1 }, "$inc": { "quantity": 1 } },
            ),
            update_many(doc! {}, vec![doc! { "$set": { "k": { "$mod": ["$n", 4] } } }]),
            doc! { "findAndModify": COLLECTION, "query": { "n": 10 }, "update": { "$set": { "k": 77 } } },
            doc! { "findAndModify": COLLECTION, "query": { "n": 11 }, "update": { "$set": { "k": 77 } }, "new": true,
            "fields": { "n": 1, "k": 1, "_id": 0 } },
            update(doc! { "n": 13 }, doc! { "$set": { "k": [1, 2] } }),
        ];
        let (last, others) = commands.split_last().context("some")?;
        for command in others {
            let mut command = command.clone();
            if item_ids == ItemIds::Dropped && command.contains_key("findAndModify") {
                command.insert("fields", doc! { "n": 1, "k": 1, "_id": 0 });
            }
            sides.alike(&command).with_context(|| format!("{item_ids:?}"))?;
            sides.check().with_context(|| format!("{command} {item_ids:?}"))?;
        }
        // A key is no array.
        let before = sides.items(true)?;
        let [_, shaped] = sides.run(last)?;
        ensure!(shaped.get_i32("n").unwrap_or(0) == 0, "{shaped}");
        ensure!(sides.items(true)? == before);
    }
    Ok(())
}

#[test]
fn time_change_equals_a_plain_collection() -> Result<()> {
    for item_ids in ALL_IDS {
        let mut sides = sides(item_ids)?;
        let changes = [
            // Between its neighbours; at the end; before all others; what is no date; nothing.
            (3, Bson::DateTime(at(4))),
            (27, Bson::DateTime(at(500))),
            (29, Bson::DateTime(at(-500))),
            (12, Bson::String("noon".to_owned())),
            (13, Bson::Null),
            (0, Bson::DateTime(at(600))),
        ];
        for (n, time) in changes {
            sides.alike(&update(doc! { "n": n }, doc! { "$set": { "at": time } }))?;
            sides.check().with_context(|| format!("{n} {item_ids:?}"))?;
            for k in 0..3 {
                for direction in [1, -1] {
                    sides.alike(
                        &doc! { "find": COLLECTION, "filter": { "k": k, "at": { "$type": "date" } },
                        "sort": { "at": direction }, "projection": { "_id": 0, "n": 1 }, "limit": 7 },
                    )?;
                }
            }
        }
        sides.alike(&update(doc! { "n": 20 }, doc! { "$unset": { "at": 1 } }))?;
        sides
            .alike(&update_many(
                doc! { "k": 1 },
                doc! { "$currentDate": { "seen": true }, "$max": { "at": at(20) } },
            ))
            .map(drop)
            .or_else(|_| Ok::<(), anyhow::Error>(()))?;
    }
    Ok(())
}

#[test]
fn upsert_inserts_if_no_item_matches() -> Result<()> {
    for item_ids in ALL_IDS {
        let mut sides = sides(item_ids)?;
        let upsert = |filter: Document, change: Bson, multi: bool| {
            doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change, "upsert": true, "multi": multi }] }
        };
        let commands = [
            upsert(
                doc! { "_id": 100, "k": 1 },
                doc! { "$set": { "n": 100, "at": at(1) } }.into(),
                false,
            ),
            upsert(
                doc! { "_id": 101 },
                doc! { "$set": { "n": 101, "k": 5 }, "$setOnInsert": { "x": 1 } }.into(),
                false,
            ),
            upsert(doc! { "_id": 102 }, doc! { "n": 102, "k": 2 }.into(), false),
            upsert(
                doc! { "_id": 103, "k": 3 },
                vec![doc! { "$set": { "n": 103, "y": { "$add": [1, 2] } } }].into(),
                false,
            ),
            upsert(
                doc! { "_id": 104, "k": 3 },
                doc! { "$set": { "n": 104 }, "$inc": { "quantity": 5 } }.into(),
                true,
            ),
            upsert(doc! { "n": 100 }, doc! { "$set": { "x": 1 } }.into(), false),
            doc! { "findAndModify": COLLECTION, "query": { "_id": 105, "k": 1 }, "update": { "$set": { "n": 105 } }, "upsert": true },
            doc! { "findAndModify": COLLECTION, "query": { "_id": 106, "k": 1 }, "update": { "$set": { "n": 106 } }, "upsert": true,
            "new": true, "fields": { "n": 1, "_id": 0 } },
            doc! { "update": COLLECTION, "updates": [
                { "q": { "_id": 107 }, "u": { "$set": { "n": 107 } }, "upsert": true },
                { "q": { "n": 3 }, "u": { "$inc": { "quantity": 1 } } },
                { "q": { "_id": 108, "k": 108 }, "u": { "$set": { "n": 108 } }, "upsert": true },
            ] },
        ];
        for command in &commands {
            sides.alike(command).with_context(|| format!("{item_ids:?}"))?;
            sides.check().with_context(|| format!("{command} {item_ids:?}"))?;
        }
    }
    Ok(())
}

/// A command that is sent again, through another proxy, is answered as it was and does nothing more.
#[test]
fn resent_update_is_executed_once() -> Result<()> {
    for item_ids in [ItemIds::Unique, ItemIds::Stored] {
        let mut sides = sides(item_ids)?;
        let second = sides.another_proxy()?;
        let mut other = Connection::open(second.address())?;
        let session = lsid(&format!("moves {item_ids:?}"));
        let commands = [
            update(
                doc! { "_id": 4, "k": 1 },
                doc! { "$set": { "k": 2 }, "$inc": { "quantity": 1 } },
            ),
            update(
                doc! { "_id": 5 },
                doc! { "$set": { "k": 0 }, "$inc": { "quantity": 1 } },
            ),
            update(doc! { "n": 6 }, vec![doc! { "$set": { "k": { "$add": ["$k", 1] } } }]),
            update(
                doc! { "n": 7 },
                doc! { "$set": { "at": at(700) }, "$inc": { "quantity": 1 } },
            ),
            update(doc! { "n": 8 }, doc! { "$inc": { "quantity": 1 } }),
            doc! { "update": COLLECTION, "updates": [
                { "q": { "k": 50 }, "u": { "$inc": { "quantity": 1 }, "$set": { "n": 50 } }, "upsert": true },
            ] },
            doc! { "update": COLLECTION, "updates": [
                { "q": { "_id": 60, "k": 1 }, "u": { "$inc": { "quantity": 1 }, "$set": { "n": 60 } }, "upsert": true },
                { "q": { "_id": 9 }, "u": { "$set": { "k": 2 }, "$inc": { "quantity": 1 } } },
            ] },
            doc! { "findAndModify": COLLECTION, "query": { "k": 70 }, "update": { "$inc": { "quantity": 1 }, "$set": { "n": 70 } },
            "upsert": true, "new": true },
            doc! { "findAndModify": COLLECTION, "query": { "n": 10 }, "update": { "$inc": { "quantity": 1 } } },
            doc! { "findAndModify": COLLECTION, "query": { "n": 11 }, "remove": true },
            doc! { "findAndModify": COLLECTION, "query": { "_id": 12 }, "remove": true },
        ];
        let database = sides.shaped_database();
        for (number, command) in (1_i64..).zip(commands) {
            let mut command = command;
            command.extend(doc! { "lsid": &session, "txnNumber": number, "$db": &database });
            let first = sides.shaped.command_ok(&command)?;
            let stored = sides.items(true)?;
            let again = other.command_ok(&command)?;
            for field in ["n", "nModified", "value", "lastErrorObject", "upserted"] {
                let is_same = first.get(field) == again.get(field);
                // mongod's retry record of an update has `nModified`.
                ensure!(
                    is_same || field == "nModified",
                    "{field}: {command}\n  {first}\n  {again}"
                );
            }
            ensure!(sides.items(true)? == stored, "{command} was done again");
        }
        let database = sides.shaped_database();
        proto_tests::invariants::check(&mut sides.plain, &database, COLLECTION, &sides.shape)?;
    }
    Ok(())
}

#[test]
fn aborted_transaction_undoes_relocations() -> Result<()> {
    let mut sides = sides(ItemIds::Unique)?;
    let before = sides.buckets()?;
    let mut transaction = Transaction::new("moving", &sides.shaped_database());
    let commands = [
        update(doc! { "_id": 4 }, doc! { "$set": { "k": 2 } }),
        update_many(doc! { "k": 2 }, doc! { "$set": { "k": 0 } }),
        doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 90, "k": 0 }, "u": { "$set": { "n": 90 } }, "upsert": true }] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "k": 1 }, "limit": 0 }] },
    ];
    for command in &commands {
        succeeded(transaction.run(&mut sides.shaped, command)?)?;
    }
    let count =
        doc! { "aggregate": COLLECTION, "pipeline": [{ "$group": { "_id": "$k", "n": { "$sum": 1 } } }], "cursor": {} };
    let counted = succeeded(transaction.run(&mut sides.shaped, &count)?)?;
    let batch = counted.get_document("cursor")?.get_array("firstBatch")?;
    assert_eq!(batch, &vec![Bson::Document(doc! { "_id": 0, "n": 22 })]);
    succeeded(transaction.end(&mut sides.shaped, "abortTransaction")?)?;
    ensure!(sides.buckets()? == before);
    Ok(())
}

/// Where there are no transactions an item gets no other key.
#[test]
fn standalone_relocates_no_item() -> Result<()> {
    let mongod = mongod::shared();
    let database = database_name();
    let shape = shape(ItemIds::Unique);
    let toml = shape.toml(&format!("{database}.{COLLECTION}"));
    let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(&toml))?;
    let mut shaped = Connection::open(proxy.address())?;
    let mut on = |mut command: Document| {
        command.insert("$db", &database);
        shaped.command(&command)
    };
    on(doc! { "insert": COLLECTION, "documents": (0..30).map(item).collect::<Vec<_>>() })?;
    let all = doc! { "find": COLLECTION, "sort": { "n": 1 }, "batchSize": 100 };
    let before = on(all.clone())?.get_document("cursor")?.clone();
    for change in [
        doc! { "$set": { "k": 9 } },
        doc! { "$set": { "at": at(-9), "k": 9 } },
        doc! { "$set": { "at": at(5), "k": 9 } },
    ] {
        let reply = on(update(doc! { "_id": 4 }, change))?;
        ensure!(reply.get_i32("code").ok() == Some(115), "{reply}");
    }
    // Items that are there already, and one that would have to move.
    let filter = doc! { "k": { "$in": [0, 1] } };
    let reply = on(update_many(filter, doc! { "$set": { "k": 1, "quantity": 7 } }))?;
    ensure!(reply.get_i32("code").ok() == Some(115), "{reply}");
    ensure!(on(all)?.get_document("cursor")? == &before);
    // Of which one has a later time.
    let reply = on(update_many(
        doc! { "n": { "$in": [6, 9] } },
        doc! { "$max": { "at": at(7) } },
    ))?;
    ensure!(reply.get_i32("nModified").ok() == Some(1), "{reply}");
    for (n, time) in [(4, 5), (29, 900)] {
        let reply = on(update(doc! { "_id": n }, doc! { "$set": { "at": at(time) } }))?;
        ensure!(reply.get_i32("nModified").ok() == Some(1), "{reply}");
    }
    let mut direct = Connection::open(mongod.address())?;
    proto_tests::invariants::check(&mut direct, &database, COLLECTION, &shape)
}
