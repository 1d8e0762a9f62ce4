//! Commands of a run that arrive late: after the run has ended, or during the next one.

use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::delaying_relay::{DelayingRelay, Fate};
use proto_tests::raw::Connection;
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::{Proxy, ProxyOptions, mongod};

use super::interrupted::{check, items, prepare, write};

/// A collection to be packed, and a relay that delays the commands of `compact`.
struct Fixture {
    shaped: Shaped,
    relay: DelayingRelay,
    /// The proxy whose configuration has the relay as its upstream.
    proxy: Proxy,
}

impl Fixture {
    fn open() -> Result<Self> {
        let shaped = prepare(mongod::shared())?;
        let relay = DelayingRelay::to(mongod::shared().address())?;
        let toml = format!(
            "[[bucket]]\nnamespace = \"{}.{COLLECTION}\"\nkey = \"k\"\n",
            shaped.database
        );
        let proxy = Proxy::start(&ProxyOptions::new(&relay.uri()).config(&toml))?;
        Ok(Self { shaped, relay, proxy })
    }

    fn compact(&self) -> Result<(bool, String)> {
        let Output { status, stdout, stderr } = self.proxy.run("compact")?;
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

    /// A run fails; clients go on; what it had sent arrives. Everything is there, and can be packed.
    fn fails_and_is_survived(&self) -> Result<()> {
        let (is_well, printed) = self.compact()?;
        ensure!(!is_well && self.relay.held() == 1, "{printed}");
        for id in 0..50 {
            write(&self.shaped, 3_000_000 + id)?;
        }
        let before = items(&self.shaped)?;
        let answers = self.relay.deliver()?;
        ensure!(items(&self.shaped)? == before, "{printed}\n{answers:?}: items differ");
        write(&self.shaped, 4_000_000)?;
        let before = items(&self.shaped)?;
        let (is_well, printed) = self.compact()?;
        ensure!(is_well && printed.contains("packed: "), "{printed}");
        check(mongod::shared(), &self.shaped, &before)?;
        self.has_left_nothing()
    }

    /// Neither a copy nor an index of a run.
    fn has_left_nothing(&self) -> Result<()> {
        let mut direct = self.shaped.direct()?;
        let list = doc! { "listCollections": 1, "nameOnly": true, "$db": &self.shaped.database };
        let listed = direct.all(&list)?;
        ensure!(
            listed.iter().all(|one| !one.to_string().contains("compact")),
            "{listed:?}"
        );
        let indexes = self.shaped.indexes()?;
        let is_fence = |name: &&String| name.contains("_freeze_") || name.contains("_thaw_");
        ensure!(!indexes.iter().any(|name| is_fence(&name)), "{indexes:?}");
        Ok(())
    }
}

fn is_exchange(command: &Document) -> bool {
    command.contains_key("renameCollection") && command.contains_key("dropTarget")
}

fn validator(command: &Document) -> Option<&Document> {
    command
        .contains_key("collMod")
        .then(|| command.get_document("validator").ok())
        .flatten()
}

fn is_freeze(command: &Document) -> bool {
    validator(command).is_some_and(|validator| !validator.is_empty())
}

fn is_thaw(command: &Document) -> bool {
    validator(command).is_some_and(Document::is_empty)
}

#[test]
fn a_renaming_that_arrives_after_the_thaw_does_nothing() -> Result<()> {
    let fixture = Fixture::open()?;
    fixture.hold(is_exchange);
    fixture.fails_and_is_survived()
}

#[test]
fn a_freeze_that_arrives_after_the_run_has_ended_does_nothing() -> Result<()> {
    let fixture = Fixture::open()?;
    fixture.hold(is_freeze);
    fixture.fails_and_is_survived()
}

#[test]
fn a_renaming_that_was_done_though_the_answer_was_lost_is_no_failure() -> Result<()> {
    let fixture = Fixture::open()?;
    let relay = fixture.relay.clone();
    let mut held = false;
    fixture.relay.judge(move |command| {
        if is_exchange(command) {
            held = true;
            return Fate::IsHeld;
        }
        if held && command.contains_key("drop") {
            held = false;
            relay.deliver().expect("mongod answers");
        }
        Fate::Arrives
    });
    let before = items(&fixture.shaped)?;
    let (is_well, printed) = fixture.compact()?;
    ensure!(is_well && printed.contains("packed: "), "{printed}");
    check(mongod::shared(), &fixture.shaped, &before)?;
    fixture.has_left_nothing()
}

/// Whether mongod takes an update of any page.
fn takes_writes(direct: &mut Connection, database: &str) -> Result<bool> {
    let update = doc! { "q": { "control.v": 1 }, "u": { "$set": { "touched": 1 } } };
    let reply = direct.command_ok(&doc! { "update": COLLECTION, "updates": [update], "$db": database })?;
    Ok(reply.get_array("writeErrors").is_err())
}

#[test]
fn a_thaw_that_arrives_late_does_not_thaw_for_the_next_run() -> Result<()> {
    let fixture = Fixture::open()?;
    let before = items(&fixture.shaped)?;
    // One run: its copy is not renamed, and the reply to its first thaw is lost.
    let (mut renamed, mut thawed) = (false, false);
    fixture.relay.judge(move |command| {
        if is_exchange(command) && !std::mem::replace(&mut renamed, true)
            || is_thaw(command) && !std::mem::replace(&mut thawed, true)
        {
            return Fate::IsHeld;
        }
        Fate::Arrives
    });
    let (is_well, printed) = fixture.compact()?;
    ensure!(!is_well && fixture.relay.held() == 2, "{printed}");
    // It arrives at the last step of the next run.
    let (relay, database) = (fixture.relay.clone(), fixture.shaped.database.clone());
    let is_frozen = Arc::new(AtomicBool::new(false));
    let was_frozen = Arc::clone(&is_frozen);
    fixture.relay.judge(move |command| {
        if is_exchange(command) {
            relay.deliver().expect("mongod answers");
            let mut direct = Connection::open(mongod::shared().address()).expect("mongod is there");
            let takes = takes_writes(&mut direct, &database).expect("mongod answers");
            was_frozen.store(!takes, Ordering::Relaxed);
        }
        Fate::Arrives
    });
    let (is_well, printed) = fixture.compact()?;
    ensure!(is_well && printed.contains("packed: "), "{printed}");
    ensure!(is_frozen.load(Ordering::Relaxed), "it was thawed: {printed}");
    check(mongod::shared(), &fixture.shaped, &before)?;
    fixture.has_left_nothing()
}

#[test]
fn a_run_that_is_overtaken_by_another_neither_exchanges_nor_thaws() -> Result<()> {
    let fixture = Fixture::open()?;
    let before = items(&fixture.shaped)?;
    // What another one does first, in the moment in which this one is about to exchange the collections.
    let database = fixture.shaped.database.clone();
    let mut done = false;
    fixture.relay.judge(move |command| {
        if is_exchange(command) && !std::mem::replace(&mut done, true) {
            take_over(&database).expect("mongod does it");
        }
        Fate::Arrives
    });
    let (is_well, printed) = fixture.compact()?;
    ensure!(
        !is_well && printed.contains("another run has replaced the fence"),
        "{printed}"
    );
    ensure!(
        !takes_writes(&mut fixture.shaped.direct()?, &fixture.shaped.database)?,
        "it was thawed: {printed}"
    );
    let (is_well, printed) = fixture.compact()?;
    ensure!(
        is_well && printed.contains("an earlier run was interrupted while the collection was frozen"),
        "{printed}"
    );
    check(mongod::shared(), &fixture.shaped, &before)?;
    fixture.has_left_nothing()
}

/// Puts another fence up, and drops the copy.
fn take_over(database: &str) -> Result<()> {
    let mut direct = Connection::open(mongod::shared().address())?;
    for index in direct.all(&doc! { "listIndexes": COLLECTION, "$db": database })? {
        let name = index.get_str("name")?;
        if name.contains("_freeze_") || name.contains("_thaw_") {
            direct.command_ok(&doc! { "dropIndexes": COLLECTION, "index": name, "$db": database })?;
        }
    }
    let copy = format!("{COLLECTION}.mongoshape_compact");
    direct.command_ok(&doc! { "drop": copy, "$db": database })?;
    Ok(())
}
