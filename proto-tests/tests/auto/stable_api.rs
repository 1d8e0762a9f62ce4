//! Writes under `apiStrict`, which may not name the UUID of their collection.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::mongod;

use super::commands::waits_for;
use super::fixture::{COLLECTION, Fixture, item};

/// So many documents that mongod does not change all of them within the proxy's first time limit.
const MANY: i32 = 100_000;

fn strict(mut command: Document) -> Document {
    command.extend(doc! { "apiVersion": "1", "apiStrict": true });
    command
}

fn increment() -> Document {
    doc! { "q": {}, "u": { "$inc": { "n": 1 } }, "multi": true }
}

/// The number of documents with this `n`.
fn count(fixture: &Fixture, n: i32) -> Result<i32> {
    Ok(fixture
        .past(doc! { "count": COLLECTION, "query": { "n": n } })?
        .get_i32("n")?)
}

#[test]
fn a_slow_write_is_executed_once() -> Result<()> {
    let fixture = Fixture::start(mongod::shared_replica_set())?;
    fixture.store_plain(&[])?;
    let documents: Vec<Document> = (0..MANY).map(|n| item(n, n % 3, i64::from(n))).collect();
    let reply = fixture.run(0, strict(doc! { "insert": COLLECTION, "documents": documents }))?;
    ensure!(
        reply.get_i32("n")? == MANY && !reply.contains_key("writeErrors"),
        "{}",
        reply.to_string().chars().take(300).collect::<String>()
    );
    for round in 1..=2 {
        let concern = doc! { "w": "majority" };
        let update = doc! { "update": COLLECTION, "updates": [increment()], "writeConcern": concern };
        let reply = fixture.run(0, strict(update))?;
        ensure!(reply.get_i32("nModified")? == MANY, "{reply}");
        ensure!(count(&fixture, round)? == MANY, "not each document was changed once");
    }
    let reply = fixture.run(
        0,
        strict(doc! { "delete": COLLECTION, "deletes": [{ "q": {}, "limit": 0 }] }),
    )?;
    ensure!(reply.get_i32("n")? == MANY, "{reply}");
    Ok(())
}

#[test]
fn a_command_that_fails_reports_each_statement_that_was_not_executed() -> Result<()> {
    let fixture = Fixture::start(mongod::shared_replica_set())?;
    fixture.store_plain(&[item(1, 1, 1), item(2, 1, 2)])?;
    let wrong = doc! { "q": {}, "u": { "$inc": { "at": 1 } }, "multi": true };
    let update = doc! { "update": COLLECTION, "updates": [increment(), wrong, increment()], "ordered": false };
    let reply = fixture.run(0, strict(update))?;
    let errors = reply.get_array("writeErrors")?;
    let codes: Vec<_> = errors
        .iter()
        .filter_map(|error| error.as_document()?.get_i32("code").ok())
        .collect();
    ensure!(codes == [112, 14, 112], "{reply}");
    ensure!(reply.get_i32("n")? == 0 && count(&fixture, 0)? == 2, "{reply}");
    Ok(())
}

#[test]
fn a_write_to_many_waits_for_the_swap() -> Result<()> {
    let update = strict(doc! { "update": COLLECTION, "updates": [increment()] });
    let reply = waits_for(&update)?;
    ensure!(reply.get_i32("nModified")? == 1, "{reply}");
    Ok(())
}
