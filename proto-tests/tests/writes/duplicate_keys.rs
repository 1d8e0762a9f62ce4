//! The key that the error of a unique index names. mongod's keys of a document are a set in the order of the
//! index. An update adds those that the document did not have. The error names the first that another one has.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Decimal128, Document, bson, doc};
use proto_tests::measure::rows;
use proto_tests::sessions::lsid;
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::{Shape, client};

/// How a write is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    Alone,
    /// In a transaction of its own.
    InTransaction,
    /// In a transaction that has given other items their values.
    BehindOthers,
}

#[test]
fn error_names_the_first_new_key_that_is_held() -> Result<()> {
    check(Sent::Alone)
}

#[test]
fn error_in_a_transaction_names_the_first_new_key_that_is_held() -> Result<()> {
    check(Sent::InTransaction)
}

#[test]
fn error_names_a_key_that_the_transaction_has_written() -> Result<()> {
    check(Sent::BehindOthers)
}

fn sides() -> Result<Sides> {
    Sides::open(Shape {
        items_change: true,
        ..Shape::new(&["k"])
    })
}

fn check(sent: Sent) -> Result<()> {
    let mut sides = sides()?;
    let mut number = 0;
    let keys = [doc! { "value": 1 }, doc! { "value": -1 }, doc! { "k": 1, "value": -1 }];
    for (place, key) in keys.into_iter().enumerate() {
        sides.alike(&create(&key))?;
        for (row, others) in others()?.into_iter().enumerate() {
            // An ordinary run takes every fourth write, and other ones beside the next values.
            for write in rows(values()?.iter().flat_map(writes), 4, row + place) {
                number += 1;
                // After an update of many, the proxy does not know the keys that the transaction has written.
                let is_many = write.to_string().contains("multi");
                if sent != Sent::BehindOthers || !is_many {
                    let case = Case {
                        sent,
                        number,
                        others: &others,
                        write: &write,
                    };
                    case.run(&mut sides).with_context(|| format!("{key} {case:?}"))?;
                }
            }
        }
        sides.alike(&drop_index())?;
    }
    Ok(())
}

fn create(key: &Document) -> Document {
    let index = doc! { "key": key, "name": "unique", "unique": true };
    doc! { "createIndexes": COLLECTION, "indexes": [index] }
}

fn drop_index() -> Document {
    doc! { "dropIndexes": COLLECTION, "index": "unique" }
}

/// The values of an item on the same page, and of one on another page.
fn others() -> Result<Vec<[Bson; 2]>> {
    let decimal: Decimal128 = "10.5".parse()?;
    Ok(vec![
        [bson!(11), bson!("x")],
        [bson!("x"), bson!(11)],
        [bson!(11), bson!("text")],
        [bson!([10, "text"]), bson!(11.0)],
        [decimal.into(), bson!([[10]])],
    ])
}

/// The values that the writes give the first item, which has the elements 100 and 101.
fn values() -> Result<Vec<Bson>> {
    let decimal: Decimal128 = "10.5".parse()?;
    let mixed = bson!([[10], { "a": 1 }, "text", 11, decimal, null, 11.0, 100]);
    Ok(vec![bson!([10, 11, 10]), mixed])
}

fn set(value: &Bson) -> Bson {
    bson!({ "$set": { "value": value.clone() } })
}

fn update(filter: Document, change: Bson) -> Document {
    doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change }] }
}

/// Writes that give an item the value.
fn writes(value: &Bson) -> Vec<Document> {
    let stages = bson!([{ "$set": { "value": { "$literal": value.clone() } } }]);
    let find_and_modify = |filter: Document, change: &Bson| {
        doc! { "findAndModify": COLLECTION, "query": filter, "update": change }
    };
    vec![
        update(doc! { "_id": 1 }, set(value)),
        update(doc! { "n": 1 }, set(value)),
        update(doc! { "_id": 1 }, stages.clone()),
        update(doc! { "_id": 1 }, bson!({ "k": 1, "n": 1, "value": value.clone() })),
        // Another page.
        update(doc! { "_id": 1 }, bson!({ "$set": { "k": 2, "value": value.clone() } })),
        doc! { "update": COLLECTION, "updates": [{ "q": { "n": 1 }, "u": set(value), "multi": true }] },
        doc! { "update": COLLECTION, "updates": [{ "q": { "n": 1 }, "u": stages.clone(), "multi": true }] },
        doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 7, "k": 1 }, "u": set(value), "upsert": true }] },
        find_and_modify(doc! { "_id": 1 }, &set(value)),
        find_and_modify(doc! { "n": 1 }, &stages),
        doc! { "insert": COLLECTION, "documents": [{ "_id": 8, "k": 1, "value": value.clone() }] },
    ]
}

