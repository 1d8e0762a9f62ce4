//! Commands of a run that arrive late: after the run has ended or was killed, or during the next one.

use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::delaying_relay::{DelayingRelay, Fate};
use proto_tests::proxy::find_binary;
use proto_tests::{Proxy, ProxyOptions, mongod};
use rustix::process::Signal;

use super::fixture::{COLLECTION, COPY, Fixture, KEPT, documents, signal, with_time};

/// A proxy behind a relay that delays the commands of a run.
struct DelayedPack {
    relay: DelayingRelay,
    proxy: Proxy,
}

impl DelayedPack {
    fn open(fixture: &Fixture) -> Result<Self> {
        let relay = DelayingRelay::to(mongod::shared().address())?;
        let toml = fixture.shape.toml(&format!("{}.{COLLECTION}", fixture.database));
        let proxy = Proxy::start_with_misfits(&ProxyOptions::new(&relay.uri()).config(&toml))?;
        Ok(Self { relay, proxy })
    }

    fn pack(&self) -> Result<(bool, String)> {
        let Output { status, stdout, stderr } = self.proxy.run_with("setup", &["--pack"])?;
        let text = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
        Ok((status.success(), text))
    }

    /// Holds back the first command that is meant.
    fn hold(&self, is_meant: impl Fn(&Document) -> bool + Send + 'static) {
        let mut held = false;
        self.relay.judge(move |command| {
            if !held && is_meant(command) {
                held = true;
                return Fate::IsHeld;
            }
            Fate::Arrives
        });
    }

