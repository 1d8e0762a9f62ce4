//! `collStats`, `$collStats`, `dataSize`, `dbStats`, `validate`, and commands on the stored collection.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::mongod;
use proto_tests::sessions::lsid;

use super::{Comparison, NOT_SUPPORTED, servers, without_sizes, without_sizes_of_database};

#[test]
fn statistics_count_items() -> Result<()> {
    for mongod in servers() {
        let mut comparison = Comparison::filled(mongod)?;
        let commands = [
            doc! { "collStats": "items" },
            doc! { "collStats": "items", "scale": 1024 },
            doc! { "collstats": "items", "scale": 2.5 },
            doc! { "collStats": "items", "scale": 0 },
            doc! { "collStats": "items", "scale": "x" },
            doc! { "collStats": "items", "nonsense": 1 },
            doc! { "collStats": "others" },
            doc! { "collStats": "others", "scale": 10 },
            doc! { "validate": "items" },
            doc! { "validate": "items", "full": true },
            doc! { "validate": "others" },
            doc! { "validate": "items", "background": true, "full": true },
            doc! { "planCacheClear": "items" },
            doc! { "planCacheClear": "others" },
        ];
        for command in commands {
            let [plain, shaped] = comparison.run(|_| command.clone())?;
            ensure!(
                without_sizes(&plain) == without_sizes(&shaped),
                "{command}\n  plain:  {plain}\n  shaped: {shaped}"
            );
        }
        let data_sizes = [
            doc! {},
            doc! { "estimate": true },
            doc! { "keyPattern": {}, "min": {}, "max": {} },
            doc! { "nonsense": 1 },
        ];
        for options in data_sizes {
            for collection in ["items", "others"] {
                let [plain, shaped] = comparison.run(|database| {
                    let mut command = doc! { "dataSize": format!("{database}.{collection}") };
                    command.extend(options.clone());
                    command
                })?;
                ensure!(
                    without_sizes(&plain) == without_sizes(&shaped),
                    "dataSize {options}\n  plain:  {plain}\n  shaped: {shaped}"
                );
            }
        }
        comparison.same(|_| doc! { "dataSize": "items" })?;
        let refused = [
            doc! { "validate": "items", "repair": true },
            doc! { "validate": "items", "nonsense": 1 },
            doc! { "validate": "items", "metadata": true },
            doc! { "planCacheClear": "items", "query": { "k": 1 } },
            doc! { "planCacheClear": "items", "nonsense": 1 },
            doc! { "reIndex": "items" },
            doc! { "convertToCapped": "items", "size": 4096 },
            doc! { "setIndexCommitQuorum": "items", "indexNames": ["x"], "commitQuorum": 1 },
            doc! { "analyze": "items" },
            doc! { "planCacheListFilters": "items" },
        ];
        for command in refused {
            comparison.refused(NOT_SUPPORTED, |_| command.clone())?;
        }
        comparison.refused(NOT_SUPPORTED, |database| doc! { "dataSize": format!("{database}.items"), "keyPattern": { "_id": 1 }, "min": { "_id": 1 }, "max": { "_id": 5 } })?;
        comparison.refused(
            NOT_SUPPORTED,
            |database| doc! { "dataSize": format!("{database}.items"), "$db": "admin" },
        )?;
    }
    Ok(())
}

#[test]
fn a_database_is_counted_in_items() -> Result<()> {
    for mongod in servers() {
        let mut comparison = Comparison::start(mongod)?;
        let check = |comparison: &mut Comparison| -> Result<()> {
            for options in [
                doc! {},
                doc! { "scale": 1024 },
                doc! { "nonsense": 1 },
                doc! { "scale": 0 },
            ] {
                let [plain, shaped] = comparison.run(|_| {
                    let mut command = doc! { "dbStats": 1 };
                    command.extend(options.clone());
                    command
                })?;
                ensure!(
                    without_sizes_of_database(&plain) == without_sizes_of_database(&shaped),
                    "{options}\n  plain:  {plain}\n  shaped: {shaped}"
                );
            }
            Ok(())
        };
        check(&mut comparison)?;
        comparison.insert("items", 25)?;
        comparison.insert("short", 10)?;
        comparison.insert("plain", 3)?;
        check(&mut comparison)?;
        comparison.needs_view("plain", "items")?;
        check(&mut comparison).context("with the view of items")?;
        comparison.same(|_| doc! { "create": "seen", "viewOn": "items", "pipeline": [] })?;
        check(&mut comparison).context("with a view of the application's")?;
        comparison.same(|_| doc! { "drop": "items" })?;
        check(&mut comparison).context("after a drop")?;
    }
    Ok(())
}

#[test]
fn statistics_are_refused_in_a_transaction() -> Result<()> {
    let mut comparison = Comparison::filled(mongod::shared_replica_set())?;
    let commands = [
        doc! { "collStats": "items" },
        doc! { "aggregate": "items", "pipeline": [{ "$collStats": { "count": {} } }], "cursor": {} },
        doc! { "validate": "items" },
        doc! { "dbStats": 1 },
        doc! { "listCollections": 1 },
        doc! { "collMod": "items" },
        doc! { "drop": "items" },
        doc! { "compact": "items" },
        doc! { "planCacheClear": "items" },
    ];
    for (number, command) in (1_i64..).zip(commands) {
        comparison.same_code(263, |database| {
            let mut command = command.clone();
            command.extend(doc! {
                "lsid": lsid(database), "txnNumber": number, "startTransaction": true, "autocommit": false,
            });
            command
        })?;
    }
    comparison.same(|_| doc! { "find": "items", "sort": { "_id": 1 } })
}

