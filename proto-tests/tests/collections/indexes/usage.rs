//! The effects of indexes on reads and inserts.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::shaped::COLLECTION;
use proto_tests::{ProxyOptions, mongod};

use super::{Compared, Comparison, OPTIONS, spec, with};

#[test]
fn hints_are_taken_by_the_applications_names() -> Result<()> {
    let mut sides = Comparison::filled()?;
    let hidden = with(spec(doc! { "h": 1 }, "h"), doc! { "hidden": true });
    sides.create(&[spec(doc! { "quantity": 1, "a": -1 }, "q"), hidden], Compared::Whole)?;
    let hints = [
        bson!("q"),
        bson!("_id_"),
        bson!("nope"),
        bson!("h"),
        bson!("mongoshape_page"),
        bson!(""),
        bson!({ "quantity": 1, "a": -1 }),
        bson!({ "quantity": 1.0, "a": -1_i64 }),
        bson!({ "quantity": 1 }),
        bson!({ "a": -1, "quantity": 1 }),
        bson!({ "h": 1 }),
        bson!({ "_id": 1 }),
        bson!({ "_id": -1 }),
        bson!({ "history.qty": 1, "history.a": -1 }),
        bson!({ "history._id": 1 }),
        bson!({ "k": 1, "control.page": 1 }),
        bson!({}),
        bson!(1),
        bson!({ "$hint": "q" }),
        bson!({ "$natural": 1 }),
        bson!({ "$natural": "x" }),
    ];
    for hint in &hints {
        for filter in [doc! {}, doc! { "k": 1 }, doc! { "quantity": { "$gt": 3 } }] {
            let commands = [
                doc! { "find": COLLECTION, "filter": &filter, "hint": hint, "sort": { "_id": 1 } },
                doc! { "aggregate": COLLECTION, "pipeline": [{ "$match": &filter }, { "$sort": { "_id": 1 } }], "cursor": {}, "hint": hint },
                doc! { "count": COLLECTION, "query": &filter, "hint": hint },
                doc! { "distinct": COLLECTION, "key": "a", "query": &filter, "hint": hint },
            ];
            for command in commands {
                let [plain, shaped] = sides.run(&command)?;
                let outcome = |reply: &Document| -> Result<(Option<Bson>, Vec<Bson>)> {
                    let batch = reply
                        .get_document("cursor")
                        .ok()
                        .map(|cursor| cursor.get_array("firstBatch"));
                    let items = batch.transpose()?.cloned().unwrap_or_default();
                    let ids = items
                        .iter()
                        .filter_map(|item| item.as_document()?.get("_id").cloned())
                        .collect();
                    Ok((reply.get("code").or(reply.get("n")).cloned(), ids))
                };
                let (plain, shaped) = (outcome(&plain)?, outcome(&shaped)?);
                ensure!(plain == shaped, "{command}\n{plain:?}\n{shaped:?}");
            }
            for explained in [
                doc! { "find": COLLECTION, "hint": hint },
                doc! { "count": COLLECTION, "hint": hint },
            ] {
                let [plain, shaped] = sides.run(&doc! { "explain": explained.clone() })?;
                assert_eq!(plain.get("code"), shaped.get("code"), "{explained}");
            }
        }
    }
    Ok(())
}

#[test]
fn hint_sees_indexes_created_by_another_proxy() -> Result<()> {
    let mut sides = Comparison::filled()?;
    let options = ProxyOptions::new(&mongod::shared_replica_set().uri());
    let config = format!(
        "[[bucket]]\nnamespace = \"{}.{COLLECTION}\"\nkey = \"k\"\n{OPTIONS}",
        sides.shaped.database
    );
    let other = proto_tests::Proxy::start(&options.config(&config))?;
    let mut other = Connection::open(other.address())?;
    let hinted = doc! { "find": COLLECTION, "hint": "late", "$db": &sides.shaped.database };
    ensure!(sides.application.command(&hinted)?.get_i32("code").ok() == Some(2));
    let late =
        doc! { "createIndexes": COLLECTION, "indexes": [spec(doc! { "b": 1 }, "late")], "$db": &sides.shaped.database };
    other.command_ok(&late)?;
    sides.application.command_ok(&hinted)?;
    other.command_ok(&doc! { "dropIndexes": COLLECTION, "index": "late", "$db": &sides.shaped.database })?;
    ensure!(sides.application.command(&hinted)?.get_i32("code").ok() == Some(2));
    Ok(())
}

