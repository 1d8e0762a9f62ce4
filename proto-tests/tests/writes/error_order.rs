//! The error of a document with several mistakes. mongod evaluates the validator first. Then it adds the
//! document to the index on `_id` and to the others, in the order of their creation.

use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::Shape;
use proto_tests::measure::rows;
use proto_tests::replies::comparable;
use proto_tests::sessions::Transaction;
use proto_tests::sides::{COLLECTION, Sides};

/// The number of the next retryable write.
static NUMBER: AtomicI64 = AtomicI64::new(1);

/// Inserts the documents in several ways: each is stored or refused with the same error. `stored` are in the
/// collection before.
fn inserted_alike(sides: &mut Sides, stored: &[Document], documents: &[Document]) -> Result<()> {
    let insert = |ordered: bool| doc! { "insert": COLLECTION, "documents": documents.to_vec(), "ordered": ordered };
    let mut retryable = insert(false);
    retryable.extend(doc! { "lsid": {}, "txnNumber": NUMBER.fetch_add(1, Ordering::Relaxed) });
    for command in [&insert(true), &retryable] {
        restore(sides, stored)?;
        same(sides.run(command)?).with_context(|| command.to_string())?;
        sides.check()?;
    }
    restore(sides, stored)?;
    in_transaction(sides, &insert(true)).with_context(|| format!("in a transaction: {documents:?}"))
}

fn restore(sides: &mut Sides, stored: &[Document]) -> Result<()> {
    sides.alike(&doc! { "delete": COLLECTION, "deletes": [{ "q": {}, "limit": 0 }] })?;
    if !stored.is_empty() {
        sides.alike(&doc! { "insert": COLLECTION, "documents": stored.to_vec() })?;
    }
    Ok(())
}