#[derive(Debug)]
struct Case<'a> {
    sent: Sent,
    /// The number of the transaction.
    number: i64,
    others: &'a [Bson; 2],
    write: &'a Document,
}

impl Case<'_> {
    fn run(&self, sides: &mut Sides) -> Result<()> {
        alike(
            sides,
            &doc! { "delete": COLLECTION, "deletes": [{ "q": {}, "limit": 0 }] },
        )?;
        let [beside, elsewhere] = self.others;
        let mut commands = Vec::new();
        let mut documents = vec![
            doc! { "_id": 1, "k": 1, "n": 1, "value": [100, 101] },
            doc! { "_id": 2, "k": 1, "value": beside },
            doc! { "_id": 3, "k": 2, "value": elsewhere },
        ];
        if self.sent == Sent::BehindOthers {
            documents[1].insert("value", "before");
            documents[2].insert("value", "too");
            commands.push(update(doc! { "_id": 2 }, set(beside)));
            commands.push(update(doc! { "_id": 3 }, set(elsewhere)));
        }
        alike(sides, &doc! { "insert": COLLECTION, "documents": documents })?;
        commands.push(self.write.clone());
        let is_transaction = self.sent != Sent::Alone;
        for (place, mut command) in commands.into_iter().enumerate() {
            if is_transaction {
                command.extend(doc! { "lsid": {}, "txnNumber": self.number, "autocommit": false });
                if place == 0 {
                    command.insert("startTransaction", true);
                }
            }
            alike(sides, &command)?;
        }
        if is_transaction {
            abort(sides, self.number)?;
        }
        Ok(())
    }
}

fn abort(sides: &mut Sides, number: i64) -> Result<()> {
    let databases = [sides.plain_database(), sides.shaped_database()];
    for (connection, database) in [&mut sides.plain, &mut sides.shaped].into_iter().zip(databases) {
        let mut abort = doc! { "abortTransaction": 1, "lsid": lsid(&database), "txnNumber": number };
        abort.extend(doc! { "autocommit": false, "$db": "admin" });
        connection.command(&abort)?;
    }
    Ok(())
}

/// A command with the same reply on both sides, but for the databases' names.
fn alike(sides: &mut Sides, command: &Document) -> Result<()> {
    let databases = [sides.plain_database(), sides.shaped_database()];
    let mut replies = sides.run(command)?;
    for (reply, database) in replies.iter_mut().zip(&databases) {
        let text = reply.get_str("errmsg").map(|text| text.replace(database, "DATABASE"));
        if let Ok(text) = text {
            reply.insert("errmsg", text);
        }
    }
    let [plain, shaped] = replies;
    ensure!(plain == shaped, "{command}\n  plain:  {plain}\n  shaped: {shaped}");
    Ok(())
}

#[test]
fn an_element_that_an_array_repeats_is_one_key() -> Result<()> {
    let mut sides = sides()?;
    let create = create(&doc! { "value": 1 });
    sides.alike(&create)?;
    let documents = [
        doc! { "_id": 1, "k": 1, "n": 1, "value": [10, 11, 10] },
        doc! { "_id": 2, "k": 1, "n": 2, "value": [12, 12.0] },
        doc! { "_id": 3, "k": 2, "n": 3, "value": [[1], [1], null, null] },
    ];
    for document in &documents {
        sides.alike(&doc! { "insert": COLLECTION, "documents": [document] })?;
    }
    sides.alike(&doc! { "delete": COLLECTION, "deletes": [{ "q": {}, "limit": 0 }] })?;
    sides.alike(&doc! { "insert": COLLECTION, "documents": documents.to_vec() })?;
    for (filter, value) in [
        (doc! { "_id": 1 }, bson!([13, 14, 13])),
        (doc! { "n": 2 }, bson!([15, 15, 12])),
        (doc! { "_id": 3 }, bson!(["a", "a"])),
    ] {
        let updated = sides.alike(&update(filter, set(&value)))?;
        ensure!(updated.get_i32("nModified")? == 1, "{updated}");
    }
    sides.check()?;
    sides.alike(&drop_index())?;
    let created = sides.alike(&create)?;
    ensure!(created.get_f64("ok")? > 0.0, "{created}");
    sides.check()
}

