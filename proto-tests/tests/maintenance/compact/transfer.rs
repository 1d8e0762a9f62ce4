//! Transactions during compaction.

use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;

use super::concurrent_clients::{COLLECTION, Fixture};

/// Transactions that move something from one item to another: what they have together stays as it is.
pub(super) fn transfer(fixture: &Fixture, mut connection: Connection) -> Result<()> {
    let database = &fixture.database;
    let items = ["from", "to"].map(|id| doc! { "_id": id, "k": format!("bank {id}"), "n": 0_i64 });
    connection.command_ok(&doc! { "insert": COLLECTION, "documents": items, "$db": database })?;
    let session = lsid(&format!("{database} transfer"));
    let mut number = 0_i64;
    let mut committed = 0;
    while fixture.goes_on() {
        number += 1;
        let transaction = doc! { "lsid": session.clone(), "txnNumber": number, "autocommit": false };
        let within = |mut command: Document, database: &str| {
            command.extend(transaction.clone());
            command.insert("$db", database);
            command
        };
        let add = |id: &str, n: i64| {
            let update = doc! { "q": { "_id": id }, "u": { "$inc": { "n": n } } };
            doc! { "update": COLLECTION, "updates": [update] }
        };
        let mut first = add("from", -1);
        first.insert("startTransaction", true);
        let both = doc! { "k": { "$in": ["bank from", "bank to"] } };
        let sum = doc! { "$group": { "_id": null, "n": { "$sum": "$n" } } };
        let sum = doc! { "aggregate": COLLECTION, "pipeline": [{ "$match": both }, sum], "cursor": {} };
        let steps = [
            within(first, database),
            within(add("to", 1), database),
            within(sum, database),
            within(doc! { "commitTransaction": 1 }, "admin"),
        ];
        for (step, command) in steps.iter().enumerate() {
            let reply = connection.command(command)?;
            if reply.get_f64("ok")? < 1.0 || reply.get_array("writeErrors").is_ok() {
                let labels = reply
                    .get_array("errorLabels")
                    .with_context(|| format!("{command}: {reply}"))?;
                ensure!(
                    labels.contains(&"TransientTransactionError".into()),
                    "{command}: {reply}"
                );
                fixture.refused.fetch_add(1, Ordering::Relaxed);
                connection.command(&within(doc! { "abortTransaction": 1 }, "admin"))?;
                break;
            }
            if step == 2 {
                let batch = reply.get_document("cursor")?.get_array("firstBatch")?;
                let sum = batch.first().and_then(|sum| sum.as_document()?.get_i64("n").ok());
                ensure!(sum == Some(0), "{reply}");
            }
            committed += i64::from(step == 3);
        }
    }
    let find = doc! { "find": COLLECTION, "filter": { "_id": "to" }, "$db": database };
    let to = connection.all(&find)?;
    ensure!(to.len() == 1 && to[0].get_i64("n")? == committed, "{committed}: {to:?}");
    Ok(())
}