fn in_transaction(sides: &mut Sides, insert: &Document) -> Result<()> {
    let databases = [sides.plain_database(), sides.shaped_database()];
    let mut replies = Vec::new();
    for (connection, database) in [&mut sides.plain, &mut sides.shaped].into_iter().zip(databases) {
        let session = format!("{database} {}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut transaction = Transaction::new(&session, &database);
        let reply = transaction.run(connection, insert)?;
        replies.push(comparable(&reply, &["n", "writeErrors"], &database));
        transaction.end(connection, "abortTransaction")?;
    }
    same(replies.try_into().expect("two replies"))
}

/// The same replies but for the names in mongod's text about arrays.
fn same(mut replies: [Document; 2]) -> Result<()> {
    for reply in &mut replies {
        for error in reply.get_array_mut("writeErrors").into_iter().flatten() {
            let error = error.as_document_mut().expect("an error");
            if error.get_i32("code")? == 171 {
                error.remove("errmsg");
            }
        }
    }
    let [plain, shaped] = replies;
    ensure!(plain == shaped, "\n  plain:  {plain}\n  shaped: {shaped}");
    Ok(())
}

fn unique(key: Document) -> Document {
    let name = key.to_string();
    let index = doc! { "key": key, "name": name, "unique": true };
    doc! { "createIndexes": COLLECTION, "indexes": [index] }
}

fn sides() -> Result<Sides> {
    Sides::open(Shape {
        items_change: true,
        ..Shape::new(&["k"])
    })
}

#[test]
fn an_invalid_duplicate_is_reported_as_invalid() -> Result<()> {
    let mut sides = sides()?;
    sides.alike(&doc! { "create": COLLECTION, "validator": { "n": { "$gte": 0 } } })?;
    sides.alike(&unique(doc! { "v": 1 }))?;
    let item = |id: i32, k: i32, n: i32, v: i32| doc! { "_id": id, "k": k, "n": n, "v": v };
    let stored = [item(1, 1, 0, 1), item(2, 2, 0, 2)];
    for k in [1, 2] {
        let duplicates = [item(1, k, -1, 10), item(10, k, -1, 1), item(1, k, -1, 2)];
        for duplicate in duplicates {
            let others = [item(11, 1, 0, 11), item(12, k, 0, 2), item(13, 2, 0, 13)];
            inserted_alike(&mut sides, &stored, std::slice::from_ref(&duplicate))?;
            for place in [0, others.len()] {
                let mut documents = others.to_vec();
                documents.insert(place, duplicate.clone());
                inserted_alike(&mut sides, &stored, &documents)?;
            }
        }
        // The first document of the command has the `_id`, or the value.
        for repeated in [item(14, k, -1, 15), item(15, k, -1, 14)] {
            inserted_alike(&mut sides, &stored, &[item(14, 1, 0, 14), repeated, item(16, 2, 0, 16)])?;
        }
    }
    Ok(())
}

#[test]
fn a_duplicate_that_bypasses_the_validator_is_reported_as_a_duplicate() -> Result<()> {
    let mut sides = sides()?;
    sides.alike(&doc! { "create": COLLECTION, "validator": { "n": { "$gte": 0 } } })?;
    sides.alike(&unique(doc! { "v": 1 }))?;
    let documents = [
        doc! { "_id": 1, "k": 1, "n": 0, "v": 1 },
        doc! { "_id": 1, "k": 2, "n": -1, "v": 2 },
    ];
    let insert = doc! { "insert": COLLECTION, "documents": documents.to_vec(), "bypassDocumentValidation": true };
    sides.alike(&insert)?;
    sides.check()
}

#[test]
fn the_first_index_that_refuses_a_document_is_reported() -> Result<()> {
    let mut sides = sides()?;
    for key in [doc! { "v": 1 }, doc! { "a": 1, "b": 1 }, doc! { "w": 1 }] {
        sides.alike(&unique(key))?;
    }
    let item = |id: i32, k: i32, v: i32, ab: &Bson, w: i32| {
        doc! { "_id": id, "k": k, "v": v, "a": ab, "b": ab, "w": w }
    };
    let stored = [item(1, 1, 1, &bson!(1), 1), item(2, 2, 2, &bson!(2), 2)];
    let arrays = bson!([1, 2]);
    for (number, k) in [1, 2].into_iter().enumerate() {
        let refused = [
            item(1, k, 10, &arrays, 10),
            item(10, k, 1, &arrays, 10),
            item(10, k, 10, &arrays, 1),
            item(10, k, 10, &arrays, 2),
            item(10, k, 1, &arrays, 2),
            item(10, k, 10, &bson!(1), 2),
        ];
        for refused in rows(refused, 2, number) {
            inserted_alike(&mut sides, &stored, std::slice::from_ref(&refused))?;
            for others in [
                [item(11, 1, 11, &bson!(11), 11), item(12, 2, 12, &bson!(12), 12)],
                [item(11, k, 11, &bson!(11), 2), item(12, k, 12, &bson!(12), 12)],
            ] {
                for place in [0, others.len()] {
                    let mut documents = others.to_vec();
                    documents.insert(place, refused.clone());
                    inserted_alike(&mut sides, &stored, &documents)?;
                }
            }
        }
        // The last one has a value of the first one behind its arrays.
        let documents = [item(11, k, 11, &bson!(11), 11), item(12, 1, 12, &arrays, 11)];
        inserted_alike(&mut sides, &stored, &documents)?;
    }
    Ok(())
}

/// The key of a page has the canonical type. The error has the types of the refused document.
#[test]
fn the_error_has_the_types_of_the_refused_document() -> Result<()> {
    let mut sides = sides()?;
    let types = || {
        [
            bson!(1),
            bson!(1_i64),
            bson!(1.0),
            Bson::Decimal128("1.0".parse().expect("a decimal")),
        ]
    };
    let keys = [doc! { "k": 1, "v": 1 }, doc! { "v": -1, "k": -1 }, doc! { "k": 1 }];
    for (number, key) in keys.into_iter().enumerate() {
        sides.alike(&unique(key.clone()))?;
        let stored_types = types().map(|stored| (stored, bson!(1.0)));
        let refused_types = types().map(|refused| (bson!(1), refused));
        for (stored, refused) in rows(stored_types.into_iter().chain(refused_types), 3, number) {
            let context = format!("{key}: {refused:?} beside {stored:?}");
            let stored = [doc! { "_id": 1, "k": stored, "v": 5 }];
            let refused = doc! { "_id": 2, "k": refused, "v": 5.0 };
            let other = doc! { "_id": 3, "k": 2, "v": 6 };
            inserted_alike(&mut sides, &stored, std::slice::from_ref(&refused)).with_context(|| context.clone())?;
            inserted_alike(&mut sides, &stored, &[other.clone(), refused.clone()]).with_context(|| context.clone())?;
            inserted_alike(&mut sides, &[], &[stored[0].clone(), refused.clone(), other])
                .with_context(|| context.clone())?;
            updated_alike(&mut sides, &stored[0], &refused).with_context(|| context)?;
        }
        sides.alike(&doc! { "dropIndexes": COLLECTION, "index": "*" })?;
    }
    Ok(())
}

/// Updates give an item of the same key, and one of another key, the values of the refused document.
fn updated_alike(sides: &mut Sides, stored: &Document, refused: &Document) -> Result<()> {
    let values = doc! { "k": refused.get("k"), "v": refused.get("v") };
    let mut beside = refused.clone();
    beside.insert("v", 7);
    let elsewhere = doc! { "_id": 2, "k": 3, "v": 5.0 };
    for before in [&beside, &elsewhere] {
        for update in [
            doc! { "q": { "_id": 2 }, "u": { "$set": { "v": 5.0, "k": refused.get("k") } } },
            doc! { "q": { "_id": 2 }, "u": &values },
            doc! { "q": { "_id": 4, "k": refused.get("k"), "v": 5.0 }, "u": { "$set": { "n": 1 } }, "upsert": true },
        ] {
            restore(sides, &[stored.clone(), before.clone()])?;
            let command = doc! { "update": COLLECTION, "updates": [update] };
            same(sides.run(&command)?).with_context(|| command.to_string())?;
            sides.check()?;
        }
    }
    Ok(())
}
