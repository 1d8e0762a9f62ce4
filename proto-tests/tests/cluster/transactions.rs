//! Transactions over both shards.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use bson::{Document, doc};
use proto_tests::cluster::Kind;
use proto_tests::raw::Connection;
use proto_tests::replies::first_code;
use proto_tests::sessions::Transaction;

use crate::beside::{Beside, COLLECTION, item};

fn insert(ids: std::ops::Range<i32>) -> Document {
    let items: Vec<Document> = ids.map(item).collect();
    doc! { "insert": COLLECTION, "documents": items }
}

fn stored(beside: &Beside) -> Result<Vec<usize>> {
    Ok(beside.stored()?.iter().map(Vec::len).collect())
}

#[test]
fn a_transaction_over_both_shards_is_aborted_or_committed() -> Result<()> {
    let mut beside = Beside::open()?;
    for how in ["abortTransaction", "commitTransaction"] {
        let database = beside.database.clone();
        let mut transaction = Transaction::new(&format!("{database} {how}"), &database);
        let reply = transaction.run(&mut beside.router, &insert(0..20))?;
        ensure!(reply.get_i32("n")? == 20, "{reply}");
        ensure!(reply.get_document("recoveryToken").is_ok(), "{reply}");
        let find = doc! { "find": COLLECTION, "sort": { "_id": 1 } };
        let within = transaction.run(&mut beside.router, &find)?;
        let found = within.get_document("cursor")?.get_array("firstBatch")?.len();
        ensure!(found == 20, "{within}");
        ensure!(stored(&beside)? == [0, 0], "it is visible before its end");
        let end = transaction.end(&mut beside.router, how)?;
        ensure!(end.get_f64("ok")? > 0.0, "{end}");
        let stored = stored(&beside)?;
        let expected = if how == "commitTransaction" { 20 } else { 0 };
        ensure!(stored.iter().sum::<usize>() == expected, "{how}: {stored:?}");
        if how == "commitTransaction" {
            ensure!(!stored.contains(&0), "{stored:?}");
            // A driver may not know that it was committed.
            let again = transaction.end(&mut beside.router, how)?;
            ensure!(again.get_f64("ok")? > 0.0, "{again}");
        }
    }
    Ok(())
}

#[test]
fn a_statement_that_fails_aborts_on_all_shards() -> Result<()> {
    let mut beside = Beside::with_items(10)?;
    let database = beside.database.clone();
    let mut transaction = Transaction::new(&database, &database);
    transaction.run(&mut beside.router, &insert(20..40))?;
    let failed = transaction.run(&mut beside.router, &insert(3..4))?;
    ensure!(first_code(&failed) == 11000, "{failed}");
    let next = transaction.run(&mut beside.router, &insert(50..51))?;
    ensure!(first_code(&next) == 251, "{next}");
    let commit = transaction.end(&mut beside.router, "commitTransaction")?;
    ensure!(first_code(&commit) == 251, "{commit}");
    beside.check()?;
    // Nothing of it holds a lock.
    let mut other = Connection::open(beside.cluster.router_addresses()[1])?;
    let reply = other.command_ok(&beside.here(&insert(20..40)))?;
    ensure!(reply.get_i32("n")? == 20, "{reply}");
    Ok(())
}

#[test]
fn a_collection_is_sharded_beside_the_reads_of_an_open_transactions_client() -> Result<()> {
    let mut beside = Beside::open()?;
    let database = beside.database.clone();
    let mut transaction = Transaction::new(&database, &database);
    let begun = transaction.run(&mut beside.router, &insert(0..20))?;
    ensure!(begun.get_i32("n")? == 20, "{begun}");
    let cluster = beside.cluster;
    let sharding = std::thread::spawn(move || {
        cluster.shard_collection(&format!("{database}.other"), &doc! { "k": 1 }, Kind::Ranged)
    });
    std::thread::sleep(Duration::from_millis(200));
    let start = Instant::now();
    ensure!(stored(&beside)? == [0, 0], "it is visible before its end");
    ensure!(
        start.elapsed() < Duration::from_secs(10),
        "the read waited for the end of the transaction"
    );
    ensure!(
        !sharding.is_finished(),
        "the test does not show what it should: nothing waited"
    );
    let commit = transaction.end(&mut beside.router, "commitTransaction")?;
    ensure!(commit.get_f64("ok")? > 0.0, "{commit}");
    sharding.join().map_err(|_| anyhow!("sharding panicked"))?
}

#[test]
fn a_move_aborts_open_transactions() -> Result<()> {
    let mut beside = Beside::open()?;
    let database = beside.database.clone();
    let mut transaction = Transaction::new(&database, &database);
    let begun = transaction.run(&mut beside.router, &insert(0..20))?;
    ensure!(begun.get_i32("n")? == 20, "{begun}");
    crate::slots::move_all(&beside, 1)?;
    let next = transaction.run(&mut beside.router, &insert(20..21))?;
    ensure!(first_code(&next) == 251, "{next}");
    ensure!(stored(&beside)? == [0, 0], "{next}");
    Ok(())
}
