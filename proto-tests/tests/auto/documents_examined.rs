//! What commands cost on a collection with an automatic shape: the checks of its identity scan nothing.

use std::time::Duration;

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::mongod;
use proto_tests::raw::Connection;
use proto_tests::sessions::{Transaction, lsid};

use super::fixture::{COLLECTION, CutOver, Fixture, item};

const DOCUMENTS: i32 = 2_000;
/// Executions of each command.
const TIMES: i32 = 10;
/// Documents that one execution may examine. Pages have ten items.
const MAX_EXAMINED: i64 = 20;

/// Documents and index entries that mongod has examined since its start.
fn examined(direct: &mut Connection) -> Result<i64> {
    let status = direct.command_ok(&doc! { "serverStatus": 1, "$db": "admin" })?;
    let executor = status.get_document("metrics")?.get_document("queryExecutor")?;
    Ok(executor.get_i64("scannedObjects")? + executor.get_i64("scanned")?)
}

/// Commands on one document.
fn commands(id: i32) -> Vec<Document> {
    let own = doc! { "_id": id };
    let increase = doc! { "$inc": { "n": 1 } };
    let retryable = |mut command: Document| {
        command.insert("lsid", lsid("examined"));
        command.insert("txnNumber", i64::from(id));
        command
    };
    vec![
        doc! { "find": COLLECTION, "filter": &own },
        doc! { "aggregate": COLLECTION, "pipeline": [{ "$match": &own }], "cursor": {} },
        doc! { "count": COLLECTION, "query": &own },
        doc! { "update": COLLECTION, "updates": [{ "q": &own, "u": &increase }] },
        doc! { "findAndModify": COLLECTION, "query": &own, "update": &increase },
        retryable(doc! { "findAndModify": COLLECTION, "query": &own, "update": &increase }),
        doc! { "update": COLLECTION, "updates": [{ "q": &own, "u": &increase, "multi": true }] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": &own, "limit": 1 }] },
    ]
}

fn check(fixture: &Fixture, direct: &mut Connection, first: i32) -> Result<()> {
    let mut application = fixture.application(0)?;
    for place in 0..commands(0).len() {
        let before = examined(direct)?;
        let mut command = doc! {};
        for id in first..first + TIMES {
            command = commands(id).swap_remove(place);
            command.insert("$db", &fixture.database);
            application.command_ok(&command)?;
        }
        let examined = (examined(direct)? - before) / i64::from(TIMES);
        ensure!(examined <= MAX_EXAMINED, "{examined} examined by {command}");
    }
    let before = examined(direct)?;
    let mut transaction = Transaction::new(&format!("examined {first}"), &fixture.database);
    let update = doc! { "q": { "_id": first + TIMES }, "u": { "$inc": { "n": 1 } } };
    transaction.run(&mut application, &doc! { "update": COLLECTION, "updates": [update] })?;
    transaction.end(&mut application, "commitTransaction")?;
    let examined = examined(direct)? - before;
    ensure!(examined <= 2 * MAX_EXAMINED, "{examined} examined by a transaction");
    Ok(())
}

#[test]
fn commands_examine_few_documents() -> Result<()> {
    let mongod = mongod::Options::default().replica_set(1)?;
    let fixture = Fixture::start(&mongod)?;
    let mut direct = fixture.direct()?;
    let documents: Vec<Document> = (0..DOCUMENTS).map(|id| item(id, id % 7, id.into())).collect();
    fixture.store_plain(&documents)?;
    check(&fixture, &mut direct, 100)?;
    fixture.convert(Duration::ZERO, CutOver::Done)?;
    check(&fixture, &mut direct, 500)
}
