//! `compact` and `check` on collections with a validator of the application.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::mongod;
use proto_tests::raw::Connection;
use proto_tests::shaped::{COLLECTION, Shaped};

use crate::compact::compact;

/// A collection with a validator, and short pages.
fn prepare() -> Result<Shaped> {
    let shaped = Shaped::start("max_items = 10")?;
    let mut application = shaped.application()?;
    let database = &shaped.database;
    let schema = doc! { "$jsonSchema": { "required": ["value"], "properties": { "value": { "bsonType": "int" } } } };
    application.command_ok(&doc! { "create": COLLECTION, "validator": schema, "$db": database })?;
    let index = doc! { "key": { "value": 1 }, "name": "value_1", "unique": true };
    application.command_ok(&doc! { "createIndexes": COLLECTION, "indexes": [index], "$db": database })?;
    let items: Vec<Document> = (0..200)
        .map(|number| doc! { "_id": number, "k": number % 3, "value": number })
        .collect();
    application.command_ok(&shaped.insert(&items))?;
    let delete = doc! { "q": { "value": { "$mod": [4, 0] } }, "limit": 0 };
    application.command_ok(&doc! { "delete": COLLECTION, "deletes": [delete], "$db": database })?;
    Ok(shaped)
}

fn listed(connection: &mut Connection, database: &str) -> Result<Document> {
    let list = doc! { "listCollections": 1, "filter": { "name": COLLECTION }, "$db": database };
    let mut listed = connection.all(&list)?;
    ensure!(listed.len() == 1, "{listed:?}");
    Ok(listed.remove(0).get_document("options")?.clone())
}

/// Fails unless the collection refuses an item that does not satisfy the validator, and a second value.
fn is_enforced(shaped: &Shaped) -> Result<()> {
    let mut application = shaped.application()?;
    for (item, expected) in [
        (doc! { "_id": -1, "k": 1, "value": "text" }, 121),
        (doc! { "_id": -1, "k": 1, "value": 1 }, 11000),
        (doc! { "_id": -1, "k": 77 }, 121),
    ] {
        let reply = application.command(&shaped.insert(&[item]))?;
        let error = reply.get_array("writeErrors")?[0]
            .as_document()
            .cloned()
            .unwrap_or_default();
        ensure!(error.get_i32("code")? == expected, "{reply}");
    }
    Ok(())
}

fn check(shaped: &Shaped) -> Result<()> {
    let printed = shaped.proxy.run("check")?;
    ensure!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stdout));
    Ok(())
}

#[test]
fn a_compacted_collection_keeps_its_validator() -> Result<()> {
    let shaped = prepare()?;
    let mut application = shaped.application()?;
    let before = listed(&mut application, &shaped.database)?;
    ensure!(before.len() == 1 && before.contains_key("validator"), "{before}");
    let printed = compact(&shaped.proxy)?;
    ensure!(printed.contains("packed: "), "{printed}");
    ensure!(listed(&mut application, &shaped.database)? == before, "options differ");
    is_enforced(&shaped)?;
    check(&shaped)
}

/// A run was killed after it had frozen the collection.
#[test]
fn a_frozen_collection_records_its_validator() -> Result<()> {
    let shaped = prepare()?;
    let database = &shaped.database;
    let mut application = shaped.application()?;
    let before = listed(&mut application, database)?;
    let mut direct = Connection::open(mongod::shared().address())?;
    let stored = listed(&mut direct, database)?;
    let clauses = stored.get_document("validator")?.get_array("$and")?;
    let frozen = doc! { "$and": [{ "mongoshape_compact": { "$exists": true } }, clauses[1].clone()] };
    direct.command_ok(&doc! { "collMod": COLLECTION, "validator": frozen, "$db": database })?;
    ensure!(listed(&mut application, database)? == before, "options differ");
    let printed = compact(&shaped.proxy)?;
    ensure!(printed.contains("packed: "), "{printed}");
    ensure!(listed(&mut application, database)? == before, "options differ");
    is_enforced(&shaped)?;
    check(&shaped)
}

/// A proxy was killed after it had set the validator, and before it searched a second time.
#[test]
fn check_reports_items_that_do_not_satisfy_the_validator() -> Result<()> {
    let shaped = prepare()?;
    let mut direct = Connection::open(mongod::shared().address())?;
    let output = |shaped: &Shaped| -> Result<String> {
        let checked = shaped.proxy.run("check")?;
        ensure!(checked.status.success(), "{checked:?}");
        Ok(String::from_utf8_lossy(&checked.stdout).into_owned())
    };
    let printed = output(&shaped)?;
    ensure!(!printed.contains("validator"), "{printed}");
    let change = doc! { "$set": { "history.$[item].value": "text" } };
    let filters = [doc! { "item.value": 1 }];
    let update = doc! { "q": { "history.value": 1 }, "u": change, "arrayFilters": filters.to_vec() };
    let mut command = doc! { "update": COLLECTION, "updates": [update], "bypassDocumentValidation": true };
    command.insert("$db", &shaped.database);
    let reply = direct.command_ok(&command)?;
    ensure!(reply.get_i32("nModified")? == 1, "{reply}");
    let printed = output(&shaped)?;
    ensure!(
        printed.contains("warning: ") && printed.contains("1 item does not satisfy"),
        "{printed}"
    );
    // The item is on the same page.
    let mut application = shaped.application()?;
    let update = doc! { "q": { "_id": 7 }, "u": { "$set": { "value": "another text" } } };
    let reply = application.command_ok(&doc! { "update": COLLECTION, "updates": [update], "$db": &shaped.database })?;
    ensure!(reply.get_i32("nModified")? == 1, "{reply}");
    let printed = output(&shaped)?;
    ensure!(printed.contains("2 items do not satisfy"), "{printed}");
    let delete = doc! { "q": { "value": { "$type": "string" } }, "limit": 0 };
    application.command_ok(&doc! { "delete": COLLECTION, "deletes": [delete], "$db": &shaped.database })?;
    let printed = output(&shaped)?;
    ensure!(!printed.contains("validator"), "{printed}");
    Ok(())
}
