//! Conversions that are interrupted otherwise: a proxy ends, the oplog is too short, or the disk is full.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, doc};
use proto_tests::raw::Connection;
use proto_tests::stopping_relay::Moment;
use proto_tests::{Mongod, crash, mongod};

use super::super::fixture::{COLLECTION, COPY, KEPT, RECORD};
use super::clients::{BASE, base_document, beside_clients};
use super::subject::{Ended, Subject};
use super::writers::{Numbers, beside_writers, check_items};
use super::{Killed, to_another_shape, to_pages, to_plain};

/// The time between the end of a run and that of the clients.
const AFTERWARDS: Duration = Duration::from_millis(100);
/// The time without mongod: longer than the driver waits for a server.
const OUTAGE: Duration = Duration::from_secs(7);
/// A document of a test.
const DOCUMENT: i32 = 1000;
/// mongod's code for a position that the oplog no longer contains.
const HISTORY_LOST: i32 = 286;
/// mongod's code for a full disk.
const OUT_OF_DISK_SPACE: i32 = 14031;

/// Kills the first proxy and starts it again while a run waits at a command. `client`: the number of a new
/// client.
fn restarts_at(subject: &mut Subject, conversion: &Killed, (number, client): (usize, usize)) -> Result<()> {
    conversion.renew(subject)?;
    let written = beside_writers(subject, client..client + 1, |subject| {
        let mut run = subject.begin(&conversion.shape, conversion.options, Some((number, Moment::After)))?;
        ensure!(subject.stops(&mut run)?, "the run has ended");
        subject.proxies[0].kill()?;
        subject.proxies[0].restart()?;
        subject.relay.go_on();
        let Ended { code, printed } = run.end()?;
        ensure!(code == Some(0), "{code:?}: {printed}");
        thread::sleep(AFTERWARDS);
        Ok(())
    })?;
    check_items(subject, written)?;
    subject.check_definitions()?;
    subject.check_layout(&conversion.to)
}

#[test]
fn a_proxy_is_killed_during_a_conversion() -> Result<()> {
    let mut subject = Subject::start(mongod::shared_replica_set())?;
    subject.proxies.iter().for_each(crash::expect_cuts);
    for (place, conversion) in [to_pages(), to_plain()].iter().enumerate() {
        let rename = conversion.number_of(&mut subject, &format!("renameCollection {COLLECTION}"))?;
        // While the copy is filled, and between the renames.
        for (way, number) in [5, rename].into_iter().enumerate() {
            // Even, so that the client begins with the first proxy.
            let client = 4 * place + 2 * way;
            let restarted = restarts_at(&mut subject, conversion, (number, client));
            restarted.with_context(|| format!("at command {number}"))?;
        }
    }
    Ok(())
}

/// mongod ends between the two renames. The run waits for it, and restores the collection.
#[test]
fn mongod_is_killed_while_the_collection_has_no_name() -> Result<()> {
    let mut mongod = Mongod::replica_set(1)?;
    let mut subject = Subject::start(&mongod)?;
    subject.proxies.iter().for_each(crash::expect_cuts);
    let conversion = to_pages();
    let rename = conversion.number_of(&mut subject, &format!("renameCollection {COLLECTION}"))?;
    conversion.renew(&mut subject)?;
    let mut run = subject.begin(&conversion.shape, conversion.options, Some((rename, Moment::After)))?;
    ensure!(subject.stops(&mut run)?, "the run has ended");
    mongod.kill(0)?;
    subject.relay.go_on();
    thread::sleep(OUTAGE);
    mongod.restart(0)?;
    subject.direct = Connection::open(mongod.address())?;
    let Ended { code, printed } = run.end()?;
    ensure!(code == Some(1), "{code:?}: {printed}");
    let collections = subject.collections()?;
    ensure!(
        collections == [COLLECTION, RECORD, COPY],
        "{collections:?}, after {printed}"
    );
    subject.check_definitions()?;
    let stored = subject.direct.find(&subject.database, COLLECTION, doc! {})?;
    ensure!(stored.len() == usize::try_from(BASE)?, "{} documents", stored.len());
    subject.convert_well(&conversion.shape, conversion.go_on)?;
    subject.check_layout(&conversion.to)
}

/// A server with fail points.
fn server() -> Result<Mongod> {
    let options = mongod::Options::default().parameter("enableTestCommands=1");
    options.replica_set(1)
}

