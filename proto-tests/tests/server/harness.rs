//! Tests of the harness: its servers answer, and are gone afterwards, however the owner ended.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use mongodb::options::WriteConcern;
use proto_tests::{Mongod, client, database_name, mongod, raw};
use rustix::process::{Pid, test_kill_process};

fn runs(id: u32) -> bool {
    let id = Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
    // One that has ended but was not yet waited for still has an entry in the table.
    let is_zombie = std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| stat.contains(") Z "));
    test_kill_process(id).is_ok() && !is_zombie
}

#[tokio::test]
async fn a_standalone_starts_answers_and_stops() -> Result<()> {
    let mongod = Mongod::standalone()?;
    let id = mongod.ids()[0];
    let collection = client(&mongod.uri())
        .await?
        .database(&database_name())
        .collection::<Document>("c");
    collection.insert_one(doc! { "_id": 1 }).await?;
    assert_eq!(collection.count_documents(doc! {}).await?, 1);
    assert!(runs(id));
    drop(mongod);
    assert!(!runs(id));
    Ok(())
}

#[tokio::test]
async fn a_replica_set_of_three_elects_another_primary() -> Result<()> {
    let mut mongod = Mongod::replica_set(3)?;
    let collection = client(&mongod.uri())
        .await?
        .database(&database_name())
        .collection::<Document>("c");
    collection.insert_one(doc! { "_id": 1 }).await?;
    let ids = mongod.ids();
    let first = mongod.primary()?;
    mongod.kill(first)?;
    assert!(!runs(ids[first]));
    assert_ne!(mongod.primary()?, first);
    drop(mongod);
    assert!(ids.iter().all(|id| !runs(*id)));
    Ok(())
}

/// What a kill and a restart must not lose: the port, the files, and the acknowledged write.
#[tokio::test]
async fn killed_standalone_restarts_with_its_data_and_port() -> Result<()> {
    let mut mongod = Mongod::standalone()?;
    let (address, folder) = (mongod.address(), mongod.folders()[0].to_owned());
    let database = client(&mongod.uri()).await?.database(&database_name());
    let collection = database.collection::<Document>("c");
    let journaled = WriteConcern::builder().journal(true).build();
    collection
        .insert_one(doc! { "_id": 1 })
        .write_concern(journaled)
        .await?;
    for _ in 0..2 {
        mongod.kill(0)?;
        assert!(folder.exists() && raw::Connection::open(address).is_err());
        mongod.restart(0)?;
        assert_eq!(mongod.address(), address);
        let stored = raw::Connection::open(address)?.find(database.name(), "c", doc! {})?;
        assert_eq!(stored, [doc! { "_id": 1 }]);
    }
    let id = mongod.ids()[0];
    drop(mongod);
    assert!(!runs(id) && !folder.exists());
    Ok(())
}

#[test]
fn a_set_elects_again_after_a_step_down_and_takes_a_killed_member_back() -> Result<()> {
    let mut mongod = Mongod::replica_set(3)?;
    let first = mongod.step_down(5)?;
    let second = mongod.primary()?;
    assert_ne!(first, second);
    mongod.kill(second)?;
    mongod.primary()?;
    mongod.restart(second)?;
    for address in mongod.addresses() {
        let hello = raw::Connection::open(address)?.command_ok(&doc! { "hello": 1, "$db": "admin" })?;
        let states = ["isWritablePrimary", "secondary"].map(|state| hello.get_bool(state).unwrap_or(false));
        assert!(states.contains(&true), "{hello}");
    }
    Ok(())
}

#[test]
fn two_test_servers_are_independent() -> Result<()> {
    let (one, other) = (Mongod::standalone()?, Mongod::standalone()?);
    assert_ne!(one.address(), other.address());
    for server in [&one, &other] {
        let status =
            raw::Connection::open(server.address())?.command_ok(&doc! { "serverStatus": 1, "$db": "admin" })?;
        assert_eq!(status.get_i64("pid")?, i64::from(server.ids()[0]));
    }
    Ok(())
}

#[test]
fn a_panic_stops_the_server() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let test = std::thread::spawn(move || {
        let mongod = Mongod::standalone().unwrap();
        sender.send(mongod.ids()[0]).unwrap();
        panic!("on purpose");
    });
    let id = receiver.recv().unwrap();
    assert!(test.join().is_err());
    assert!(!runs(id));
}

/// The shared server is never dropped: the test process that owns it is killed here, and the server must end
/// all the same.
#[test]
fn the_shared_server_ends_with_its_process_even_when_that_is_killed() -> Result<()> {
    let mut owner = Command::new(std::env::current_exe()?)
        .args([
            "--exact",
            "harness::owner_of_a_shared_server",
            "--ignored",
            "--nocapture",
        ])
        .stdout(Stdio::piped())
        .spawn()?;
    let output = owner.stdout.take().context("no pipe")?;
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(output));
    let line = lines
        .by_ref()
        .map_while(Result::ok)
        .find_map(|line| line.split_once("server: ").map(|(_, id)| id.to_owned()));
    let line = line.context("the owner started no server")?;
    let (id, folder) = line.split_once(' ').context("id and folder")?;
    let id = id.parse()?;
    assert!(runs(id) && Path::new(folder).exists());
    owner.kill()?;
    owner.wait()?;
    let deadline = Instant::now() + Duration::from_secs(20);
    while runs(id) || Path::new(folder).exists() {
        ensure!(Instant::now() < deadline, "mongod {id} or {folder} outlived its owner");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[test]
#[ignore = "is run, and killed, by the test above"]
#[expect(clippy::print_stdout, reason = "the test that started it reads its output")]
fn owner_of_a_shared_server() {
    // The thread that started the server ends first, as a test's does: the server must stay.
    std::thread::spawn(|| drop(mongod::shared().ids())).join().unwrap();
    let shared = mongod::shared();
    raw::Connection::open(shared.address())
        .unwrap()
        .command_ok(&doc! { "ping": 1, "$db": "admin" })
        .unwrap();
    println!("server: {} {}", shared.ids()[0], shared.folders()[0].display());
    loop {
        std::thread::park();
    }
}

/// The same for a user: the failed test's output has one line with the remedy.
#[test]
fn a_mongod_that_lacks_a_library_is_reported_in_one_line() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("mongod");
    let message = "error while loading shared libraries: libcurl.so.4: cannot open shared object file";
    std::fs::write(&script, format!("#!/bin/sh\necho 'mongod: {message}' >&2\nexit 127\n"))?;
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let output = Command::new(std::env::current_exe()?)
        .args([
            "--exact",
            "harness::owner_of_a_shared_server",
            "--ignored",
            "--nocapture",
        ])
        .env("MONGOSHAPE_MONGOD", &script)
        .output()?;
    let lines = [output.stdout, output.stderr].concat();
    let lines = String::from_utf8(lines)?;
    let line = lines
        .lines()
        .find(|line| line.contains("libcurl"))
        .context("not reported")?;
    assert!(
        line.contains("apt-get install libcurl4") && line.contains(message),
        "{line}"
    );
    assert!(!output.status.success());
    Ok(())
}
