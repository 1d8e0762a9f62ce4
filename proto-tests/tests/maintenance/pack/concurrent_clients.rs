//! Other clients that write, delete or pack at the same time.

use std::io::{BufRead as _, BufReader, Read as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::mongod;
use proto_tests::raw::Connection;

use super::fixture::{COLLECTION, COPY, Fixture, KEPT, documents, thawed, with_time};

/// So many that they are not packed in a moment.
const MANY: i32 = 6_000;

/// Has something done past the proxy, again and again, from the moment in which the collection is frozen
/// until the run ends. Returns whether the run succeeded, and its output.
fn while_packing(fixture: &Fixture, act: impl Fn(&mut Connection, i32) -> Result<()> + Sync) -> Result<(bool, String)> {
    let ended = AtomicBool::new(false);
    let mut child = fixture.start()?;
    let mut lines = BufReader::new(child.stdout.take().context("its output")?);
    let mut printed = String::new();
    while !printed.contains("frozen: ") && lines.read_line(&mut printed)? > 0 {}
    thread::scope(|scope| {
        let actor = scope.spawn(|| -> Result<()> {
            let mut connection = Connection::open(mongod::shared().address())?;
            let mut number = 0;
            while !ended.load(Ordering::Relaxed) {
                act(&mut connection, number)?;
                number += 1;
            }
            Ok(())
        });
        lines.read_to_string(&mut printed)?;
        let status = child.wait()?;
        ended.store(true, Ordering::Relaxed);
        actor.join().map_err(|_| anyhow::anyhow!("the actor panicked"))??;
        Ok((status.success(), printed))
    })
}

#[test]
fn direct_write_during_packing_is_refused() -> Result<()> {
    let documents = documents(3000, 7);
    let mut fixture = Fixture::with(mongod::shared(), with_time(), &documents)?;
    let database = fixture.database.clone();
    let (is_well, printed) = while_packing(&fixture, |connection, number| {
        // To the document that it is about: it must not make a collection in the moment in which there is
        // none.
        let change = doc! { "q": { "_id": number % 3000 }, "u": { "$inc": { "n": 1 } } };
        let reply = connection.command(&doc! { "update": COLLECTION, "updates": [change], "$db": &database })?;
        let errors = reply.get_array("writeErrors").ok();
        let error = errors.and_then(|errors| errors.first()?.as_document());
        let code = error.and_then(|error| error.get_i32("code").ok());
        ensure!(code == Some(121) || reply.get_i32("n")? == 0, "{reply}");
        Ok(())
    })?;
    ensure!(is_well, "{printed}");
    fixture.check_packed(&documents)
}

/// Checks that a write in spite of the freeze is detected, and that the collection has it.
fn noticed(act: impl Fn(&mut Connection, &str, i32) -> Result<()> + Sync) -> Result<()> {
    let mut fixture = Fixture::with(mongod::shared(), with_time(), &documents(MANY, 50))?;
    let before = fixture.catalog()?;
    let database = fixture.database.clone();
    let (is_well, printed) = while_packing(&fixture, |connection, number| act(connection, &database, number))?;
    ensure!(
        !is_well && printed.contains("documents were deleted or changed while they were packed"),
        "{printed}"
    );
    ensure!(
        thawed(fixture.catalog()?) == before,
        "{printed}: {:?}",
        fixture.catalog()?
    );
    // It is left to be written to, and to be packed.
    let mut new = documents(1, 1).remove(0);
    new.insert("_id", "new");
    fixture.past(doc! { "insert": COLLECTION, "documents": [new] })?;
    let stored = fixture.stored(COLLECTION)?;
    fixture.pack()?;
    fixture.check_packed(&stored)
}

#[test]
fn concurrent_delete_is_detected() -> Result<()> {
    noticed(|connection, database, number| {
        let delete = doc! { "q": { "_id": number }, "limit": 1 };
        connection.command_ok(&doc! { "delete": COLLECTION, "deletes": [delete], "$db": database })?;
        Ok(())
    })
}

#[test]
fn write_that_bypasses_the_validator_is_detected() -> Result<()> {
    noticed(|connection, database, number| {
        let change = doc! { "q": { "_id": number }, "u": { "$inc": { "n": 1 } } };
        let command = doc! { "update": COLLECTION, "updates": [change], "bypassDocumentValidation": true };
        let mut command: Document = command;
        command.insert("$db", database);
        connection.command_ok(&command)?;
        Ok(())
    })
}

#[test]
fn two_concurrent_runs_do_not_interfere() -> Result<()> {
    let documents = documents(MANY, 50);
    let mut fixture = Fixture::with(mongod::shared(), with_time(), &documents)?;
    let mut first = fixture.start()?;
    let mut lines = BufReader::new(first.stdout.take().context("its output")?);
    let mut printed = String::new();
    lines.read_line(&mut printed)?;
    let (is_well, second) = fixture.try_pack()?;
    lines.read_to_string(&mut printed)?;
    let is_first_well = first.wait()?.success();
    if !is_first_well && !is_well {
        // Each has seen the other, and ended without a change.
        let are_refused = [&printed, &second]
            .iter()
            .all(|printed| printed.contains("another run is in progress"));
        ensure!(are_refused, "{printed}\n{second}");
        fixture.pack()?;
        return fixture.check_packed(&documents);
    }
    // A run waits a little for one that may just end. Either may have been there first.
    let is_over = is_first_well && is_well && second.contains("indexes exist");
    let refused = if is_first_well { &second } else { &printed };
    ensure!(
        is_over || refused.contains("another run is in progress"),
        "{second}\n{printed}"
    );
    fixture.check_packed(&documents)
}

#[test]
fn collection_created_between_the_renames_is_kept() -> Result<()> {
    let documents = documents(100, 3);
    let mut fixture = Fixture::with(mongod::shared(), with_time(), &documents)?;
    fixture.pack()?;
    let names = [COLLECTION, COPY].map(|name| format!("{}.{name}", fixture.database));
    let rename = doc! { "renameCollection": &names[0], "to": &names[1], "$db": "admin" };
    fixture.direct.command_ok(&rename)?;
    fixture.past(doc! { "insert": COLLECTION, "documents": [{ "_id": "theirs", "k": 1 }] })?;
    let before = fixture.catalog()?;
    let printed = fixture.refused()?;
    ensure!(
        printed.contains("was created by another program while its documents were packed"),
        "{printed}"
    );
    ensure!(
        fixture.output("check")?.contains("was created by another program"),
        "check does not report it"
    );
    ensure!(fixture.catalog()? == before, "{printed}");
    ensure!(
        fixture.stored(COLLECTION)?.len() == 1 && fixture.stored(KEPT)? == documents,
        "{printed}"
    );
    fixture.past(doc! { "drop": COLLECTION })?;
    fixture.pack()?;
    fixture.check_packed(&documents)
}