/// The last document has keys of a stored item and of an item of the same command.
#[test]
fn an_insert_reports_the_first_key_that_a_stored_or_new_item_has() -> Result<()> {
    let stored = doc! { "_id": 1, "k": 1, "value": 10, "other": "x" };
    let several = bson!([10, 11, 10]);
    let last = [
        doc! { "_id": 8, "k": 1, "value": several.clone(), "other": 8 },
        doc! { "_id": 8, "k": 1, "value": 11, "other": "x" },
        doc! { "_id": 8, "k": 1, "value": 10, "other": "new" },
        doc! { "_id": 8, "k": 1, "value": several, "other": ["x", "new"] },
        doc! { "_id": 1, "k": 1, "value": 11, "other": 8 },
    ];
    let indexes = [doc! { "value": 1 }, doc! { "other": -1 }].map(|key| {
        let name = key.to_string();
        doc! { "key": key, "name": name, "unique": true }
    });
    let mut sides = sides()?;
    for order in [[0, 1], [1, 0]] {
        let indexes = order.map(|index| indexes[index].clone()).to_vec();
        alike(&mut sides, &doc! { "createIndexes": COLLECTION, "indexes": indexes })?;
        for document in &last {
            for (ordered, key) in [(true, 1), (true, 2), (false, 1), (false, 2)] {
                let new = doc! { "_id": 7, "k": key, "value": 11, "other": "new" };
                let behind = doc! { "_id": 9, "k": key, "value": 12, "other": 9 };
                for documents in [vec![stored.clone()], vec![new, document.clone(), behind]] {
                    let insert = doc! { "insert": COLLECTION, "documents": documents, "ordered": ordered };
                    alike(&mut sides, &insert)?;
                }
                sides.check()?;
                alike(
                    &mut sides,
                    &doc! { "delete": COLLECTION, "deletes": [{ "q": {}, "limit": 0 }] },
                )?;
            }
        }
        alike(&mut sides, &doc! { "dropIndexes": COLLECTION, "index": "*" })?;
    }
    Ok(())
}

/// A field of an index is a part of the key of the shape.
#[test]
fn documents_as_keys_are_compared_by_the_part_that_the_index_has() -> Result<()> {
    let mut sides = sides()?;
    let index = doc! { "key": { "k.x": 1, "value": 1 }, "name": "by_part", "unique": true };
    alike(&mut sides, &doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    let item = |id: i32, x: i32, value: i32| doc! { "_id": id, "k": { "x": x, "y": id % 2 }, "value": value };
    for ordered in [true, false] {
        for documents in [
            vec![item(1, 1, 5), item(2, 2, 5)],
            vec![item(3, 1, 5)],
            vec![item(4, 3, 5), item(5, 3, 5), item(6, 3, 6)],
        ] {
            let insert = doc! { "insert": COLLECTION, "documents": documents, "ordered": ordered };
            alike(&mut sides, &insert)?;
            sides.check()?;
        }
    }
    Ok(())
}

#[test]
fn values_that_look_like_operators_are_looked_up() -> Result<()> {
    let mut sides = sides()?;
    let index = doc! { "key": { "ref": 1 }, "name": "ref", "unique": true };
    alike(&mut sides, &doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    let item = |id: i32, to: Bson| doc! { "_id": id, "k": id % 2, "ref": to };
    let like_operator = || bson!({ "$oid": "a" });
    for documents in [
        vec![item(1, like_operator()), item(2, "b".into())],
        vec![item(3, like_operator()), item(4, "c".into())],
    ] {
        let insert = doc! { "insert": COLLECTION, "documents": documents, "ordered": false };
        alike(&mut sides, &insert)?;
        sides.check()?;
    }
    Ok(())
}

/// mongod checks the `_id` before the indexes.
#[test]
fn an_item_with_the_id_and_a_key_of_new_items_is_refused_for_its_id() -> Result<()> {
    let shape = Shape {
        max_items: 2,
        ..Shape::new(&["k"])
    };
    let mut sides = Sides::open(shape)?;
    let index = doc! { "key": { "v": 1 }, "name": "v", "unique": true };
    alike(&mut sides, &doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    let item = |id: i32, k: i32, v: i32| doc! { "_id": id, "k": k, "v": v };
    for documents in [
        vec![item(10, 2, 100), item(11, 2, 101), item(12, 1, 102)],
        vec![item(1, 1, 10), item(2, 2, 20), item(2, 1, 10)],
    ] {
        let insert = doc! { "insert": COLLECTION, "documents": documents, "ordered": false };
        alike(&mut sides, &insert)?;
    }
    sides.check()
}

/// A document sequence may have more bytes than the body in which a validator is evaluated.
#[tokio::test]
async fn a_batch_of_more_than_16_mb_is_stored_under_a_validator() -> Result<()> {
    let mut sides = sides()?;
    alike(
        &mut sides,
        &doc! { "create": COLLECTION, "validator": { "n": { "$gte": 0 } } },
    )?;
    let client = client(&format!("mongodb://{}", sides.proxy.address())).await?;
    let collection = client
        .database(&sides.shaped_database())
        .collection::<Document>(COLLECTION);
    let item = |id: i32| doc! { "_id": id, "k": id % 2, "n": id, "text": "x".repeat(1_000_000) };
    let inserted = collection.insert_many((0..20).map(item)).await?;
    ensure!(inserted.inserted_ids.len() == 20);
    Ok(())
}
