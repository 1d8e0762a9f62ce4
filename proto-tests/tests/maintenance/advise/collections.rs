//! Typical collections: two that suit a shape, and ten that do not.

use anyhow::Result;
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, bson, doc};
use mongodb::IndexModel;
use proto_tests::raw::Connection;

pub(crate) const TRADES: &str = "trades";
pub(crate) const BOOKS: &str = "books";
/// Stands in every document, and must stand in nothing that is printed.
pub(crate) const SECRET: &str = "PLANTED";
/// How many trades there are, of 30 customers.
pub(crate) const TRADES_THERE: i32 = 6000;
/// Documents of a command.
const BATCH: usize = 2000;

/// Makes all of them.
pub(crate) fn fill(direct: &mut Connection, database: &str) -> Result<()> {
    add_trades(direct, database)?;
    let at = |number: i32| DateTime::from_millis(1_700_000_000_000 + 60_000 * i64::from(number));
    let books = (0..1500).map(|number| {
        let buyers = if number % 300 == 0 { 1000 } else { 10 + number % 20 };
        let buyers: Vec<Bson> = (0..buyers).map(|buyer| bson!(format!("{SECRET}{buyer}"))).collect();
        doc! { "_id": number, "title": SECRET, "buyers": buyers }
    });
    insert(direct, database, (BOOKS, books.collect()))?;
    let users =
        (0..2000).map(|number| doc! { "_id": number, "email": format!("{SECRET}{number}"), "group": number % 9 });
    insert(direct, database, ("users", users.collect()))?;
    index(
        direct,
        database,
        ("users", doc! { "email": 1 }, doc! { "unique": true, "sparse": true }),
    )?;
    let sessions = (0..2000).map(|number| doc! { "_id": number, "userId": number, "at": at(number), "token": SECRET });
    insert(direct, database, ("sessions", sessions.collect()))?;
    index(direct, database, ("sessions", doc! { "userId": 1, "at": 1 }, doc! {}))?;
    let countries =
        (0..2000).map(|number| doc! { "_id": number, "country": number % 40, "born": at(number), "name": SECRET });
    insert(direct, database, ("countries", countries.collect()))?;
    index(direct, database, ("countries", doc! { "country": 1 }, doc! {}))?;
    let blobs = (0..1000).map(|number| doc! { "_id": number, "k": number % 5, "data": SECRET.repeat(1500) });
    insert(direct, database, ("blobs", blobs.collect()))?;
    let item = || doc! { "what": SECRET };
    let pages = (0..1100).map(|number| {
        let history = [item(), item()].to_vec();
        doc! { "_id": format!("{number}_{SECRET}"), "k": number, "count": 2, "history": history }
    });
    insert(direct, database, ("pages", pages.collect()))?;
    insert(
        direct,
        database,
        ("few", (0..3).map(|number| doc! { "_id": number, "k": 1 }).collect()),
    )?;
    let created = [
        doc! { "create": "capped", "capped": true, "size": 65536 },
        doc! { "create": "view", "viewOn": TRADES, "pipeline": [] },
        doc! { "create": "weather", "timeseries": { "timeField": "at" } },
        doc! { "create": "validated", "validator": { "k": { "$ne": SECRET } } },
    ];
    for mut created in created {
        created.insert("$db", database);
        direct.command_ok(&created)?;
    }
    Ok(())
}

/// The trades, and their index; also through a proxy.
pub(crate) fn add_trades(direct: &mut Connection, database: &str) -> Result<()> {
    insert(direct, database, (TRADES, trades()))?;
    index(direct, database, (TRADES, doc! { "customerId": 1, "date": 1 }, doc! {}))
}

/// 40 MB in many documents, and 40 MB in few.
pub(crate) fn add_large(direct: &mut Connection, database: &str) -> Result<()> {
    let event = |number: i32| {
        let at = DateTime::from_millis(1_700_000_000_000 + i64::from(number));
        doc! { "_id": number, "device": number % 100, "at": at, "data": SECRET.repeat(130) }
    };
    insert(direct, database, ("events", (0..40_000).map(event).collect()))?;
    for keys in [doc! { "device": 1, "at": -1 }, doc! { "at": 1 }] {
        index(direct, database, ("events", keys, doc! {}))?;
    }
    for number in 0..40 {
        let file = doc! { "_id": number, "data": SECRET.repeat(140_000) };
        insert(direct, database, ("files", vec![file]))?;
    }
    Ok(())
}

/// 200 of each of 30 customers.
pub(crate) fn trades() -> Vec<Document> {
    let trade = |number: i32| {
        let date = DateTime::from_millis(1_700_000_000_000 + 1000 * i64::from(number));
        doc! {
            "_id": ObjectId::new(), "customerId": number % 30, "date": date, "ticker": SECRET, "quantity": number % 100,
        }
    };
    (0..TRADES_THERE).map(trade).collect()
}

pub(crate) fn trades_index() -> IndexModel {
    IndexModel::builder().keys(doc! { "customerId": 1, "date": 1 }).build()
}

fn insert(direct: &mut Connection, database: &str, (collection, documents): (&str, Vec<Document>)) -> Result<()> {
    for batch in documents.chunks(BATCH) {
        let reply = direct.command_ok(&doc! { "insert": collection, "documents": batch.to_vec(), "$db": database })?;
        anyhow::ensure!(!reply.contains_key("writeErrors"), "{reply}");
    }
    Ok(())
}

fn index(
    direct: &mut Connection,
    database: &str,
    (collection, key, options): (&str, Document, Document),
) -> Result<()> {
    let name: Vec<&str> = key.keys().map(String::as_str).collect();
    let mut index = doc! { "name": format!("{}_1", name.join("_1_")), "key": key };
    index.extend(options);
    direct.command_ok(&doc! { "createIndexes": collection, "indexes": [index], "$db": database })?;
    Ok(())
}
