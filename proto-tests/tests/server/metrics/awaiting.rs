//! Commands that wait in mongod for new data count neither as failures nor as slow.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::frame::{self, EXHAUST_ALLOWED};
use proto_tests::raw::Connection;
use proto_tests::{Mongod, Proxy, ProxyOptions, client, database_name, mongod};

use super::exposition::{Series, scrape};

/// How long something that happens for sure may take.
const LIMIT: Duration = Duration::from_secs(30);

fn until(what: &str, mut is: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    while !is()? {
        ensure!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Waits until mongod holds so many `hello`s back that are like this.
fn until_awaited(mongod: &mut Connection, like: &Document, number: usize) -> Result<()> {
    until("so many wait", || {
        let mut command = doc! { "currentOp": 1, "$all": true, "command.topologyVersion": { "$exists": true } };
        command.extend(like.clone());
        command.insert("$db", "admin");
        Ok(mongod.command_ok(&command)?.get_array("inprog")?.len() == number)
    })
}

fn sum(series: &Series, part: &str) -> f64 {
    let of_part = series.iter().filter(|(name, _)| name.starts_with(part));
    of_part.map(|(_, value)| value).sum()
}

/// Nothing failed, and of all commands only those that waited for news, some, have no time.
fn check(series: &Series, awaited: std::ops::RangeInclusive<f64>) -> Result<()> {
    let failed = series.iter().filter(|(name, _)| name.contains("outcome=\"failed\""));
    let failed: f64 = failed.map(|(_, value)| value).sum();
    ensure!(failed < 0.5, "{failed} commands failed");
    let untimed = sum(series, "commands_total{") - sum(series, "command_duration_seconds_count");
    ensure!(awaited.contains(&untimed), "{untimed} commands have no time");
    let parts = ["upstream_duration_seconds_count", "proxy_overhead_seconds_count"];
    let timed = sum(series, "command_duration_seconds_count");
    for part in parts {
        ensure!((sum(series, part) - timed).abs() < 0.5, "{part} is not {timed}");
    }
    Ok(())
}

fn awaiting(mongod: &Mongod, exhaust: u32) -> Result<()> {
    let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()))?;
    let mut direct = Connection::open(mongod.address())?;
    let mut monitor = Connection::open(proxy.address())?;
    let hello = monitor.command_ok(&doc! { "hello": 1, "$db": "admin" })?;
    let version = hello.get_document("topologyVersion")?.clone();
    let waits = doc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 60_000_i64, "comment": "waits", "$db": "admin" };
    let like = doc! { "command.comment": "waits" };
    monitor.send(&frame::command(9, exhaust, &waits)?)?;
    until_awaited(&mut direct, &like, 1)?;
    drop(monitor);
    until("the connection is closed", || {
        Ok(proxy.metric("mongoshape_client_connections") < 0.5)
    })?;
    let series = scrape(&proxy)?;
    ensure!(
        (sum(&series, "commands_total{command=\"hello\",outcome=\"relayed\"}") - 2.0).abs() < 0.5,
        "{series:?}"
    );
    check(&series, 1.0..=1.0)?;
    until_awaited(&mut direct, &like, 0)
}

#[test]
fn aborted_awaitable_hello_is_not_counted_as_failure() -> Result<()> {
    let mongod = Mongod::standalone()?;
    awaiting(&mongod, 0)?;
    awaiting(&mongod, EXHAUST_ALLOWED)
}

/// On threads of its own: the driver's monitor works while the test looks at mongod.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn driver_monitor_does_not_affect_error_and_latency_metrics() -> Result<()> {
    let mongod = Mongod::standalone()?;
    let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()))?;
    let application = client(&format!("{}&appName=monitors", proxy.uri())).await?;
    application.database("admin").run_command(doc! { "ping": 1 }).await?;
    until_awaited(
        &mut Connection::open(mongod.address())?,
        &doc! { "appName": "monitors" },
        1,
    )?;
    application.shutdown().await;
    until("the driver is gone", || {
        Ok(proxy.metric("mongoshape_client_connections") < 0.5)
    })?;
    check(&scrape(&proxy)?, 1.0..=f64::INFINITY)
}

#[test]
fn awaiting_get_more_has_its_own_latency_metric() -> Result<()> {
    let proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()))?;
    let mut application = Connection::open(proxy.address())?;
    let database = database_name();
    let mut run = |mut command: Document| -> Result<Document> {
        command.insert("$db", &database);
        application.command_ok(&command)
    };
    run(doc! { "create": "events", "capped": true, "size": 4096 })?;
    run(doc! { "insert": "events", "documents": [{ "_id": 1 }] })?;
    let found = run(doc! { "find": "events", "tailable": true, "awaitData": true })?;
    let id = found.get_document("cursor")?.get_i64("id")?;
    run(doc! { "getMore": id, "collection": "events", "maxTimeMS": 500 })?;
    // It is counted once it is answered.
    until("the getMore is counted", || {
        Ok(proxy.metric("mongoshape_upstream_duration_seconds_count{command=\"getMore\"}") >= 0.5)
    })?;
    let series = scrape(&proxy)?;
    let value = |name: &str| sum(&series, &format!("upstream_duration_seconds_{name}"));
    ensure!((value("count{command=\"other\"}") - 3.0).abs() < 0.5, "{series:?}");
    ensure!((value("count{command=\"getMore\"}") - 1.0).abs() < 0.5, "{series:?}");
    // mongod's clock ticks in milliseconds: 499.9 of them were seen.
    ensure!(value("sum{command=\"getMore\"}") >= 0.49, "{series:?}");
    Ok(())
}
