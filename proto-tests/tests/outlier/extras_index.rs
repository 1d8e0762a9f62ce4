//! The index on the reference is recreated with the extras after any client has dropped it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::mongod;
use proto_tests::raw::Connection;
use proto_tests::sessions::Transaction;

use crate::fixture::{BOOKS, EXTRAS, Fixture, buyers, on_each, wooden_amulet};

const ARRAY: &str = "customers_purchased";
const REFERENCE: &str = "book_id";

/// Whether there are extras that have it.
fn is_indexed(fixture: &mut Fixture) -> Result<bool> {
    let reply = fixture
        .direct
        .command(&doc! { "listIndexes": EXTRAS, "$db": &fixture.database })?;
    let Ok(cursor) = reply.get_document("cursor") else {
        ensure!(reply.get_str("codeName")? == "NamespaceNotFound", "{reply}");
        return Ok(false);
    };
    let indexes = cursor.get_array("firstBatch")?.iter().filter_map(Bson::as_document);
    let first = |index: &Document| index.get_document("key").ok()?.keys().next().cloned();
    Ok(indexes.filter_map(first).any(|name| name == REFERENCE))
}

/// A book that has extras.
fn another_book(id: i32) -> Document {
    doc! { "insert": BOOKS, "documents": [{ "_id": id, ARRAY: buyers(0..60) }] }
}

/// The book of the examples.
fn insert(count: usize) -> Document {
    doc! { "insert": BOOKS, "documents": [wooden_amulet(count)] }
}

/// The commands, but for an insert, that give a book its first page, each with the document before it.
fn first_pages() -> Vec<(Option<Document>, Document)> {
    let update =
        |change: Document| doc! { "update": BOOKS, "updates": [{ "q": { "_id": 2 }, "u": change, "upsert": true }] };
    let modify =
        |change: Document| doc! { "findAndModify": BOOKS, "query": { "_id": 2 }, "update": change, "upsert": true };
    let many = doc! { "$push": { ARRAY: { "$each": buyers(0..60) } } };
    vec![
        (None, update(many.clone())),
        (None, modify(many)),
        (Some(insert(50)), update(doc! { "$push": { ARRAY: "user50" } })),
        (Some(insert(50)), update(wooden_amulet(60))),
        (Some(insert(50)), modify(wooden_amulet(60))),
    ]
}

/// Drops what is there with a command at that address, then gives a book its first page: the index is there.
fn is_there_again(
    fixture: &mut Fixture,
    (address, drop): (SocketAddr, &Document),
    (before, first): (Option<Document>, Document),
) -> Result<()> {
    let context = format!("{drop}, then {first}");
    fixture.run(another_book(3))?;
    ensure!(is_indexed(fixture)?, "{context}: no index to begin with");
    Connection::open(address)?.command_ok(drop)?;
    ensure!(!is_indexed(fixture)?, "{context}: nothing was dropped");
    if let Some(before) = before {
        fixture.run(before)?;
    }
    ensure!(!is_indexed(fixture)?, "{context}: that was no first page");
    fixture.run(first)?;
    ensure!(is_indexed(fixture)?, "{context}: no index");
    ensure!(!fixture.stored(EXTRAS)?.is_empty(), "{context}: no page");
    fixture.run(doc! { "delete": BOOKS, "deletes": [{ "q": {}, "limit": 0 }] })?;
    Ok(())
}

#[test]
fn extras_index_is_recreated_after_a_drop_by_any_client() -> Result<()> {
    on_each(|fixture| {
        let other = fixture.another_proxy()?;
        let mongod = fixture.direct.stream().peer_addr()?;
        let whole = doc! { "dropDatabase": 1, "$db": &fixture.database };
        let books = doc! { "drop": BOOKS, "$db": &fixture.database };
        let index = doc! { "dropIndexes": EXTRAS, "index": "*", "$db": &fixture.database };
        for address in [fixture.proxy.address(), other.address(), mongod] {
            is_there_again(fixture, (address, &whole), (None, insert(60)))?;
        }
        for address in [fixture.proxy.address(), other.address()] {
            is_there_again(fixture, (address, &books), (None, insert(60)))?;
        }
        is_there_again(fixture, (mongod, &index), (None, insert(60)))
    })
}

#[test]
fn extras_index_is_recreated_by_every_kind_of_first_page_write() -> Result<()> {
    on_each(|fixture| {
        let whole = doc! { "dropDatabase": 1, "$db": &fixture.database };
        let mongod = fixture.direct.stream().peer_addr()?;
        let mut first_pages = first_pages().into_iter();
        first_pages.try_for_each(|first| is_there_again(fixture, (mongod, &whole), first))
    })
}

/// The index cannot be made while the transaction that has read extras is open.
#[test]
fn transaction_does_not_wait_for_an_index_build_that_waits_for_it() -> Result<()> {
    let mut fixture = Fixture::on(mongod::shared_replica_set())?;
    fixture.run(doc! { "insert": BOOKS, "documents": [wooden_amulet(60)] })?;
    fixture
        .direct
        .command_ok(&doc! { "dropIndexes": EXTRAS, "index": "*", "$db": &fixture.database })?;
    let mut transaction = Transaction::new("index", &fixture.database);
    transaction.run(&mut fixture.application, &doc! { "find": BOOKS })?;
    let insert = another_book(3);
    let begun = Instant::now();
    let reply = transaction.run(&mut fixture.application, &insert)?;
    ensure!(reply.get_i32("n").is_ok_and(|n| n == 1), "{reply}");
    let reply = transaction.end(&mut fixture.application, "commitTransaction")?;
    ensure!(reply.get_f64("ok")? > 0.0, "{reply}");
    // mongod would end a transaction that waits for itself after a minute.
    ensure!(
        begun.elapsed() < Duration::from_secs(20),
        "it took {:?}",
        begun.elapsed()
    );
    ensure!(
        !is_indexed(&mut fixture)?,
        "the transaction did not delay the creation of the index"
    );
    fixture.run(another_book(4))?;
    ensure!(is_indexed(&mut fixture)?, "the next one has not made it");
    Ok(())
}
