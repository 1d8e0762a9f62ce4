//! `drop` and `dropDatabase`, and the collection catalog afterwards.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::mongod;

use super::{Both, graph, servers};

#[test]
fn drop_removes_the_items_view() -> Result<()> {
    for mongod in servers() {
        let mut both = Both::filled(mongod)?;
        both.same(|_| doc! { "insert": "plain", "documents": [{ "_id": 1 }] })?;
        both.needs_view("plain", "items")?;
        both.same(|_| doc! { "drop": "items" })?;
        ensure!(!both.is_stored("items.mongoshape_items")?);
        both.needs_view("plain", "items")?;
        both.same(|_| doc! { "drop": "items" })?;
        both.same(|_| doc! { "drop": "never_there" })?;
        both.same(|_| doc! { "drop": "short", "nonsense": 1 })?;
        both.listed(&doc! {}, None)?;
    }
    Ok(())
}

#[test]
fn a_view_that_reads_items_reads_them_after_a_drop_too() -> Result<()> {
    let mut both = Both::filled(mongod::shared())?;
    both.same(|_| doc! { "insert": "plain", "documents": [{ "_id": 1 }, { "_id": 2 }] })?;
    both.same(|_| doc! { "create": "seen", "viewOn": "plain", "pipeline": [graph("items")] })?;
    both.same(|_| doc! { "drop": "items" })?;
    ensure!(both.is_stored("items.mongoshape_items")?);
    let read = |_: &str| doc! { "aggregate": "seen", "pipeline": [{ "$project": { "n": { "$size": "$found" } } }], "cursor": {} };
    both.same(read)?;
    both.insert("items", 12)?;
    both.same(read)?;
    both.same(|_| doc! { "drop": "seen" })?;
    both.same(|_| doc! { "drop": "items" })?;
    ensure!(!both.is_stored("items.mongoshape_items")?);
    both.listed(&doc! { "filter": { "name": { "$ne": "system.views" } } }, None)
}

/// One proxy drops the items view while another creates a view that needs it.
#[test]
fn view_created_during_a_drop_reads_later_documents() -> Result<()> {
    let mut both = Both::filled(mongod::shared())?;
    both.same(|_| doc! { "insert": "plain", "documents": [{ "_id": 1 }, { "_id": 2 }] })?;
    let database = both.shaped_database();
    let create = doc! { "create": "seen", "viewOn": "plain", "pipeline": [graph("items")], "$db": &database };
    let drop = doc! { "drop": "items", "$db": &database };
    for round in 0..60 {
        both.needs_view("plain", "items")?;
        let (creating, dropping) = (&mut both.shaped, &mut both.second);
        let [created, dropped] = thread::scope(|scope| {
            let creating = scope.spawn(|| creating.command(&create));
            let dropping = scope.spawn(|| {
                thread::sleep(Duration::from_micros(round * 100));
                dropping.command(&drop)
            });
            [creating.join(), dropping.join()].map(|ended| ended.expect("no panic"))
        });
        for reply in [created?, dropped?] {
            ensure!(reply.get_f64("ok")? > 0.5, "{reply}");
        }
        ensure!(both.is_stored("items.mongoshape_items")?, "round {round}");
        both.shaped.command_ok(&doc! { "drop": "seen", "$db": &database })?;
        both.plain
            .command_ok(&doc! { "drop": "items", "$db": &both.names()[0] })?;
        both.insert("items", 3)?;
    }
    Ok(())
}

/// Reads of all kinds, which must find the same on either side.
fn reads() -> Vec<Document> {
    vec![
        doc! { "find": "items", "filter": { "k": 1 }, "sort": { "at": 1 }, "limit": 3 },
        doc! { "find": "items", "filter": { "k": 1 }, "hint": "_id_", "sort": { "at": 1 } },
        doc! { "find": "items", "filter": { "k": 1 }, "hint": "nope" },
        doc! { "count": "items" },
        doc! { "count": "items", "query": { "k": 1 }, "hint": "nope" },
        doc! { "distinct": "items", "key": "k" },
        doc! { "aggregate": "items", "pipeline": [{ "$group": { "_id": Bson::Null, "n": { "$sum": 1 } } }], "cursor": {} },
    ]
}

#[test]
fn drop_database_clears_the_collection_catalog() -> Result<()> {
    for mongod in servers() {
        let mut both = Both::filled(mongod)?;
        let [_, database] = both.names();
        // Both proxies have found it ready, and have written one of its keys.
        let insert = |id: i32| doc! { "insert": "items", "documents": [{ "_id": id, "k": 1, "at": bson::DateTime::from_millis(i64::from(id) * 1_000) }] };
        let read_all = |both: &mut Both| reads().iter().try_for_each(|read| both.same_read(read));
        both.through_second(|both| both.same(|_| insert(1_000)))?;
        for drop in ["dropDatabase", "drop"] {
            let value: Bson = if drop == "drop" { "items".into() } else { 1.into() };
            both.same(|_| doc! { drop: value.clone() })?;
            read_all(&mut both)?;
            both.through_second(read_all)?;
            both.through_second(|both| both.same(|_| doc! { "create": "items" }))?;
            let indexes = both.stored.all(&doc! { "listIndexes": "items", "$db": &database })?;
            ensure!(indexes.len() == 6 + 1, "{indexes:?}");
            both.same(|_| doc! { drop: value.clone() })?;
            both.through_second(|both| both.same(|_| insert(1)))?;
            both.same(|_| insert(2))?;
            both.same(|_| insert(1))?;
            read_all(&mut both)?;
            both.through_second(read_all)?;
        }
    }
    Ok(())
}
