//! Conversions that are interrupted otherwise: a proxy ends, the oplog is too short, or the disk is full.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bson::{Bson, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::retrying::{Answer, Client, Retries};
use proto_tests::stopping_relay::Moment;
use proto_tests::{crash, mongod};

use super::super::fixture::{COLLECTION, COPY, KEPT, RECORD};
use super::clients::{BASE, base_document, beside_clients};
use super::subject::{Ended, Subject};
use super::{Killed, to_another_shape, to_pages, to_plain};

/// The pause of a client between two writes, or between the end of a run and that of the client.
const PAUSE: Duration = Duration::from_millis(20);
/// The first document of a client.
const FIRST: i32 = 1000;
/// mongod's codes for a position that the oplog no longer contains.
const LOST: [i32; 2] = [136, 286];
/// The longest time until mongod truncates the oplog.
const MAX_ROLL_OVER: Duration = Duration::from_secs(30);
/// mongod's code for a full disk.
const OUT_OF_DISK_SPACE: i32 = 14031;

/// Documents and their number of changes, by `_id`.
type Numbers = BTreeMap<i32, i32>;

/// Inserts and changes documents until told to stop. Each write is sent again until there is a reply.
fn write_again(client: usize, (database, addresses): (&str, &[SocketAddr]), stopping: &AtomicBool) -> Result<Numbers> {
    let mut client = Client::new(client, addresses, (database, Retries::Writes));
    let mut written = Numbers::new();
    for id in FIRST.. {
        if stopping.load(Ordering::Relaxed) {
            break;
        }
        thread::sleep(PAUSE);
        let change = doc! { "q": { "_id": id }, "u": { "$inc": { "n": 1 } } };
        let commands = [
            doc! { "insert": COLLECTION, "documents": [base_document(id)] },
            doc! { "update": COLLECTION, "updates": [change] },
        ];
        for command in commands {
            match client.write(&command)? {
                Answer::Reply(reply) => ensure!(reply.get_i32("n")? == 1, "{command}: {reply}"),
                Answer::ReplyLost => bail!("{command}: its reply is lost"),
            }
        }
        written.insert(id, 1);
    }
    Ok(written)
}

/// Checks the documents that a proxy reads.
fn check_items(subject: &Subject, written: Numbers) -> Result<()> {
    let items = subject.items()?;
    let mut stored = Numbers::new();
    for item in &items {
        stored.insert(item.get_i32("_id")?, item.get_i32("n")?);
    }
    ensure!(stored.len() == items.len(), "an item is stored twice");
    let mut expected: Numbers = (0..BASE).map(|id| (id, 0)).collect();
    expected.extend(written);
    ensure!(
        stored == expected,
        "{} stored, {} expected",
        stored.len(),
        expected.len()
    );
    Ok(())
}

