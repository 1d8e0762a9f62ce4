//! The index on the reference is recreated with the extras after any client has dropped it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::mongod;
use proto_tests::raw::Connection;
use proto_tests::sessions::Transaction;

use crate::scene::{BOOKS, EXTRAS, Scene, buyers, on_each, wooden_amulet};

const ARRAY: &str = "customers_purchased";
const REFERENCE: &str = "book_id";

/// Whether there are extras that have it.
fn is_indexed(scene: &mut Scene) -> Result<bool> {
    let reply = scene
        .direct
        .command(&doc! { "listIndexes": EXTRAS, "$db": &scene.database })?;
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

/// Each way in which a book gets its first page, but for an insert: what is there before, and the command.
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
    scene: &mut Scene,
    (address, drop): (SocketAddr, &Document),
    (before, first): (Option<Document>, Document),
) -> Result<()> {
    let context = format!("{drop}, then {first}");
    scene.run(another_book(3))?;
    ensure!(is_indexed(scene)?, "{context}: no index to begin with");
    Connection::open(address)?.command_ok(drop)?;
    ensure!(!is_indexed(scene)?, "{context}: nothing was dropped");
    if let Some(before) = before {
        scene.run(before)?;
    }
    ensure!(!is_indexed(scene)?, "{context}: that was no first page");
    scene.run(first)?;
    ensure!(is_indexed(scene)?, "{context}: no index");
    ensure!(!scene.stored(EXTRAS)?.is_empty(), "{context}: no page");
    scene.run(doc! { "delete": BOOKS, "deletes": [{ "q": {}, "limit": 0 }] })?;
    Ok(())
}

#[test]
fn extras_index_is_recreated_after_a_drop_by_any_client() -> Result<()> {
    on_each(|scene| {
        let other = scene.another_proxy()?;
        let mongod = scene.direct.stream().peer_addr()?;
        let whole = doc! { "dropDatabase": 1, "$db": &scene.database };
        let books = doc! { "drop": BOOKS, "$db": &scene.database };
        let index = doc! { "dropIndexes": EXTRAS, "index": "*", "$db": &scene.database };
        for address in [scene.proxy.address(), other.address(), mongod] {
            is_there_again(scene, (address, &whole), (None, insert(60)))?;
        }
        for address in [scene.proxy.address(), other.address()] {
            is_there_again(scene, (address, &books), (None, insert(60)))?;
        }
        is_there_again(scene, (mongod, &index), (None, insert(60)))
    })
}

#[test]
fn extras_index_is_recreated_by_every_kind_of_first_page_write() -> Result<()> {
    on_each(|scene| {
        let whole = doc! { "dropDatabase": 1, "$db": &scene.database };
        let mongod = scene.direct.stream().peer_addr()?;
        let mut first_pages = first_pages().into_iter();
        first_pages.try_for_each(|first| is_there_again(scene, (mongod, &whole), first))
    })
}

/// The index cannot be made while the transaction that has read extras is open.
#[test]
fn transaction_does_not_wait_for_an_index_build_that_waits_for_it() -> Result<()> {
    let mut scene = Scene::on(mongod::shared_replica_set())?;
    scene.run(doc! { "insert": BOOKS, "documents": [wooden_amulet(60)] })?;
    scene
        .direct
        .command_ok(&doc! { "dropIndexes": EXTRAS, "index": "*", "$db": &scene.database })?;
    let mut transaction = Transaction::new("index", &scene.database);
    transaction.run(&mut scene.application, &doc! { "find": BOOKS })?;
    let insert = another_book(3);
    let begun = Instant::now();
    let reply = transaction.run(&mut scene.application, &insert)?;
    ensure!(reply.get_i32("n").is_ok_and(|n| n == 1), "{reply}");
    let reply = transaction.end(&mut scene.application, "commitTransaction")?;
    ensure!(reply.get_f64("ok")? > 0.0, "{reply}");
    // mongod would end a transaction that waits for itself after a minute.
    ensure!(
        begun.elapsed() < Duration::from_secs(20),
        "it took {:?}",
        begun.elapsed()
    );
    ensure!(!is_indexed(&mut scene)?, "the transaction was in nobody's way");
    scene.run(another_book(4))?;
    ensure!(is_indexed(&mut scene)?, "the next one has not made it");
    Ok(())
}
