//! Tails of a connection: reads include them at once, and they are spilled when the connection pauses or
//! closes.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;

use crate::fixture::{BOOKS, EXTRAS, Fixture, buyers, on_each, typical, wooden_amulet};

/// A push of one buyer to the book of that `_id`.
fn push(id: i32, number: usize) -> Document {
    let pushed = doc! { "$push": { "customers_purchased": format!("user{number:02}") } };
    doc! { "update": BOOKS, "updates": [{ "q": { "_id": id }, "u": pushed }] }
}

/// An outlier of 60 buyers that is in the proxy's cache: one more element was pushed, and spilled.
fn known(fixture: &mut Fixture) -> Result<()> {
    fixture.run(doc! { "insert": BOOKS, "documents": [typical(), wooden_amulet(60)] })?;
    fixture.run(push(2, 60))?;
    fixture.rest()
}

#[test]
fn reads_include_the_tail() -> Result<()> {
    on_each(|fixture| {
        known(fixture)?;
        let (_proxy, mut base) = fixture.of_bases()?;
        let mut other = fixture.another()?;
        let mut first = wooden_amulet(50);
        first.insert("has_extras", true);
        for number in 61..130 {
            fixture.run(push(2, number))?;
            let database = fixture.database.clone();
            let seen = other.find(&database, BOOKS, doc! { "_id": 2 })?;
            ensure!(seen == [wooden_amulet(number + 1)], "{number}: {seen:?}");
            let last = doc! { "customers_purchased": format!("user{number:02}"), "_id": 2 };
            let seen = fixture.find(last)?;
            ensure!(seen == [wooden_amulet(number + 1)], "{number}: {seen:?}");
            let seen = base.find(&database, BOOKS, doc! { "_id": 2 })?;
            ensure!(seen == [first.clone()], "{number}: {seen:?}");
        }
        fixture.rest()?;
        ensure!(fixture.stored(EXTRAS)?[0].get_array("customers_purchased_extra")? == &buyers(50..130));
        Ok(())
    })
}

#[test]
fn client_disconnect_leaves_no_tail() -> Result<()> {
    on_each(|fixture| {
        known(fixture)?;
        let mut other = fixture.another()?;
        let mut last = push(2, 61);
        last.insert("$db", &fixture.database);
        other.command_ok(&last)?;
        drop(other);
        fixture.rest()
    })
}

#[test]
fn a_connection_leaves_tails_of_many_documents() -> Result<()> {
    on_each(|fixture| {
        let books = (0..100).map(|id| {
            let mut book = wooden_amulet(60);
            book.insert("_id", id);
            book
        });
        fixture.run(doc! { "insert": BOOKS, "documents": books.collect::<Vec<_>>() })?;
        for number in 60..63 {
            let pushes: Vec<_> = (0..100)
                .map(|id| push(id, number).get_array("updates").map(|updates| updates[0].clone()))
                .collect::<Result<_, _>>()?;
            let reply = fixture.run(doc! { "update": BOOKS, "updates": pushes })?;
            ensure!(reply.get_i32("nModified")? == 100, "{reply}");
        }
        let seen = fixture.find(doc! {})?;
        let are_whole = |book: &Document| {
            let found = book.get_array("customers_purchased");
            found.is_ok_and(|found| *found == buyers(0..63))
        };
        ensure!(seen.len() == 100 && seen.iter().all(are_whole));
        fixture.rest()
    })
}

#[test]
fn a_document_that_is_gone_has_no_pages() -> Result<()> {
    on_each(|fixture| {
        let mut other = fixture.another()?;
        for _ in 0..20 {
            fixture.run(doc! { "insert": BOOKS, "documents": [wooden_amulet(60)] })?;
            fixture.run(push(2, 60))?;
            fixture.run(push(2, 61))?;
            let delete =
                doc! { "delete": BOOKS, "deletes": [{ "q": { "_id": 2 }, "limit": 1 }], "$db": &fixture.database };
            ensure!(other.command_ok(&delete)?.get_i32("n")? == 1);
        }
        fixture.rest()?;
        ensure!(fixture.stored(EXTRAS)?.is_empty());
        fixture.run(doc! { "insert": BOOKS, "documents": [wooden_amulet(60)] })?;
        for number in 60..70 {
            fixture.run(push(2, number))?;
        }
        other.command_ok(&doc! { "drop": BOOKS, "$db": &fixture.database })?;
        fixture.rest()?;
        ensure!(fixture.stored(EXTRAS)?.is_empty());
        Ok(())
    })
}

/// A transaction that holds the document does not hold a connection that has left its tail.
#[test]
fn a_tail_does_not_wait_for_a_transaction() -> Result<()> {
    let mut fixture = Fixture::on(proto_tests::mongod::shared_replica_set())?;
    known(&mut fixture)?;
    let database = fixture.database.clone();
    let lsid = lsid("tails");
    let in_transaction = |other: &mut Connection, transaction: usize, mut command: Document| -> Result<()> {
        command.extend(doc! { "lsid": &lsid, "txnNumber": i64::try_from(transaction)?, "autocommit": false });
        other.command_ok(&command).map(|_| ())
    };
    let mut other = fixture.another()?;
    let year = doc! { "q": { "_id": 2 }, "u": { "$inc": { "year": 1 } } };
    // Behind the push, before the pause: tried until it is so.
    let mut number = 61;
    loop {
        fixture.run(push(2, number))?;
        number += 1;
        let begin = doc! { "update": BOOKS, "updates": [&year], "startTransaction": true, "$db": &database };
        in_transaction(&mut other, number, begin)?;
        let stored = fixture.stored(BOOKS)?;
        let control = stored[1].get_document("has_extras_control")?;
        if !control.get_array("tail")?.is_empty() {
            break;
        }
        in_transaction(&mut other, number, doc! { "abortTransaction": 1, "$db": "admin" })?;
        ensure!(number < 200, "the tail is always moved before a transaction begins");
    }
    std::thread::sleep(Duration::from_millis(30));
    let started = Instant::now();
    fixture.application.command_ok(&doc! { "ping": 1, "$db": "admin" })?;
    ensure!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    in_transaction(&mut other, number, doc! { "commitTransaction": 1, "$db": "admin" })?;
    let mut book = wooden_amulet(number + 1);
    book.insert("year", 2024);
    fixture.run(push(2, number))?;
    ensure!(fixture.find(doc! { "_id": 2 })? == [book]);
    fixture.rest()
}

/// A client's write that bypasses the collection's validator is completed.
#[test]
fn tails_are_moved_past_a_validator() -> Result<()> {
    on_each(|fixture| {
        fixture.run(doc! { "create": BOOKS, "validator": { "year": { "$lt": 2000 } } })?;
        let books = [typical(), wooden_amulet(60)];
        fixture.run(doc! { "insert": BOOKS, "documents": books, "bypassDocumentValidation": true })?;
        for number in 60..100 {
            let mut push = push(2, number);
            push.insert("bypassDocumentValidation", true);
            fixture.run(push)?;
        }
        fixture.rest()?;
        ensure!(fixture.find(doc! { "_id": 2 })? == [wooden_amulet(100)]);
        Ok(())
    })
}
