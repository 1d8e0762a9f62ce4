//! `setup`, `check` and `compact` on collections with `reject_direct_writes`.

use std::fs;

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::raw::Connection;
use proto_tests::replies::first_code;
use proto_tests::shaped::{COLLECTION, Shaped, bucket};

use crate::compact::compact;

const ON: &str = "max_items = 10\nreject_direct_writes = true\n";
const OFF: &str = "max_items = 10\n";

fn item(id: i32, key: i32) -> Document {
    doc! { "_id": id, "k": key, "value": id }
}

/// The code of a command's first error, 0 without one.
fn code(connection: &mut Connection, database: &str, mut command: Document) -> Result<i32> {
    command.insert("$db", database);
    Ok(first_code(&connection.command(&command)?))
}

/// Whether mongod refuses a document that bypasses the proxy, because of the clause. An accepted one is
/// removed.
fn is_refused(direct: &mut Connection, database: &str) -> Result<bool> {
    let insert = doc! { "insert": COLLECTION, "documents": [item(-1, -1)], "$db": database };
    let reply = direct.command(&insert)?;
    let delete = doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": -1 }, "limit": 1 }], "$db": database };
    direct.command_ok(&delete)?;
    Ok(reply.to_string().contains("mongoshape_direct_writes"))
}

/// Gives the proxy's configuration other options of the shape. The proxy itself is not reloaded.
fn configure(shaped: &Shaped, options: &str) -> Result<()> {
    let file = shaped.proxy.config_file();
    let text = fs::read_to_string(&file)?;
    let others = text.split("[[bucket]]").next().unwrap_or_default();
    Ok(fs::write(
        &file,
        others.to_owned() + &bucket(&shaped.database, options),
    )?)
}

/// The output of a command that must have succeeded or failed.
fn run(shaped: &Shaped, verb: &str, succeeds: bool) -> Result<String> {
    let output = shaped.proxy.run(verb)?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success() == succeeds, "{verb}: {printed}");
    Ok(printed)
}

fn filled(options: &str) -> Result<Shaped> {
    let shaped = Shaped::start(options)?;
    let items: Vec<Document> = (0..200).map(|number| item(number, number % 3)).collect();
    shaped.application()?.command_ok(&shaped.insert(&items))?;
    Ok(shaped)
}

#[test]
fn setup_sets_and_removes_the_clause() -> Result<()> {
    let shaped = filled(OFF)?;
    let (mut direct, database) = (shaped.direct()?, &shaped.database);
    let mut application = shaped.application()?;
    let index = doc! { "key": { "value": 1 }, "name": "value_1", "unique": true };
    let indexes = doc! { "createIndexes": COLLECTION, "indexes": [index], "$db": database };
    application.command_ok(&indexes)?;
    let validator = doc! { "collMod": COLLECTION, "validator": { "value": { "$lt": 1000 } }, "$db": database };
    application.command_ok(&validator)?;
    ensure!(!is_refused(&mut direct, database)?, "refused before");
    configure(&shaped, ON)?;
    let printed = run(&shaped, "check", true)?;
    let missing = "accepts direct writes, although its shape has reject_direct_writes = true; run `mongoshape setup`";
    ensure!(printed.contains("warning: ") && printed.contains(missing), "{printed}");
    let before = shaped.indexes()?;
    let printed = run(&shaped, "setup", true)?;
    ensure!(printed.contains("direct writes are refused now"), "{printed}");
    ensure!(shaped.indexes()? == before, "a fence remains");
    ensure!(is_refused(&mut direct, database)?, "not refused");
    let printed = run(&shaped, "check", true)?;
    ensure!(!printed.contains("warning"), "{printed}");
    let printed = run(&shaped, "setup", true)?;
    ensure!(!printed.contains("direct writes"), "{printed}");
    // The other clauses are still there.
    for (document, expected) in [(item(1000, 1), 121), (doc! { "_id": 999, "k": 1, "value": 1 }, 11000)] {
        let insert = doc! { "insert": COLLECTION, "documents": [document] };
        ensure!(code(&mut application, database, insert)? == expected, "{expected}");
    }
    configure(&shaped, OFF)?;
    let printed = run(&shaped, "check", true)?;
    ensure!(
        printed.contains("although its shape has reject_direct_writes = false"),
        "{printed}"
    );
    let printed = run(&shaped, "setup", true)?;
    ensure!(printed.contains("direct writes are not refused any more"), "{printed}");
    ensure!(shaped.indexes()? == before, "a fence remains");
    ensure!(
        code(
            &mut application,
            database,
            doc! { "insert": COLLECTION, "documents": [item(1000, 1)] }
        )? == 121
    );
    Ok(())
}

