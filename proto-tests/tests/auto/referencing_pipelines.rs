//! Pipelines on other collections, which are stored in a pattern or plain. They reference the collection with
//! the automatic shape. Nothing of them is executed on a layout for which it was not planned.

use std::time::Duration;

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::{Outlier, Shape, mongod};

use super::commands::code;
use super::fixture::{COLLECTION, CutOver, Fixture, automatic, item, shape};

/// The collections of such pipelines: in buckets, with outliers, and plain.
pub(super) const SOURCES: [&str; 3] = ["orders", "sales", "other"];
/// Another collection with an automatic shape.
const SECOND: &str = "second";
const KEYS: i32 = 3;
/// Documents of each source.
const MANY: i32 = 30;
/// Items of each key.
const ITEMS_OF_KEY: usize = 4;
/// `QueryPlanKilled` and `CursorNotFound`.
const ENDED: [Option<i32>; 2] = [Some(175), Some(43)];

/// The tables of the sources, and of the second automatic shape.
pub(super) fn other_shapes(database: &str) -> String {
    let [orders, sales, _] = SOURCES.map(|source| format!("{database}.{source}"));
    let second = format!("{database}.{SECOND}");
    Shape::new(&["k"]).toml(&orders) + &Outlier::new("list", (3, 3)).toml(&sales) + &automatic(&shape(), &second)
}

/// Plain documents in the collection, and documents in the sources.
fn filled() -> Result<Fixture> {
    let mongod = mongod::shared_replica_set();
    let fixture = Fixture::with_others(mongod, &mongod.uri(), other_shapes)?;
    let items = (0..).zip(0..KEYS * i32::try_from(ITEMS_OF_KEY)?);
    let items: Vec<Document> = items.map(|(second, id)| item(id, id % KEYS, second)).collect();
    fixture.store_plain(&items)?;
    for source in SOURCES {
        let documents: Vec<Document> = (0..MANY).map(|id| doc! { "_id": id, "k": id % KEYS }).collect();
        let inserted = fixture.run(0, doc! { "insert": source, "documents": documents })?;
        ensure!(inserted.get_i32("n")? == MANY, "{inserted}");
    }
    Ok(fixture)
}

/// Joins the items of each document's key.
fn joined(source: &str) -> Document {
    let lookup = doc! { "from": COLLECTION, "localField": "k", "foreignField": "k", "as": "items" };
    let pipeline = vec![doc! { "$lookup": lookup }];
    doc! { "aggregate": source, "pipeline": pipeline, "cursor": { "batchSize": 2 } }
}

/// Fails unless a document has been joined with plain items. Returns the id of the cursor.
fn first_batch(reply: &Document) -> Result<i64> {
    ensure!(code(reply).is_none(), "{reply}");
    let cursor = reply.get_document("cursor")?;
    let batch = cursor.get_array("firstBatch")?;
    ensure!(batch.len() == 2, "{reply}");
    for document in batch.iter().filter_map(Bson::as_document) {
        let items = document.get_array("items")?;
        let are_items = items.iter().all(|item| {
            let item = item.as_document();
            item.is_some_and(|item| item.get("k") == document.get("k") && item.contains_key("at"))
        });
        ensure!(items.len() == ITEMS_OF_KEY && are_items, "{document}");
    }
    Ok(cursor.get_i64("id")?)
}

#[test]
fn cursors_end_with_the_collection_that_their_pipeline_references() -> Result<()> {
    let fixture = filled()?;
    for source in SOURCES {
        for _ in 0..2 {
            let has_pages = fixture.has_pages()?;
            let id = first_batch(&fixture.run(0, joined(source))?)?;
            ensure!(id != 0, "{source}: no cursor");
            fixture.convert(Duration::ZERO, CutOver::Done)?;
            let reply = fixture.run(0, doc! { "getMore": id, "collection": source })?;
            ensure!(ENDED.contains(&code(&reply)), "{source}, pages {has_pages}: {reply}");
        }
    }
    Ok(())
}

/// The references of such a cursor are in the memory of the proxy that opened it.
#[test]
fn another_proxy_does_not_find_such_cursors() -> Result<()> {
    let fixture = filled()?;
    for source in SOURCES {
        let id = first_batch(&fixture.run(0, joined(source))?)?;
        let more = doc! { "getMore": id, "collection": source, "batchSize": 2 };
        let reply = fixture.run(0, more.clone())?;
        ensure!(code(&reply).is_none(), "{source}: {reply}");
        ensure!(reply.get_document("cursor")?.get_i64("id")? == id, "{source}: {reply}");
        fixture.convert(Duration::ZERO, CutOver::Done)?;
        let reply = fixture.run(1, more.clone())?;
        ensure!(code(&reply) == Some(43), "{source}: {reply}");
        let reply = fixture.run(0, more)?;
        ensure!(ENDED.contains(&code(&reply)), "{source}: {reply}");
    }
    Ok(())
}