/// It takes its time, so on one server only.
#[test]
fn compact_command_runs_on_the_stored_collection() -> Result<()> {
    let mut comparison = Comparison::filled(mongod::shared())?;
    for connection in [&comparison.plain, &comparison.shaped] {
        connection.stream().set_read_timeout(Some(Duration::from_mins(2)))?;
    }
    for command in [
        doc! { "compact": "items" },
        doc! { "compact": "others" },
        doc! { "compact": "items", "force": "yes" },
    ] {
        let [plain, shaped] = comparison.run(|_| command.clone())?;
        ensure!(
            without_sizes(&plain) == without_sizes(&shaped),
            "{command}\n  plain:  {plain}\n  shaped: {shaped}"
        );
    }
    Ok(())
}

/// Sizes are what is stored, and agree with each other.
#[test]
fn sizes_agree_with_each_other() -> Result<()> {
    let mut comparison = Comparison::filled(mongod::shared())?;
    let number = |document: &Document, name: &str| -> Result<i64> {
        let value = document.get(name).with_context(|| format!("no {name} in {document}"))?;
        value
            .as_i64()
            .or_else(|| value.as_i32().map(i64::from))
            .context("no number")
    };
    let [_, statistics] = comparison.run(|_| doc! { "collStats": "items" })?;
    let sizes = statistics.get_document("indexSizes")?;
    assert_eq!(number(sizes, "_id_")?, number(&statistics, "totalIndexSize")?);
    assert_eq!(number(&statistics, "avgObjSize")?, number(&statistics, "size")? / 25);
    let [_, scaled] = comparison.run(|_| doc! { "collStats": "items", "scale": 1024 })?;
    assert_eq!(scaled.get("avgObjSize"), statistics.get("avgObjSize"));
    assert_eq!(number(&scaled, "size")?, number(&statistics, "size")? / 1024);
    Ok(())
}

#[test]
fn a_pipeline_may_begin_with_statistics() -> Result<()> {
    for mongod in servers() {
        let mut comparison = Comparison::filled(mongod)?;
        comparison.same(|_| doc! { "insert": "plain", "documents": [{ "_id": 1 }] })?;
        let stages = [
            bson!({}),
            bson!({ "count": {} }),
            bson!({ "storageStats": {} }),
            bson!({ "storageStats": { "scale": 1024 } }),
            bson!({ "count": {}, "storageStats": {} }),
            bson!({ "storageStats": { "scale": 0 } }),
            bson!({ "nonsense": {} }),
            bson!(5),
        ];
        let behind = [
            bson!([]),
            bson!([{ "$project": { "n": "$count", "stored": "$storageStats.count", "indexes": "$storageStats.nindexes" } }]),
            bson!([{ "$group": { "_id": Bson::Null, "n": { "$sum": "$count" } } }]),
            bson!([{ "$lookup": { "from": "items", "pipeline": [{ "$count": "n" }], "as": "counted" } }]),
            bson!([{ "$nonsense": 1 }]),
        ];
        for collection in ["items", "others"] {
            for stage in &stages {
                for behind in &behind {
                    let mut pipeline = vec![bson!({ "$collStats": stage.clone() })];
                    pipeline.extend(behind.as_array().context("stages")?.clone());
                    let command = doc! { "aggregate": collection, "pipeline": pipeline, "cursor": {} };
                    let [plain, shaped] = comparison.run(|_| command.clone())?;
                    let batch = |reply: &Document| -> Option<Vec<Document>> {
                        let batch = reply.get_document("cursor").ok()?.get_array("firstBatch").ok()?;
                        Some(batch.iter().filter_map(Bson::as_document).map(without_sizes).collect())
                    };
                    ensure!(
                        batch(&plain) == batch(&shaped) && plain.get("code") == shaped.get("code"),
                        "{command}\n  plain:  {plain}\n  shaped: {shaped}"
                    );
                }
            }
        }
        for stage in [
            doc! { "latencyStats": {} },
            doc! { "queryExecStats": {} },
            doc! { "count": {}, "latencyStats": { "histograms": true } },
        ] {
            comparison.refused(
                NOT_SUPPORTED,
                |_| doc! { "aggregate": "items", "pipeline": [{ "$collStats": stage.clone() }], "cursor": {} },
            )?;
        }
        comparison.refused(NOT_SUPPORTED, |_| doc! { "aggregate": "plain", "pipeline": [{ "$unionWith": { "coll": "items", "pipeline": [{ "$collStats": {} }] } }], "cursor": {} })?;
        comparison.refused(
            NOT_SUPPORTED,
            |_| doc! { "create": "seen", "viewOn": "items", "pipeline": [{ "$collStats": {} }] },
        )?;
    }
    Ok(())
}
