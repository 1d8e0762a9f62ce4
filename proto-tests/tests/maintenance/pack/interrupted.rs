//! Runs that are stopped or killed at any point.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::mongod;
use rustix::process::Signal;

use super::fixture::{COLLECTION, COPY, Fixture, KEPT, documents, signal, thawed, with_time};

const COUNT: i32 = 3_000;
/// Times that a run is broken off.
const TIMES: u32 = 5;

/// The duration of a run that is not interrupted.
fn whole(documents: &[Document]) -> Result<Duration> {
    let fixture = Fixture::with(mongod::shared(), with_time(), documents)?;
    let begun = Instant::now();
    fixture.pack()?;
    Ok(begun.elapsed())
}

/// Breaks a run off, somewhere.
fn break_off(fixture: &Fixture, by: Signal, after: Duration) -> Result<String> {
    let child = fixture.start()?;
    sleep(after);
    signal(&child, by)?;
    Ok(String::from_utf8_lossy(&child.wait_with_output()?.stdout).into_owned())
}

#[test]
fn a_run_may_be_stopped_anywhere() -> Result<()> {
    let documents = documents(COUNT, 50);
    let whole = whole(&documents)?;
    let mut fixture = Fixture::with(mongod::shared(), with_time(), &documents)?;
    let before = fixture.catalog()?;
    for number in 0..TIMES {
        let printed = break_off(&fixture, Signal::TERM, whole * number / TIMES)?;
        if fixture.uuid(KEPT)?.is_some() {
            ensure!(printed.contains("packed: "), "{printed}");
            return fixture.check_packed(&documents);
        }
        ensure!(
            thawed(fixture.catalog()?) == before,
            "{printed}: {:?}",
            fixture.catalog()?
        );
        ensure!(fixture.stored(COLLECTION)? == documents, "{printed}");
    }
    fixture.pack()?;
    fixture.check_packed(&documents)
}

#[test]
fn a_run_may_be_killed_anywhere() -> Result<()> {
    let documents = documents(COUNT, 50);
    let whole = whole(&documents)?;
    let mut fixture = Fixture::with(mongod::shared(), with_time(), &documents)?;
    for number in 0..TIMES {
        break_off(&fixture, Signal::KILL, whole * number / TIMES)?;
        // Before, an empty collection may hold that name free.
        let kept = !fixture.stored(KEPT)?.is_empty();
        let plain = fixture.stored(if kept { KEPT } else { COLLECTION })?;
        ensure!(
            plain == documents,
            "killed after {number} parts: {} documents",
            plain.len()
        );
        if kept {
            break;
        }
    }
    fixture.pack()?;
    fixture.check_packed(&documents)
}

#[test]
fn a_frozen_collection_is_read_only_until_the_next_run() -> Result<()> {
    let documents = documents(100, 3);
    let mut fixture = Fixture::with(mongod::shared(), with_time(), &documents)?;
    // The state after a run that was killed while it filled the copy.
    let validator = doc! { "mongoshape_pack": { "$exists": true } };
    fixture.past(doc! { "collMod": COLLECTION, "validator": validator })?;
    let page = doc! { "_id": "0_1698349623", "k": 0, "count": 0, "history": [] };
    fixture.past(doc! { "insert": COPY, "documents": [page] })?;
    let printed = fixture.output("check")?;
    ensure!(
        printed.contains("refuses writes because its documents are being packed"),
        "{printed}"
    );
    let printed = fixture.output("setup")?;
    ensure!(
        printed.contains("refuses writes because its documents are being packed"),
        "{printed}"
    );
    let find = doc! { "find": COLLECTION, "$db": &fixture.database };
    let refused = fixture.application()?.command(&find)?;
    let words = refused.get_str("errmsg")?;
    ensure!(
        words.contains("is being packed by `mongoshape setup --pack`"),
        "{words}"
    );
    let printed = fixture.pack()?;
    ensure!(
        printed.contains("an earlier run was interrupted while the collection was frozen; packing starts again"),
        "{printed}"
    );
    fixture.check_packed(&documents)
}

#[test]
fn next_run_finishes_between_the_renames() -> Result<()> {
    for mongod in [mongod::shared(), mongod::shared_replica_set()] {
        let documents = documents(100, 3);
        let mut fixture = Fixture::with(mongod, with_time(), &documents)?;
        fixture.pack()?;
        let pages = fixture.uuid(COLLECTION)?;
        let names = [COLLECTION, COPY].map(|name| format!("{}.{name}", fixture.database));
        let rename = doc! { "renameCollection": &names[0], "to": &names[1], "$db": "admin" };
        fixture.direct.command_ok(&rename)?;
        for verb in ["check", "setup"] {
            let printed = fixture.output(verb)?;
            ensure!(
                printed.contains("does not exist because it is being replaced by its pages"),
                "{printed}"
            );
        }
        ensure!(fixture.uuid(COLLECTION)?.is_none(), "another program has created it");
        let printed = fixture.pack()?;
        ensure!(printed.contains("packed: 100 documents"), "{printed}");
        ensure!(fixture.uuid(COLLECTION)? == pages, "other pages");
        fixture.check_packed(&documents)?;
    }
    Ok(())
}

#[test]
fn next_run_restores_the_name_and_packs_again_if_the_copy_is_missing() -> Result<()> {
    let documents = documents(100, 3);
    let mut fixture = Fixture::with(mongod::shared(), with_time(), &documents)?;
    fixture.pack()?;
    fixture
        .direct
        .command_ok(&doc! { "drop": COLLECTION, "$db": &fixture.database })?;
    let printed = fixture.output("check")?;
    ensure!(
        printed.contains("does not exist: all its documents are in items.mongoshape_plain"),
        "{printed}"
    );
    let printed = fixture.pack()?;
    ensure!(printed.contains("packed: 100 documents"), "{printed}");
    fixture.check_packed(&documents)
}

#[test]
fn incomplete_copy_is_not_swapped_in() -> Result<()> {
    let documents = documents(100, 3);
    let mut fixture = Fixture::with(mongod::shared(), with_time(), &documents)?;
    fixture.pack()?;
    fixture.run(doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 5 }, "limit": 1 }] })?;
    let names = [COLLECTION, COPY, KEPT].map(|name| format!("{}.{name}", fixture.database));
    let rename = doc! { "renameCollection": &names[0], "to": &names[1], "$db": "admin" };
    fixture.direct.command_ok(&rename)?;
    let printed = fixture.refused()?;
    ensure!(
        printed.contains("items.mongoshape_pack does not contain the documents of items.mongoshape_plain"),
        "{printed}"
    );
    // The repair that the error names.
    let rename = doc! { "renameCollection": &names[2], "to": &names[0], "$db": "admin" };
    fixture.direct.command_ok(&rename)?;
    fixture.pack()?;
    fixture.check_packed(&documents)
}