/// Sets the mode of a fail point for these commands on a collection.
fn fail(server: &Mongod, namespace: &str, (commands, code): (&[&str], i32), mode: Bson) -> Result<()> {
    let data = doc! { "failCommands": commands, "errorCode": code, "namespace": namespace };
    let set = doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data, "$db": "admin" };
    Connection::open(server.address())?.command_ok(&set).map(drop)
}

/// mongod does not truncate its oplog within the time of a test, so a fail point returns the error.
#[test]
fn a_run_after_the_oplog_has_lost_changes_compares_all_documents() -> Result<()> {
    let server = server()?;
    let mut subject = Subject::start(&server)?;
    let namespace = format!("{}.{COLLECTION}", subject.database);
    for conversion in [to_pages(), to_another_shape(), to_plain()] {
        let following = conversion.number_of(&mut subject, &format!("update {RECORD} following"))?;
        conversion.renew(&mut subject)?;
        let ended = subject.convert_until(&conversion.shape, conversion.options, Some((following, Moment::After)))?;
        ensure!(ended.is_none(), "the run was not killed");
        // Changes that the next run does not see in the stream.
        subject.run(0, doc! { "insert": COLLECTION, "documents": [base_document(DOCUMENT)] })?;
        let change = doc! { "q": { "_id": 0 }, "u": { "$inc": { "n": 1 } } };
        subject.run(1, doc! { "update": COLLECTION, "updates": [change] })?;
        subject.run(
            0,
            doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 1 }, "limit": 1 }] },
        )?;
        fail(
            &server,
            &namespace,
            (&["aggregate"], HISTORY_LOST),
            Bson::from(doc! { "times": 1 }),
        )?;
        let printed = subject.convert_well(&conversion.shape, conversion.go_on)?;
        ensure!(
            printed.contains("the oplog no longer contains the changes"),
            "{printed}"
        );
        let stored = Numbers::from([(0, 1), (DOCUMENT, 0)]);
        ensure!(
            subject.items()?.iter().all(|item| item.get_i32("_id").ok() != Some(1)),
            "a deleted document is stored"
        );
        subject.run(0, doc! { "insert": COLLECTION, "documents": [base_document(1)] })?;
        check_items(&subject, stored)?;
        subject.check_layout(&conversion.to)?;
    }
    Ok(())
}

#[test]
fn a_run_that_reads_changes_too_late_reports_it() -> Result<()> {
    let server = server()?;
    let mut subject = Subject::start(&server)?;
    let namespace = format!("{}.{COLLECTION}", subject.database);
    let conversion = to_pages();
    conversion.renew(&mut subject)?;
    // The first three read documents, which are inspected and copied. The next one is that of the stream.
    let read_more: (&[&str], i32) = (&["getMore"], HISTORY_LOST);
    fail(&server, &namespace, read_more, Bson::from(doc! { "skip": 3 }))?;
    let ended = subject.convert_until(&conversion.shape, conversion.options, None)?;
    let Ended { code, printed } = ended.context("it was killed")?;
    ensure!(
        code == Some(1) && printed.contains("replSetResizeOplog"),
        "{code:?}: {printed}"
    );
    fail(&server, &namespace, read_more, Bson::from("off"))?;
    subject.convert_well(&conversion.shape, conversion.go_on)?;
    check_items(&subject, Numbers::new())?;
    subject.check_layout(&conversion.to)
}

#[test]
fn a_full_disk_ends_the_conversion_and_not_the_writes() -> Result<()> {
    let server = server()?;
    let mut subject = Subject::start(&server)?;
    let copy = format!("{}.{COPY}", subject.database);
    let writes: (&[&str], i32) = (&["insert", "update", "findAndModify"], OUT_OF_DISK_SPACE);
    for conversion in [to_pages(), to_another_shape(), to_plain()] {
        conversion.renew(&mut subject)?;
        beside_clients(&subject, || {
            fail(&server, &copy, writes, Bson::from("alwaysOn"))?;
            let ended = subject.convert_until(&conversion.shape, conversion.options, None)?;
            let Ended { code, printed } = ended.context("it was killed")?;
            ensure!(code == Some(1), "{code:?}: {printed}");
            ensure!(
                printed.contains("14031") || printed.contains("OutOfDiskSpace"),
                "{printed}"
            );
            fail(&server, &copy, writes, Bson::from("off"))?;
            thread::sleep(AFTERWARDS);
            subject.convert_well(&conversion.shape, conversion.go_on)
        })?;
        ensure!(
            subject.collections()? == [COLLECTION, RECORD, KEPT],
            "{:?}",
            subject.collections()?
        );
        subject.check_definitions()?;
        subject.check_layout(&conversion.to)?;
    }
    Ok(())
}