    fn start(&self) -> Result<Child> {
        let mut run = Command::new(find_binary()?);
        run.args(["setup", "--pack", "--config"]).arg(self.proxy.config_file());
        Ok(run.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
    }

    /// A run that is killed when it has sent what is held back.
    fn is_killed(&self) -> Result<()> {
        let mut child = self.start()?;
        let begun = Instant::now();
        while self.relay.held() == 0 {
            ensure!(begun.elapsed() < Duration::from_mins(1), "nothing is held back");
            sleep(Duration::from_millis(5));
        }
        signal(&child, Signal::KILL)?;
        child.wait()?;
        // The server may list it for a moment.
        Ok(())
    }
}

fn renames_to(name: &'static str) -> impl Fn(&Document) -> bool + Send + Clone {
    move |command| {
        let to = command
            .contains_key("renameCollection")
            .then(|| command.get_str("to").ok());
        to.flatten().is_some_and(|to| to.ends_with(&format!(".{name}")))
    }
}

fn is_freeze(command: &Document) -> bool {
    let validator = command
        .get_document("validator")
        .ok()
        .filter(|_| command.contains_key("collMod"));
    validator.is_some_and(|validator| !validator.is_empty())
}

/// The collection is unchanged, and the application can write after the delayed command has arrived.
fn is_survived(fixture: &mut Fixture, delayed: &DelayedPack, documents: &[Document]) -> Result<()> {
    let before = fixture.uuid(COLLECTION)?;
    fixture.past(doc! { "insert": COLLECTION, "documents": [{ "_id": 1_000_000, "k": 1 }] })?;
    let answers = delayed.relay.deliver()?;
    ensure!(fixture.uuid(COLLECTION)? == before, "{answers:?}: it is another by now");
    fixture.past(doc! { "insert": COLLECTION, "documents": [{ "_id": 1_000_001, "k": 1 }] })?;
    let mut expected = documents.to_vec();
    expected.extend([1_000_000, 1_000_001].map(|id| doc! { "_id": id, "k": 1 }));
    ensure!(fixture.stored(COLLECTION)? == expected, "{answers:?}");
    ensure!(
        fixture.uuid(COPY)?.is_none() && fixture.uuid(KEPT)?.is_none(),
        "{answers:?}"
    );
    fixture.pack()?;
    fixture.check_packed(&expected)
}

#[test]
fn a_first_renaming_that_arrives_after_the_thaw_does_nothing() -> Result<()> {
    let documents = documents(300, 3);
    let mut fixture = Fixture::with(mongod::shared(), with_time(), &documents)?;
    let delayed = DelayedPack::open(&fixture)?;
    delayed.hold(renames_to(KEPT));
    let (is_well, printed) = delayed.pack()?;
    ensure!(!is_well && delayed.relay.held() == 1, "{printed}");
    is_survived(&mut fixture, &delayed, &documents)
}

#[test]
fn a_freeze_that_arrives_after_the_run_has_ended_does_nothing() -> Result<()> {
    let documents = documents(300, 3);
    let mut fixture = Fixture::with(mongod::shared(), with_time(), &documents)?;
    let delayed = DelayedPack::open(&fixture)?;
    delayed.hold(is_freeze);
    let (is_well, printed) = delayed.pack()?;
    ensure!(!is_well && delayed.relay.held() == 1, "{printed}");
    is_survived(&mut fixture, &delayed, &documents)
}

#[test]
fn run_stopped_while_creating_its_fence_leaves_no_fence() -> Result<()> {
    let documents = documents(300, 3);
    let mut fixture = Fixture::with(mongod::shared(), with_time(), &documents)?;
    let before = fixture.catalog()?;
    let delayed = DelayedPack::open(&fixture)?;
    let (is_sent, sent) = mpsc::channel();
    let (is_stopped, stopped) = mpsc::channel();
    delayed.relay.judge(move |command| {
        if command.contains_key("createIndexes") && is_sent.send(()).is_ok() {
            // The process has received the signal when this is delayed.
            let _ = stopped.recv_timeout(Duration::from_mins(1));
            sleep(Duration::from_millis(200));
        }
        Fate::Arrives
    });
    let mut run = delayed.start()?;
    sent.recv_timeout(Duration::from_mins(1))?;
    drop(sent);
    signal(&run, Signal::TERM)?;
    is_stopped.send(())?;
    run.wait()?;
    // By then what the run has sent has arrived.
    sleep(Duration::from_secs(1));
    ensure!(fixture.catalog()? == before, "{:?}", fixture.catalog()?);
    fixture.pack()?;
    fixture.check_packed(&documents)
}

/// One run is killed when it has sent a renaming; that arrives while the next one does what is meant.
fn killed(renaming: &'static str, matches: impl Fn(&Document) -> bool + Send + 'static) -> Result<()> {
    let documents = documents(300, 3);
    let mut fixture = Fixture::with(mongod::shared(), with_time(), &documents)?;
    let delayed = DelayedPack::open(&fixture)?;
    delayed.hold(renames_to(renaming));
    delayed.is_killed()?;
    let relay = delayed.relay.clone();
    let has_arrived = Arc::new(AtomicBool::new(false));
    let arrived = Arc::clone(&has_arrived);
    delayed.relay.judge(move |command| {
        if !arrived.load(Ordering::Relaxed) && matches(command) {
            arrived.store(true, Ordering::Relaxed);
            relay.deliver().expect("mongod answers");
        }
        Fate::Arrives
    });
    let (is_well, printed) = delayed.pack()?;
    ensure!(has_arrived.load(Ordering::Relaxed), "it never arrived: {printed}");
    // Where it arrives before the next run has seen to it, the collection has its other name, and one run
    // more finishes.
    if !is_well {
        ensure!(
            fixture.uuid(COLLECTION)?.is_none() && fixture.uuid(KEPT)?.is_some(),
            "{printed}"
        );
        fixture.pack()?;
    }
    fixture.check_packed(&documents)
}

#[test]
fn killed_at_the_first_renaming_which_arrives_while_the_next_run_fills_its_copy() -> Result<()> {
    killed(KEPT, |command| command.contains_key("sort"))
}

#[test]
fn killed_at_the_first_renaming_which_arrives_when_the_next_run_freezes() -> Result<()> {
    killed(KEPT, is_freeze)
}

#[test]
fn killed_at_the_first_renaming_which_arrives_with_that_of_the_next_run() -> Result<()> {
    killed(KEPT, renames_to(KEPT))
}

#[test]
fn killed_at_the_first_renaming_which_arrives_between_those_of_the_next_run() -> Result<()> {
    killed(KEPT, renames_to(COLLECTION))
}

#[test]
fn killed_at_the_second_renaming_which_arrives_with_that_of_the_next_run() -> Result<()> {
    killed(COLLECTION, renames_to(COLLECTION))
}
