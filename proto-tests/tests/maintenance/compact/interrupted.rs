//! Runs that are stopped or killed at any point.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bson::{Document, doc};
use proto_tests::proxy::find_binary;
use proto_tests::raw::Connection;
use proto_tests::replies::succeeded;
use proto_tests::sessions::lsid;
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::{Mongod, ProxyOptions, Shape, invariants, mongod};
use rustix::process::{Pid, Signal, kill_process};

use super::compact;

/// No multiple of three: each key has items that are deleted.
const KEYS: i32 = 301;

/// A collection with a short page in every key.
pub(super) fn prepare(mongod: &Mongod) -> Result<Shaped> {
    let shaped = Shaped::with("", &ProxyOptions::new(&mongod.uri()))?;
    let mut application = shaped.application()?;
    for part in 0..10 {
        let items: Vec<Document> = (0..KEYS * 3)
            .map(|n| doc! { "_id": part * KEYS * 3 + n, "k": n % KEYS, "n": n })
            .collect();
        application.command_ok(&shaped.insert(&items))?;
    }
    let filter = doc! { "_id": { "$mod": [3, 0] } };
    application.command_ok(
        &doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": 0 }], "$db": &shaped.database },
    )?;
    Ok(shaped)
}

fn start(shaped: &Shaped) -> Result<Child> {
    let mut command = Command::new(find_binary()?);
    command.arg("compact").arg("--config").arg(shaped.proxy.config_file());
    Ok(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
}

fn signal(child: &Child, signal: Signal) -> Result<()> {
    let id = Pid::from_raw(i32::try_from(child.id())?).context("a process id")?;
    Ok(kill_process(id, signal)?)
}

pub(super) fn items(shaped: &Shaped) -> Result<Vec<Document>> {
    let find = doc! { "find": COLLECTION, "sort": { "_id": 1 }, "$db": &shaped.database };
    shaped.application()?.all(&find)
}

pub(super) fn check(mongod: &Mongod, shaped: &Shaped, before: &[Document]) -> Result<()> {
    ensure!(items(shaped)? == before, "items differ");
    let shape = Shape {
        items_change: true,
        ..Shape::new(&["k"])
    };
    invariants::check(
        &mut Connection::open(mongod.address())?,
        &shaped.database,
        COLLECTION,
        &shape,
    )
}

pub(super) fn write(shaped: &Shaped, id: i32) -> Result<()> {
    let reply = shaped
        .application()?
        .command_ok(&shaped.insert(&[doc! { "_id": id, "k": 1, "n": 1 }]))?;
    ensure!(reply.get_i32("n")? == 1, "{reply}");
    Ok(())
}

#[test]
fn run_stopped_at_any_point_can_be_repeated() -> Result<()> {
    let shaped = prepare(mongod::shared())?;
    let mut has_ended = false;
    for (number, after) in [30, 80, 150, 250, 400, 600].into_iter().enumerate() {
        let child = start(&shaped)?;
        sleep(Duration::from_millis(after));
        signal(&child, Signal::TERM)?;
        let output = child.wait_with_output()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(!printed.contains("still frozen"), "{printed}");
        has_ended |= printed.contains("packed: ");
        // It can be written to at once.
        write(&shaped, 1_000_000 + i32::try_from(number)?)?;
        check(mongod::shared(), &shaped, &items(&shaped)?)?;
    }
    let before = items(&shaped)?;
    let printed = compact(&shaped.proxy)?;
    // One of those before may have come to its end.
    ensure!(printed.contains("packed: ") || has_ended, "{printed}");
    check(mongod::shared(), &shaped, &before)?;
    let again = compact(&shaped.proxy)?;
    ensure!(again.contains("there are no short pages to pack"), "{again}");
    Ok(())
}

/// Whether the collection has any, such as a validator.
fn has_options(direct: &mut Connection, shaped: &Shaped) -> Result<bool> {
    let list = doc! { "listCollections": 1, "filter": { "name": COLLECTION }, "$db": &shaped.database };
    let listed = direct.all(&list)?;
    Ok(!listed
        .first()
        .context("the collection")?
        .get_document("options")?
        .is_empty())
}

/// Reads the copy in a new transaction of the session, and returns the transaction's number. The run may hold
/// the lock of the copy for a moment, and a transaction waits for a lock for 5 ms only.
fn begin_reading_the_copy(reader: &mut Connection, shaped: &Shaped, session: &Document) -> Result<i64> {
    for number in 1..1000 {
        let copy = format!("{COLLECTION}.mongoshape_compact");
        let mut find =
            doc! { "find": copy, "limit": 1, "txnNumber": number, "startTransaction": true, "$db": &shaped.database };
        find.extend(session.clone());
        let reply = reader.command(&find)?;
        if reply.get_str("codeName").ok() != Some("LockTimeout") {
            succeeded(reply)?;
            return Ok(number);
        }
    }
    bail!("the copy is locked")
}

#[test]
fn next_run_finishes_a_run_killed_while_frozen() -> Result<()> {
    let set = mongod::shared_replica_set();
    let shaped = prepare(set)?;
    let before = items(&shaped)?;
    let mut child = start(&shaped)?;
    // A transaction that reads the copy blocks its rename.
    let mut reader = Connection::open(set.address())?;
    let mut transaction = doc! { "lsid": lsid(&shaped.database), "autocommit": false };
    for line in BufReader::new(child.stdout.take().context("its output")?).lines() {
        let line = line?;
        // Not after the first pass: a transaction that reads the copy then blocks the creation of indexes,
        // until mongod ends the transaction after a minute.
        if line.contains(": compared ") && !transaction.contains_key("txnNumber") {
            transaction.insert("txnNumber", begin_reading_the_copy(&mut reader, &shaped, &transaction)?);
        }
        if line.contains("frozen: ") {
            sleep(Duration::from_millis(500));
            signal(&child, Signal::KILL)?;
            break;
        }
    }
    child.wait()?;
    // mongod may be at the renaming still, for which it is given a second. The transaction blocks it so long.
    sleep(Duration::from_millis(1500));
    let mut abort = doc! { "abortTransaction": 1, "$db": "admin" };
    abort.extend(transaction);
    reader.command(&abort)?;
    if !has_options(&mut reader, &shaped)? {
        // It was too fast. Frozen, with a copy that is far behind, is what another would leave.
        let copy = format!("{COLLECTION}.mongoshape_compact");
        reader.command_ok(&doc! { "create": copy, "$db": &shaped.database })?;
        let validator = doc! { "mongoshape_compact": { "$exists": true } };
        reader.command_ok(&doc! { "collMod": COLLECTION, "validator": validator, "$db": &shaped.database })?;
    }
    ensure!(items(&shaped)? == before, "items differ");
    let checked = shaped.proxy.run("check")?;
    let checked = String::from_utf8_lossy(&checked.stdout).into_owned();
    ensure!(
        checked.contains("refuses writes because `mongoshape compact` is replacing it"),
        "{checked}"
    );
    // A write waits for the end.
    std::thread::scope(|scope| -> Result<()> {
        let writer = scope.spawn(|| write(&shaped, 2_000_000));
        sleep(Duration::from_millis(300));
        ensure!(!writer.is_finished(), "it was written where nothing can be");
        let printed = compact(&shaped.proxy)?;
        ensure!(
            printed.contains("an earlier run was interrupted while the collection was frozen"),
            "{printed}"
        );
        writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))?
    })?;
    let mut expected = before;
    expected.push(doc! { "_id": 2_000_000, "k": 1, "n": 1 });
    check(set, &shaped, &expected)
}