#[test]
fn setup_creates_a_collection_with_the_clause() -> Result<()> {
    let shaped = Shaped::start(ON)?;
    let create = doc! { "create": COLLECTION, "$db": &shaped.database };
    shaped.direct()?.command_ok(&create)?;
    let printed = run(&shaped, "setup", true)?;
    ensure!(printed.contains("direct writes are refused now"), "{printed}");
    ensure!(is_refused(&mut shaped.direct()?, &shaped.database)?, "not refused");
    Ok(())
}

/// A page with a further field, and one with a wrong number of items.
#[test]
fn setup_refuses_a_collection_with_a_malformed_page() -> Result<()> {
    let shaped = filled(OFF)?;
    let mut direct = shaped.direct()?;
    configure(&shaped, ON)?;
    let change = |change: Document| {
        let update = doc! { "q": { "k": 1, "control.page": 0 }, "u": change };
        doc! { "update": COLLECTION, "updates": [update] }
    };
    for (broken, repaired) in [
        (doc! { "$set": { "value": 1 } }, doc! { "$unset": { "value": 1 } }),
        (doc! { "$inc": { "count": 1 } }, doc! { "$inc": { "count": -1 } }),
    ] {
        ensure!(code(&mut direct, &shaped.database, change(broken))? == 0);
        let printed = run(&shaped, "setup", false)?;
        ensure!(printed.contains("_id \"1_"), "{printed}");
        ensure!(!is_refused(&mut direct, &shaped.database)?, "refused");
        ensure!(code(&mut direct, &shaped.database, change(repaired))? == 0);
    }
    run(&shaped, "setup", true)?;
    ensure!(is_refused(&mut direct, &shaped.database)?, "not refused");
    // Written without a check, which a later check finds.
    let mut bypassing = change(doc! { "$set": { "value": 1 } });
    bypassing.insert("bypassDocumentValidation", true);
    ensure!(code(&mut direct, &shaped.database, bypassing)? == 0);
    let printed = run(&shaped, "check", true)?;
    ensure!(printed.contains("mongod checks no direct write of it"), "{printed}");
    let off = doc! { "collMod": COLLECTION, "validationLevel": "off" };
    ensure!(code(&mut direct, &shaped.database, off)? == 0);
    let printed = run(&shaped, "check", true)?;
    ensure!(printed.contains("switched its validator off"), "{printed}");
    Ok(())
}

#[test]
fn a_compacted_collection_keeps_the_clause() -> Result<()> {
    let shaped = filled(ON)?;
    let (mut direct, database) = (shaped.direct()?, &shaped.database);
    let list = doc! { "listCollections": 1, "filter": { "name": COLLECTION }, "$db": database };
    let validator = |direct: &mut Connection| -> Result<Document> {
        let options = direct.all(&list)?[0].get_document("options")?.clone();
        Ok(options.get_document("validator")?.clone())
    };
    let before = validator(&mut direct)?;
    let delete = doc! { "delete": COLLECTION, "deletes": [{ "q": { "value": { "$mod": [4, 0] } }, "limit": 0 }] };
    ensure!(code(&mut shaped.application()?, database, delete)? == 0);
    let printed = compact(&shaped.proxy)?;
    ensure!(printed.contains("packed: "), "{printed}");
    ensure!(validator(&mut direct)? == before, "the validator differs");
    // A run was killed after it had frozen the collection.
    let clauses = before.get_array("$and")?;
    let frozen = doc! { "$and": [{ "mongoshape_compact": { "$exists": true } }, clauses[0].clone()] };
    ensure!(
        code(
            &mut direct,
            database,
            doc! { "collMod": COLLECTION, "validator": frozen }
        )? == 0
    );
    compact(&shaped.proxy)?;
    ensure!(validator(&mut direct)? == before, "the validator differs");
    ensure!(is_refused(&mut direct, database)?, "not refused");
    let printed = run(&shaped, "check", true)?;
    ensure!(!printed.contains("warning"), "{printed}");
    Ok(())
}

#[test]
fn a_packed_collection_has_the_clause() -> Result<()> {
    let shaped = Shaped::start(ON)?;
    let mut direct = shaped.direct()?;
    let items: Vec<Document> = (0..50).map(|number| item(number, number % 3)).collect();
    direct.command_ok(&shaped.insert(&items))?;
    let packed = shaped.proxy.run_with("setup", &["--pack"])?;
    ensure!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stdout));
    ensure!(is_refused(&mut direct, &shaped.database)?, "not refused");
    run(&shaped, "check", true)?;
    Ok(())
}