/// Kills the first proxy and starts it again while a run waits at a command. `client`: the number of a new client.
fn restarts_at(subject: &mut Subject, conversion: &Killed, (number, client): (usize, usize)) -> Result<()> {
    conversion.renew(subject)?;
    let addresses = [0, 1].map(|number: usize| subject.proxies[number].address());
    let (database, stopping) = (&subject.database.clone(), &AtomicBool::new(false));
    let written = thread::scope(|scope| -> Result<_> {
        let writer = scope.spawn(move || write_again(client, (database, &addresses), stopping));
        let mut restarts = || -> Result<()> {
            let mut run = subject.begin(&conversion.shape, conversion.options, Some((number, Moment::After)))?;
            ensure!(subject.stops(&mut run)?, "the run has ended");
            subject.proxies[0].kill()?;
            subject.proxies[0].restart()?;
            subject.relay.go_on();
            let Ended { code, printed } = run.end()?;
            ensure!(code == Some(0), "{code:?}: {printed}");
            thread::sleep(5 * PAUSE);
            Ok(())
        };
        let restarted = restarts();
        stopping.store(true, Ordering::Relaxed);
        let written = writer.join().expect("the client panicked")?;
        restarted.map(|()| written)
    })?;
    ensure!(!written.is_empty(), "nothing was written");
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

/// The position of the change stream in the record of a conversion.
fn position(subject: &mut Subject) -> Result<Document> {
    let find = doc! { "find": RECORD, "$db": &subject.database };
    let record = subject.direct.all(&find)?.pop().context("no record")?;
    Ok(record.get_document("token")?.clone())
}

/// Writes to another collection until the oplog no longer contains a position. Returns mongod's code for it.
fn roll_oplog_over(subject: &mut Subject, position: &Document) -> Result<i32> {
    let document = doc! { "text": "x".repeat(100_000) };
    let documents = vec![&document; 20];
    let begun = Instant::now();
    while begun.elapsed() < MAX_ROLL_OVER {
        subject.past(doc! { "insert": "others", "documents": &documents })?;
        let stream = doc! { "$changeStream": { "resumeAfter": position } };
        let watch = doc! { "aggregate": COLLECTION, "pipeline": [stream], "cursor": {}, "$db": &subject.database };
        let reply = subject.direct.command(&watch)?;
        if let Ok(code) = reply.get_i32("code") {
            return Ok(code);
        }
        thread::sleep(5 * PAUSE);
    }
    bail!("the oplog still contains the position after {MAX_ROLL_OVER:?}")
}

#[test]
fn a_run_after_the_oplog_has_lost_changes_compares_all_documents() -> Result<()> {
    let mut options = mongod::Options::default().parameter("syncdelay=1");
    options.oplog_mb = 1;
    let server = options.replica_set(1)?;
    let mut subject = Subject::start(&server)?;
    for conversion in [to_pages(), to_plain()] {
        let following = conversion.number_of(&mut subject, &format!("update {RECORD} following"))?;
        conversion.renew(&mut subject)?;
        let ended = subject.convert_until(&conversion.shape, conversion.options, Some((following, Moment::After)))?;
        ensure!(ended.is_none(), "the run was not killed");
        // Changes that the next run does not see in the oplog.
        subject.run(0, doc! { "insert": COLLECTION, "documents": [base_document(FIRST)] })?;
        let change = doc! { "q": { "_id": 0 }, "u": { "$inc": { "n": 1 } } };
        subject.run(1, doc! { "update": COLLECTION, "updates": [change] })?;
        let position = position(&mut subject)?;
        let code = roll_oplog_over(&mut subject, &position)?;
        ensure!(LOST.contains(&code), "mongod replies {code}");
        let printed = subject.convert_well(&conversion.shape, conversion.go_on)?;
        ensure!(
            printed.contains("the oplog no longer contains the changes"),
            "{printed}"
        );
        check_items(&subject, Numbers::from([(0, 1), (FIRST, 0)]))?;
        subject.check_layout(&conversion.to)?;
    }
    Ok(())
}

#[test]
fn a_full_disk_ends_the_conversion_and_not_the_writes() -> Result<()> {
    let server = mongod::Options::default()
        .parameter("enableTestCommands=1")
        .replica_set(1)?;
    let mut subject = Subject::start(&server)?;
    let copy = format!("{}.{COPY}", subject.database);
    let set_point = |mode: Bson| -> Result<Document> {
        let commands = ["insert", "update", "findAndModify"];
        let data = doc! { "failCommands": commands, "errorCode": OUT_OF_DISK_SPACE, "namespace": &copy };
        let set = doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data, "$db": "admin" };
        Connection::open(server.address())?.command_ok(&set)
    };
    for conversion in [to_pages(), to_another_shape(), to_plain()] {
        conversion.renew(&mut subject)?;
        beside_clients(&subject, || {
            set_point(Bson::from("alwaysOn"))?;
            let ended = subject.convert_until(&conversion.shape, conversion.options, None)?;
            let Ended { code, printed } = ended.context("it was killed")?;
            ensure!(code == Some(1), "{code:?}: {printed}");
            ensure!(
                printed.contains("14031") || printed.contains("OutOfDiskSpace"),
                "{printed}"
            );
            set_point(Bson::from("off"))?;
            thread::sleep(5 * PAUSE);
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
