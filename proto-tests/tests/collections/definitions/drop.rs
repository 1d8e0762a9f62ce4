//! `drop` and `dropDatabase`, and the collection catalog afterwards.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::mongod;

use super::{Comparison, graph, servers};

#[test]
fn drop_removes_the_items_view() -> Result<()> {
    for mongod in servers() {
        let mut comparison = Comparison::filled(mongod)?;
        comparison.same(|_| doc! { "insert": "plain", "documents": [{ "_id": 1 }] })?;
        comparison.needs_view("plain", "items")?;
        comparison.same(|_| doc! { "drop": "items" })?;
        ensure!(!comparison.is_stored("items.mongoshape_items")?);
        comparison.needs_view("plain", "items")?;
        comparison.same(|_| doc! { "drop": "items" })?;
        comparison.same(|_| doc! { "drop": "never_there" })?;
        comparison.same(|_| doc! { "drop": "short", "nonsense": 1 })?;
        comparison.listed(&doc! {}, None)?;
    }
    Ok(())
}

#[test]
fn a_view_that_reads_items_reads_them_after_a_drop_too() -> Result<()> {
    let mut comparison = Comparison::filled(mongod::shared())?;
    comparison.same(|_| doc! { "insert": "plain", "documents": [{ "_id": 1 }, { "_id": 2 }] })?;
    comparison.same(|_| doc! { "create": "seen", "viewOn": "plain", "pipeline": [graph("items")] })?;
    comparison.same(|_| doc! { "drop": "items" })?;
    ensure!(comparison.is_stored("items.mongoshape_items")?);
    let read = |_: &str| doc! { "aggregate": "seen", "pipeline": [{ "$project": { "n": { "$size": "$found" } } }], "cursor": {} };
    comparison.same(read)?;
    comparison.insert("items", 12)?;
    comparison.same(read)?;
    comparison.same(|_| doc! { "drop": "seen" })?;
    comparison.same(|_| doc! { "drop": "items" })?;
    ensure!(!comparison.is_stored("items.mongoshape_items")?);
    comparison.listed(&doc! { "filter": { "name": { "$ne": "system.views" } } }, None)
}

/// One proxy drops the items view while another creates a view that needs it.
#[test]
fn view_created_during_a_drop_reads_later_documents() -> Result<()> {
    let mut comparison = Comparison::filled(mongod::shared())?;
    comparison.same(|_| doc! { "insert": "plain", "documents": [{ "_id": 1 }, { "_id": 2 }] })?;
    let database = comparison.shaped_database();
    let create = doc! { "create": "seen", "viewOn": "plain", "pipeline": [graph("items")], "$db": &database };
    let drop = doc! { "drop": "items", "$db": &database };
    for round in 0..60 {
        comparison.needs_view("plain", "items")?;
        let (creating, dropping) = (&mut comparison.shaped, &mut comparison.second);
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
        ensure!(comparison.is_stored("items.mongoshape_items")?, "round {round}");
        comparison
            .shaped
            .command_ok(&doc! { "drop": "seen", "$db": &database })?;
        comparison
            .plain
            .command_ok(&doc! { "drop": "items", "$db": &comparison.names()[0] })?;
        comparison.insert("items", 3)?;
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
        let mut comparison = Comparison::filled(mongod)?;
        let [_, database] = comparison.names();
        // Both proxies have found it ready, and have written one of its keys.
        let insert = |id: i32| doc! { "insert": "items", "documents": [{ "_id": id, "k": 1, "at": bson::DateTime::from_millis(i64::from(id) * 1_000) }] };
        let read_all = |comparison: &mut Comparison| reads().iter().try_for_each(|read| comparison.same_read(read));
        comparison.through_second(|comparison| comparison.same(|_| insert(1_000)))?;
        for drop in ["dropDatabase", "drop"] {
            let value: Bson = if drop == "drop" { "items".into() } else { 1.into() };
            comparison.same(|_| doc! { drop: value.clone() })?;
            read_all(&mut comparison)?;
            comparison.through_second(read_all)?;
            comparison.through_second(|comparison| comparison.same(|_| doc! { "create": "items" }))?;
            let indexes = comparison
                .stored
                .all(&doc! { "listIndexes": "items", "$db": &database })?;
            ensure!(indexes.len() == 6 + 1, "{indexes:?}");
            comparison.same(|_| doc! { drop: value.clone() })?;
            comparison.through_second(|comparison| comparison.same(|_| insert(1)))?;
            comparison.same(|_| insert(2))?;
            comparison.same(|_| insert(1))?;
            read_all(&mut comparison)?;
            comparison.through_second(read_all)?;
        }
    }
    Ok(())
}
