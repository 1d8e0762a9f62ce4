//! Runs that are stopped or killed at any point.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::mongod;
use rustix::process::Signal;

use super::world::{COLLECTION, COPY, KEPT, World, documents, signal, thawed, with_time};

const COUNT: i32 = 3_000;
/// Times that a run is broken off.
const TIMES: u32 = 5;

/// The duration of a run that is not interrupted.
fn whole(documents: &[Document]) -> Result<Duration> {
    let world = World::with(mongod::shared(), with_time(), documents)?;
    let begun = Instant::now();
    world.pack()?;
    Ok(begun.elapsed())
}

/// Breaks a run off, somewhere.
fn break_off(world: &World, by: Signal, after: Duration) -> Result<String> {
    let child = world.start()?;
    sleep(after);
    signal(&child, by)?;
    Ok(String::from_utf8_lossy(&child.wait_with_output()?.stdout).into_owned())
}

#[test]
fn a_run_may_be_stopped_anywhere() -> Result<()> {
    let documents = documents(COUNT, 50);
    let whole = whole(&documents)?;
    let mut world = World::with(mongod::shared(), with_time(), &documents)?;
    let before = world.catalog()?;
    for number in 0..TIMES {
        let said = break_off(&world, Signal::TERM, whole * number / TIMES)?;
        if world.uuid(KEPT)?.is_some() {
            ensure!(said.contains("packed: "), "{said}");
            return world.check_packed(&documents);
        }
        ensure!(thawed(world.catalog()?) == before, "{said}: {:?}", world.catalog()?);
        ensure!(world.stored(COLLECTION)? == documents, "{said}");
    }
    world.pack()?;
    world.check_packed(&documents)
}

#[test]
fn a_run_may_be_killed_anywhere() -> Result<()> {
    let documents = documents(COUNT, 50);
    let whole = whole(&documents)?;
    let mut world = World::with(mongod::shared(), with_time(), &documents)?;
    for number in 0..TIMES {
        break_off(&world, Signal::KILL, whole * number / TIMES)?;
        // Before, an empty collection may hold that name free.
        let kept = !world.stored(KEPT)?.is_empty();
        let plain = world.stored(if kept { KEPT } else { COLLECTION })?;
        ensure!(
            plain == documents,
            "killed after {number} parts: {} documents",
            plain.len()
        );
        if kept {
            break;
        }
    }
    world.pack()?;
    world.check_packed(&documents)
}

#[test]
fn a_frozen_collection_is_read_only_until_the_next_run() -> Result<()> {
    let documents = documents(100, 3);
    let mut world = World::with(mongod::shared(), with_time(), &documents)?;
    // What one leaves that is killed while it fills the copy.
    let validator = doc! { "mongoshape_pack": { "$exists": true } };
    world.past(doc! { "collMod": COLLECTION, "validator": validator })?;
    let page = doc! { "_id": "0_1698349623", "k": 0, "count": 0, "history": [] };
    world.past(doc! { "insert": COPY, "documents": [page] })?;
    let said = world.said("check")?;
    ensure!(
        said.contains("refuses writes because its documents are being packed"),
        "{said}"
    );
    let said = world.said("setup")?;
    ensure!(
        said.contains("refuses writes because its documents are being packed"),
        "{said}"
    );
    let find = doc! { "find": COLLECTION, "$db": &world.database };
    let refused = world.application.command(&find)?;
    let words = refused.get_str("errmsg")?;
    ensure!(
        words.contains("is being packed by `mongoshape setup --pack`"),
        "{words}"
    );
    let said = world.pack()?;
    ensure!(
        said.contains("an earlier run was interrupted while the collection was frozen; packing starts again"),
        "{said}"
    );
    world.check_packed(&documents)
}

#[test]
fn next_run_finishes_between_the_renames() -> Result<()> {
    for mongod in [mongod::shared(), mongod::shared_replica_set()] {
        let documents = documents(100, 3);
        let mut world = World::with(mongod, with_time(), &documents)?;
        world.pack()?;
        let pages = world.uuid(COLLECTION)?;
        let names = [COLLECTION, COPY].map(|name| format!("{}.{name}", world.database));
        let rename = doc! { "renameCollection": &names[0], "to": &names[1], "$db": "admin" };
        world.direct.command_ok(&rename)?;
        for verb in ["check", "setup"] {
            let said = world.said(verb)?;
            ensure!(
                said.contains("does not exist because it is being replaced by its pages"),
                "{said}"
            );
        }
        ensure!(world.uuid(COLLECTION)?.is_none(), "somebody has made it");
        let said = world.pack()?;
        ensure!(said.contains("packed: 100 documents"), "{said}");
        ensure!(world.uuid(COLLECTION)? == pages, "other pages");
        world.check_packed(&documents)?;
    }
    Ok(())
}

#[test]
fn next_run_restores_the_name_and_packs_again_if_the_copy_is_missing() -> Result<()> {
    let documents = documents(100, 3);
    let mut world = World::with(mongod::shared(), with_time(), &documents)?;
    world.pack()?;
    world
        .direct
        .command_ok(&doc! { "drop": COLLECTION, "$db": &world.database })?;
    let said = world.said("check")?;
    ensure!(
        said.contains("does not exist: all its documents are in items.mongoshape_plain"),
        "{said}"
    );
    let said = world.pack()?;
    ensure!(said.contains("packed: 100 documents"), "{said}");
    world.check_packed(&documents)
}

#[test]
fn incomplete_copy_is_not_swapped_in() -> Result<()> {
    let documents = documents(100, 3);
    let mut world = World::with(mongod::shared(), with_time(), &documents)?;
    world.pack()?;
    world.run(doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 5 }, "limit": 1 }] })?;
    let names = [COLLECTION, COPY, KEPT].map(|name| format!("{}.{name}", world.database));
    let rename = doc! { "renameCollection": &names[0], "to": &names[1], "$db": "admin" };
    world.direct.command_ok(&rename)?;
    let said = world.refused()?;
    ensure!(
        said.contains("items.mongoshape_pack does not contain the documents of items.mongoshape_plain"),
        "{said}"
    );
    // As it says.
    let rename = doc! { "renameCollection": &names[2], "to": &names[0], "$db": "admin" };
    world.direct.command_ok(&rename)?;
    world.pack()?;
    world.check_packed(&documents)
}