#[test]
fn documents_that_an_index_cannot_have_are_refused_one_by_one() -> Result<()> {
    for ordered in [true, false] {
        for retryable in [false, true] {
            let mut sides = Comparison::start()?;
            sides.create(
                &[
                    spec(doc! { "quantity": 1, "b.c": 1 }, "qb"),
                    spec(doc! { "n.0": 1 }, "n0"),
                ],
                Compared::Whole,
            )?;
            let bad = |id: i32| doc! { "_id": id, "k": 1, "quantity": [1, 2], "b": { "c": [1, 2] } };
            let odd = |id: i32| doc! { "_id": id, "k": 2, "n": [{ "0": 1 }] };
            let good = |id: i32| doc! { "_id": id, "k": id % 2, "quantity": [id], "b": { "c": id } };
            for (number, documents) in (1_i64..).zip([
                vec![good(1), good(2), bad(3), good(5), good(6), odd(7), good(8)],
                vec![bad(11)],
                vec![bad(21), good(22), good(23), good(24), good(25), good(27)],
                vec![
                    good(31),
                    doc! { "_id": 32, "k": 1, "quantity": [], "b": [{ "c": 1 }] },
                    good(33),
                ],
                vec![odd(41), good(42), odd(43)],
            ]) {
                let mut insert = doc! { "insert": COLLECTION, "documents": documents, "ordered": ordered };
                if retryable {
                    insert.extend(
                        doc! { "lsid": lsid(&format!("{}{ordered}", sides.shaped.database)), "txnNumber": number },
                    );
                }
                sides.same(&insert, Compared::Whole)?;
                let [plain, shaped] =
                    sides.run(&doc! { "find": COLLECTION, "sort": { "_id": 1 }, "projection": { "_id": 1 } })?;
                assert_eq!(plain, shaped, "{insert}");
            }
        }
    }
    // Where they are there already.
    let mut sides = Comparison::start()?;
    let there = doc! { "_id": 1, "k": 1, "quantity": [1], "b": [2], "n": [{ "0": 1 }] };
    sides.same(&doc! { "insert": COLLECTION, "documents": [there] }, Compared::Whole)?;
    sides.create(&[spec(doc! { "quantity": 1, "b": 1 }, "qb")], Compared::Code)?;
    sides.create(&[spec(doc! { "n.0": 1 }, "n")], Compared::Code)?;
    sides.create(&[spec(doc! { "k": 1, "b": 1 }, "kb")], Compared::Whole)?;
    sides.list()?;
    Ok(())
}