#[test]
fn any_proxy_kills_such_cursors() -> Result<()> {
    let fixture = filled()?;
    let find = doc! { "find": "other", "batchSize": 1 };
    for (number, source) in SOURCES.into_iter().cycle().take(6).enumerate() {
        let id = first_batch(&fixture.run(0, joined(source))?)?;
        let plain = fixture.run(0, find.clone())?;
        let plain = plain.get_document("cursor")?.get_i64("id")?;
        let kill = doc! { "killCursors": source, "cursors": [id, plain, 1_i64, -2_i64] };
        let reply = fixture.run(number, kill.clone())?;
        let [killed, missing] = ["cursorsKilled", "cursorsNotFound"].map(|list| reply.get_array(list));
        ensure!(*killed? == [Bson::Int64(id), Bson::Int64(plain)], "{source}: {reply}");
        ensure!(*missing? == [Bson::Int64(1), Bson::Int64(-2)], "{source}: {reply}");
        let reply = fixture.run(0, doc! { "getMore": id, "collection": source })?;
        ensure!(code(&reply) == Some(43), "{source}: {reply}");
    }
    Ok(())
}

/// A pipeline on the collection itself, which the proxy knows from before the exchange.
#[test]
fn a_pipeline_on_an_exchanged_collection_is_executed_again() -> Result<()> {
    let fixture = filled()?;
    let lookup = doc! { "from": "orders", "localField": "k", "foreignField": "k", "as": "orders" };
    let stages = vec![doc! { "$lookup": lookup }, doc! { "$count": "n" }];
    let joins = doc! { "aggregate": COLLECTION, "pipeline": stages, "cursor": {} };
    for _ in 0..3 {
        let reply = fixture.run(0, joins.clone())?;
        ensure!(code(&reply).is_none(), "{reply}");
        let batch = reply.get_document("cursor")?.get_array("firstBatch")?;
        let count = batch.first().and_then(|first| first.as_document()?.get_i32("n").ok());
        ensure!(count == Some(KEYS * i32::try_from(ITEMS_OF_KEY)?), "{reply}");
        fixture.convert(Duration::ZERO, CutOver::Done)?;
    }
    Ok(())
}

#[test]
fn a_command_may_name_the_uuid() -> Result<()> {
    let fixture = filled()?;
    let list = doc! { "listCollections": 1, "filter": { "name": COLLECTION } };
    let listed = fixture.past(list)?;
    let listed = listed.get_document("cursor")?.get_array("firstBatch")?;
    let info = listed
        .first()
        .and_then(|first| first.as_document()?.get_document("info").ok());
    let uuid = info.and_then(|info| info.get("uuid")).cloned().unwrap_or_default();
    for (uuid, expected) in [(uuid, None), (Bson::from(bson::Uuid::new()), Some(361))] {
        for command in [
            doc! { "find": COLLECTION, "collectionUUID": &uuid },
            doc! { "insert": COLLECTION, "documents": [{ "k": 1 }], "collectionUUID": &uuid },
        ] {
            let reply = fixture.run(0, command.clone())?;
            let of_statement = reply
                .get_array("writeErrors")
                .ok()
                .and_then(|errors| errors.first()?.as_document());
            let found = of_statement
                .and_then(|error| error.get_i32("code").ok())
                .or_else(|| code(&reply));
            ensure!(found == expected, "{command}: {reply}");
        }
    }
    Ok(())
}

/// The proxy does not know of the exchange, and checks the collection as the one that it knew.
#[test]
fn an_error_of_the_former_layout_is_not_returned() -> Result<()> {
    let fixture = filled()?;
    for source in SOURCES {
        fixture.convert(Duration::ZERO, CutOver::Done)?;
        ensure!(fixture.has_pages()?, "not converted");
        first_batch(&fixture.run(0, joined(source))?)?;
        // The layout of another collection becomes known, so checked collections are forgotten.
        for command in [doc! { "create": SECOND }, doc! { "drop": SECOND }] {
            fixture.past(command)?;
            fixture.run(0, doc! { "find": SECOND })?;
        }
        fixture.convert(Duration::ZERO, CutOver::Done)?;
        first_batch(&fixture.run(0, joined(source))?)?;
    }
    Ok(())
}
