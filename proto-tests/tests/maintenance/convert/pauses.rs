//! Pauses of a conversion: while a secondary lags, and while reads are slow.

use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::raw::Connection;
use proto_tests::{Mongod, mongod};

use super::fixture::{COLLECTION, Fixture, RECORD, document, with_time};

const DOCUMENTS: i32 = 4000;
/// The time for which a run is paused.
const PAUSE: Duration = Duration::from_secs(4);
/// The longest wait for a state.
const MAX_WAIT: Duration = Duration::from_mins(1);
/// mongod's code for a missing right.
const UNAUTHORIZED: i32 = 13;

fn fixture(server: &Mongod) -> Result<Fixture> {
    let documents: Vec<Document> = (0..DOCUMENTS).map(document).collect();
    Fixture::with(server, with_time(), &documents)
}

/// The documents that the record counts, while they are copied.
fn copied(fixture: &mut Fixture) -> Result<Option<i64>> {
    let stored = fixture.stored(RECORD)?;
    let progress = stored.first().and_then(|record| record.get_document("progress").ok());
    let progress = progress.filter(|progress| progress.get_str("phase").is_ok_and(|phase| phase == "copying"));
    Ok(progress.and_then(|progress| progress.get_i64("done").ok()))
}

fn wait_for_first(fixture: &mut Fixture) -> Result<()> {
    let begun = Instant::now();
    while copied(fixture)?.is_none_or(|copied| copied == 0) {
        ensure!(begun.elapsed() < MAX_WAIT, "nothing was copied");
        sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Waits for a pause: the first batch is copied, and then no further one.
fn wait_for_pause(fixture: &mut Fixture) -> Result<()> {
    wait_for_first(fixture)?;
    let before = copied(fixture)?.context("the run copies no longer")?;
    sleep(PAUSE);
    let after = copied(fixture)?.context("the run copies no longer")?;
    ensure!(before == after && after < DOCUMENTS.into(), "{before}, {after}");
    Ok(())
}

fn ended_well(run: Child) -> Result<String> {
    let output = run.wait_with_output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{printed}");
    Ok(printed)
}

fn admin(connection: &mut Connection, mut command: Document) -> Result<Document> {
    command.insert("$db", "admin");
    connection.command_ok(&command)
}

#[test]
fn copying_waits_for_a_secondary_that_lags() -> Result<()> {
    let server = Mongod::replica_set(3)?;
    let mut fixture = fixture(&server)?;
    let primary = server.primary()?;
    let addresses = server.addresses();
    let secondary = (0..addresses.len())
        .find(|member| *member != primary)
        .context("a secondary")?;
    let mut secondary = Connection::open(addresses[secondary])?;
    admin(&mut secondary, doc! { "fsync": 1, "lock": true })?;
    sleep(Duration::from_secs(2));
    // The primary is ahead from now on.
    fixture.past(doc! { "insert": "other", "documents": [{ "_id": 1 }] })?;
    let run = fixture.start_convert(&["--max-lag", "1", "--max-rate", "1000"])?;
    wait_for_pause(&mut fixture)?;
    admin(&mut secondary, doc! { "fsyncUnlock": 1 })?;
    ended_well(run)?;
    fixture.check_pages()
}

fn with_fail_points() -> Result<Mongod> {
    let options = mongod::Options::default().parameter("enableTestCommands=1");
    options.replica_set(1)
}

/// Lets commands fail or wait. `None`: they work again.
fn set_fail_point(server: &Mongod, data: Option<Document>) -> Result<()> {
    let mode = if data.is_some() { "alwaysOn" } else { "off" };
    let command = doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data.unwrap_or_default() };
    admin(&mut Connection::open(server.address())?, command).map(drop)
}

#[test]
fn copying_waits_while_reads_are_slow() -> Result<()> {
    let server = with_fail_points()?;
    let mut fixture = fixture(&server)?;
    let slow = doc! {
        "failCommands": ["find"], "namespace": format!("{}.{RECORD}", fixture.database),
        "blockConnection": true, "blockTimeMS": 300,
    };
    set_fail_point(&server, Some(slow))?;
    let run = fixture.start_convert(&["--max-latency", "200", "--max-rate", "1000"])?;
    wait_for_pause(&mut fixture)?;
    set_fail_point(&server, None)?;
    ended_well(run)?;
    fixture.check_pages()
}

#[test]
fn a_missing_right_is_reported_once_and_limits_nothing() -> Result<()> {
    let server = with_fail_points()?;
    let fixture = fixture(&server)?;
    let denied = doc! { "failCommands": ["replSetGetStatus"], "errorCode": UNAUTHORIZED };
    set_fail_point(&server, Some(denied))?;
    let printed = ended_well(fixture.start_convert(&["--max-rate", "2000"])?)?;
    let notes = printed.matches("--max-lag has no effect").count();
    ensure!(notes == 1, "{notes}\n{printed}");
    ensure!(printed.contains(&format!("copied {DOCUMENTS} documents")), "{printed}");
    ensure!(fixture.items()?.len() == usize::try_from(DOCUMENTS)?, "{COLLECTION}");
    Ok(())
}

#[test]
fn a_run_that_pauses_is_stopped_at_once_and_can_be_ended() -> Result<()> {
    let mut fixture = fixture(mongod::shared_replica_set())?;
    let run = fixture.start_convert(&["--max-rate", "1"])?;
    wait_for_first(&mut fixture)?;
    let begun = Instant::now();
    let process = rustix::process::Pid::from_child(&run);
    rustix::process::kill_process(process, rustix::process::Signal::INT)?;
    let output = run.wait_with_output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    ensure!(begun.elapsed() < Duration::from_secs(20), "{printed}");
    ensure!(
        printed.contains("stopped; run `mongoshape convert` again to continue"),
        "{printed}"
    );
    fixture.convert(&["--back"])?;
    ensure!(fixture.collections()? == [COLLECTION]);
    Ok(())
}