#[test]
fn reads_are_the_same_with_indexes() -> Result<()> {
    let mut sides = Comparison::start()?;
    let values = [
        bson!(null),
        bson!(1),
        bson!([]),
        bson!([1, null]),
        bson!({ "b": 1 }),
        bson!({ "b": null }),
        bson!({}),
        bson!("x"),
        bson!([[1]]),
        bson!([{ "b": 1 }, { "b": 2 }]),
    ];
    let mut items: Vec<Document> = (0..)
        .zip(&values)
        .map(|(id, value)| doc! { "_id": id, "k": id % 2, "quantity": value })
        .collect();
    items.push(doc! { "_id": 100, "k": 1 });
    sides.same(&doc! { "insert": COLLECTION, "documents": items }, Compared::Whole)?;
    sides.create(
        &[
            spec(doc! { "quantity": 1 }, "q"),
            spec(doc! { "quantity.b": -1, "k": 1 }, "b"),
            spec(doc! { "k": 1, "quantity": 1 }, "kq"),
        ],
        Compared::Whole,
    )?;
    let mut conditions: Vec<Bson> = values.to_vec();
    conditions.extend([
        bson!({ "$exists": false }),
        bson!({ "$exists": true }),
        bson!({ "$ne": 1 }),
        bson!({ "$ne": null }),
        bson!({ "$in": [null, 1] }),
        bson!({ "$lte": null }),
        bson!({ "$gte": null }),
        bson!({ "$gt": 0 }),
        bson!({ "$not": { "$gt": 0 } }),
        bson!({ "$size": 0 }),
        bson!({ "$type": "null" }),
        bson!({ "$elemMatch": { "$eq": 1 } }),
        bson!({ "$all": [1] }),
        bson!({ "$nin": [1, null] }),
    ]);
    for condition in &conditions {
        for path in ["quantity", "quantity.b", "quantity.0"] {
            for filter in [
                doc! { path: condition },
                doc! { "k": 1, path: condition },
                doc! { "$or": [{ path: condition }, { "k": 0 }] },
            ] {
                let find =
                    doc! { "find": COLLECTION, "filter": &filter, "sort": { "_id": 1 }, "projection": { "_id": 1 } };
                sides.same(&find, Compared::Whole).context("a read")?;
            }
        }
    }
    Ok(())
}

#[test]
fn transaction_accepts_hints_and_aborts_on_an_unindexable_document() -> Result<()> {
    let mut sides = Comparison::filled()?;
    sides.create(&[spec(doc! { "quantity": 1, "b": 1 }, "qb")], Compared::Whole)?;
    let mut number = 0_i64;
    let mut transaction = |sides: &mut Comparison, commands: &[Document]| -> Result<Vec<[Document; 2]>> {
        number += 1;
        let in_it = doc! { "lsid": lsid(&sides.shaped.database), "txnNumber": number, "autocommit": false };
        let mut replies = Vec::new();
        for (place, command) in commands.iter().enumerate() {
            let mut command = with(command.clone(), in_it.clone());
            if place == 0 {
                command.insert("startTransaction", true);
            }
            replies.push(sides.run(&command)?);
        }
        Ok(replies)
    };
    let find = |hint: &str| doc! { "find": COLLECTION, "sort": { "_id": 1 }, "hint": hint, "projection": { "_id": 1 } };
    let commit = doc! { "commitTransaction": 1, "$db": "admin" };
    let insert = |items: Vec<Document>| doc! { "insert": COLLECTION, "documents": items };
    let good = |id: i32| doc! { "_id": id, "k": 1, "quantity": [1], "b": 1 };
    let bad = |id: i32| doc! { "_id": id, "k": 1, "quantity": [1], "b": [1] };
    for [plain, shaped] in transaction(&mut sides, &[insert(vec![good(100)]), find("qb"), commit.clone()])? {
        assert_eq!(plain, shaped);
    }
    let [plain, shaped] = &transaction(&mut sides, &[insert(vec![good(101)]), find("nope")])?[1];
    assert_eq!(plain.get("code"), shaped.get("code"), "{plain} {shaped}");
    for items in [
        vec![bad(110)],
        vec![good(120), bad(121)],
        vec![good(130), bad(131), good(132)],
    ] {
        let replies = transaction(&mut sides, &[insert(items), commit.clone()])?;
        for [plain, shaped] in &replies {
            let failed = |reply: &Document| reply.contains_key("writeErrors") || reply.contains_key("code");
            ensure!(failed(plain) && failed(shaped), "{plain} {shaped}");
        }
        sides.same(
            &doc! { "find": COLLECTION, "sort": { "_id": 1 }, "projection": { "_id": 1 } },
            Compared::Whole,
        )?;
    }
    Ok(())
}
