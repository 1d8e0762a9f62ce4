//! Documents with arrays at two paths of a unique index. mongod refuses them at once, however long the arrays
//! are.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::Shape;
use proto_tests::sessions::{Transaction, lsid};
use proto_tests::sides::{COLLECTION, Sides};

const CANNOT_INDEX_PARALLEL_ARRAYS: i32 = 171;
/// Much less time than nine million keys need.
const MOST: Duration = Duration::from_secs(10);

fn elements() -> Vec<Bson> {
    (0..3000).map(Bson::Int32).collect()
}

fn parallel(id: i32, key: i32) -> Document {
    doc! { "_id": id, "k": key, "a": elements(), "b": { "c": elements() } }
}

fn index() -> Document {
    let index = doc! { "key": { "a": 1, "b.c": 1 }, "name": "unique", "unique": true };
    doc! { "createIndexes": COLLECTION, "indexes": [index] }
}

fn sides() -> Result<Sides> {
    let mut sides = Sides::open(Shape {
        rename: vec![("a".to_owned(), "A".to_owned())],
        items_change: true,
        ..Shape::new(&["k"])
    })?;
    sides.alike(&doc! { "insert": COLLECTION, "documents": [{ "_id": 0, "k": 1, "a": 0, "b": 0 }] })?;
    Ok(sides)
}

/// The same replies but for mongod's texts, and the same documents.
fn same(sides: &mut Sides, command: &Document) -> Result<()> {
    let begun = Instant::now();
    let mut replies = sides.run(command)?;
    ensure!(begun.elapsed() < MOST, "it took {:?}", begun.elapsed());
    for reply in &mut replies {
        reply.remove("errmsg");
        for error in reply.get_array_mut("writeErrors").into_iter().flatten() {
            error.as_document_mut().expect("an error").remove("errmsg");
        }
    }
    let [plain, shaped] = replies;
    ensure!(plain == shaped, "plain: {plain}\n  shaped: {shaped}");
    sides.check()
}

#[test]
fn a_document_with_two_arrays_is_refused_at_once() -> Result<()> {
    let mut sides = sides()?;
    sides.alike(&index())?;
    let other = |id: i32| doc! { "_id": id, "k": 2, "a": [id, -id], "b": { "c": id } };
    for (number, ordered) in (1..).zip([false, true]) {
        let id = 10 * number;
        let insert =
            |documents: Vec<Document>| doc! { "insert": COLLECTION, "documents": documents, "ordered": ordered };
        same(&mut sides, &insert(vec![parallel(id, 1)]))?;
        same(&mut sides, &insert(vec![parallel(id, 1), other(id + 1)]))?;
        same(
            &mut sides,
            &insert(vec![other(id + 2), parallel(id, 1), other(id + 3), parallel(0, 2)]),
        )?;
        let mut retryable = insert(vec![parallel(id, 1), other(id + 4)]);
        retryable.extend(doc! { "lsid": lsid("parallel"), "txnNumber": i64::from(number) });
        same(&mut sides, &retryable)?;
        same(&mut sides, &retryable)?;
    }
    let change = doc! { "$set": { "a": elements(), "b": { "c": elements() } } };
    for filter in [doc! { "_id": 0 }, doc! { "a": 0 }] {
        let statement = doc! { "q": &filter, "u": &change };
        same(&mut sides, &doc! { "update": COLLECTION, "updates": [statement] })?;
        same(
            &mut sides,
            &doc! { "findAndModify": COLLECTION, "query": &filter, "update": &change },
        )?;
    }
    Ok(())
}

#[test]
fn a_document_with_two_arrays_is_refused_in_a_transaction() -> Result<()> {
    let mut sides = sides()?;
    sides.alike(&index())?;
    let documents = [doc! { "_id": 1, "k": 2, "a": 1 }, parallel(2, 1)];
    let insert = doc! { "insert": COLLECTION, "documents": documents.to_vec() };
    for (connection, database) in [
        (&mut sides.plain, format!("{}_n", sides.database)),
        (&mut sides.shaped, format!("{}_s", sides.database)),
    ] {
        let mut transaction = Transaction::new(&database, &database);
        let reply = transaction.run(connection, &insert)?;
        let error = reply.get_array("writeErrors")?.first().and_then(Bson::as_document);
        let code = error.and_then(|error| error.get_i32("code").ok());
        ensure!(code == Some(CANNOT_INDEX_PARALLEL_ARRAYS), "{reply}");
        let committed = transaction.end(connection, "commitTransaction")?;
        ensure!(committed.get_i32("code").ok() == Some(251), "{committed}");
    }
    sides.check()
}

#[test]
fn an_index_is_not_created_over_a_document_with_two_arrays() -> Result<()> {
    let mut sides = sides()?;
    sides.alike(&doc! { "insert": COLLECTION, "documents": [parallel(1, 1)] })?;
    same(&mut sides, &index())
}