#[test]
fn two_concurrent_runs_do_not_interfere() -> Result<()> {
    let shaped = prepare(mongod::shared())?;
    let before = items(&shaped)?;
    let runs = [start(&shaped)?, start(&shaped)?];
    let mut ended = Vec::new();
    for run in runs {
        let output = run.wait_with_output()?;
        ended.push(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    check(mongod::shared(), &shaped, &before)?;
    let fair = |printed: &String| {
        [
            "packed: ",
            "there are no short pages to pack",
            "another run is in progress",
        ]
        .iter()
        .any(|words| printed.contains(words))
    };
    ensure!(ended.iter().all(fair), "{ended:?}");
    Ok(())
}

#[test]
fn the_copy_is_not_listed() -> Result<()> {
    let shaped = prepare(mongod::shared())?;
    let copy = format!("{COLLECTION}.mongoshape_compact");
    shaped
        .direct()?
        .command_ok(&doc! { "create": &copy, "$db": &shaped.database })?;
    let mut application = shaped.application()?;
    for filter in [doc! {}, doc! { "name": &copy }, doc! { "type": "collection" }] {
        let list = doc! { "listCollections": 1, "filter": filter, "nameOnly": true, "$db": &shaped.database };
        let listed = application.all(&list)?;
        ensure!(
            listed
                .iter()
                .all(|listed| listed.get_str("name").is_ok_and(|name| name != copy)),
            "{listed:?}"
        );
    }
    Ok(())
}
