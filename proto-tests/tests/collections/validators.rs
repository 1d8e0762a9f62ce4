//! Validators of the application: what the random comparison does not do.

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::delaying_relay::{DelayingRelay, Fate};
use proto_tests::raw::Connection;
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::{ProxyOptions, mongod};

fn in_database(shaped: &Shaped, mut command: Document) -> Document {
    command.insert("$db", &shaped.database);
    command
}

fn options(connection: &mut Connection, shaped: &Shaped, name: &str) -> Result<Document> {
    let list = in_database(shaped, doc! { "listCollections": 1, "filter": { "name": name } });
    let listed = connection.all(&list)?;
    Ok(listed[0].get_document("options")?.clone())
}

fn first_error(reply: &Document) -> Result<&Document> {
    let errors = reply.get_array("writeErrors")?;
    errors
        .first()
        .and_then(Bson::as_document)
        .ok_or_else(|| anyhow::anyhow!("{reply}"))
}

/// One proxy changes the validator, another writes.
#[test]
fn a_validator_holds_for_another_proxy() -> Result<()> {
    let options_of = ProxyOptions::new(&mongod::shared_replica_set().uri());
    let shaped = Shaped::with("", &options_of)?;
    let other = shaped.another_proxy_with(&options_of)?;
    let (mut one, mut two) = (shaped.application()?, Connection::open(other.address())?);
    let item = |id: i32, key: i32, value: Bson| doc! { "_id": id, "k": key, "value": value };
    two.command_ok(&shaped.insert(&[item(1, 1, 1.into()), item(2, 2, 2.into())]))?;
    let validator = doc! { "value": { "$type": "int" } };
    one.command_ok(&in_database(
        &shaped,
        doc! { "collMod": COLLECTION, "validator": validator.clone() },
    ))?;
    let batch = [
        item(3, 1, 3.into()),
        item(4, 2, "text".into()),
        item(5, 1, 5.into()),
        item(6, 3, 6.into()),
    ];
    let reply = two.command(&shaped.insert(&batch))?;
    let error = first_error(&reply)?;
    let info = error.get_document("errInfo")?;
    ensure!(reply.get_i32("n")? == 1 && error.get_i32("index")? == 1, "{reply}");
    ensure!(info.get_i32("failingDocumentId")? == 4, "{reply}");
    ensure!(
        info.get_document("details")?.get_str("consideredType")? == "string",
        "{reply}"
    );
    let find = in_database(&shaped, doc! { "find": COLLECTION, "sort": { "_id": 1 } });
    let ids: Vec<i32> = one
        .all(&find)?
        .iter()
        .map(|item| item.get_i32("_id").unwrap_or(0))
        .collect();
    ensure!(ids == [1, 2, 3], "{ids:?}");
    two.command_ok(&in_database(
        &shaped,
        doc! { "collMod": COLLECTION, "validationLevel": "off" },
    ))?;
    one.command_ok(&shaped.insert(&[item(7, 2, "text".into())]))?;
    let expected = doc! { "validator": validator, "validationLevel": "off", "validationAction": "error" };
    ensure!(options(&mut one, &shaped, COLLECTION)? == expected, "options differ");
    Ok(())
}

/// mongod ignores an option that is `undefined`.
#[test]
fn an_undefined_option_keeps_the_validator_of_pages() -> Result<()> {
    let shaped = Shaped::start("")?;
    let mut application = shaped.application()?;
    let validator = |least: i32| doc! { "n": { "$gte": least } };
    for (command, least) in [("create", 0), ("collMod", 1)] {
        let command = doc! { command: COLLECTION, "validator": validator(least), "validationLevel": Bson::Undefined };
        application.command_ok(&in_database(&shaped, command))?;
        let index = doc! { "key": { "value": 1 }, "name": "value_1", "unique": true };
        let create = doc! { "createIndexes": COLLECTION, "indexes": [index] };
        application.command_ok(&in_database(&shaped, create))?;
        let item = |id: i32, n: i32, value: i32| doc! { "_id": id, "k": 1, "n": n, "value": value };
        let reply = application.command(&shaped.insert(&[item(least, 5, least), item(8, 5, least)]))?;
        ensure!(
            reply.get_i32("n")? == 1 && first_error(&reply)?.get_i32("code")? == 11000,
            "{reply}"
        );
        let reply = application.command(&shaped.insert(&[item(9, least - 1, 9)]))?;
        ensure!(first_error(&reply)?.get_i32("code")? == 121, "{reply}");
    }
    // Without another option, nothing changes.
    let before = options(&mut application, &shaped, COLLECTION)?;
    let modify = doc! { "collMod": COLLECTION, "validationAction": Bson::Undefined, "validationLevel": Bson::Null };
    application.command_ok(&in_database(&shaped, modify))?;
    ensure!(
        options(&mut application, &shaped, COLLECTION)? == before,
        "options differ"
    );
    Ok(())
}

/// Another proxy creates the collection after this one has found none.
#[test]
fn a_validator_of_a_collection_that_appears_is_evaluated_for_items() -> Result<()> {
    let set = mongod::shared_replica_set();
    let relay = DelayingRelay::to(set.address())?;
    let shaped = Shaped::with("", &ProxyOptions::new(&relay.uri()))?;
    let second = shaped.another_proxy_with(&ProxyOptions::new(&set.uri()))?;
    let mut application = shaped.application()?;
    let first = shaped.insert(&[doc! { "_id": 1, "k": 1, "n": 1 }]);
    let mut other = Some(Connection::open(second.address())?);
    relay.judge(move |command| {
        if command.contains_key("collMod")
            && let Some(mut other) = other.take()
        {
            other.command_ok(&first).expect("the other client's insert");
        }
        Fate::Arrives
    });
    let validator = doc! { "n": { "$not": { "$lt": 0 } } };
    let modify = doc! { "collMod": COLLECTION, "validator": validator.clone() };
    application.command_ok(&in_database(&shaped, modify))?;
    let reply = application.command(&shaped.insert(&[doc! { "_id": 2, "k": 1, "n": -1 }]))?;
    ensure!(first_error(&reply)?.get_i32("code")? == 121, "{reply}");
    application.command_ok(&shaped.insert(&[doc! { "_id": 3, "k": 1, "n": 2 }]))?;
    let listed = options(&mut application, &shaped, COLLECTION)?;
    ensure!(listed.get_document("validator")? == &validator, "{listed}");
    Ok(())
}

/// The collection's validator accepts a document with `control.v` as a page.
#[test]
fn a_document_that_is_similar_to_a_page_is_evaluated() -> Result<()> {
    let shaped = Shaped::with("", &ProxyOptions::new(&mongod::shared_replica_set().uri()))?;
    let mut application = shaped.application()?;
    let create = doc! { "create": COLLECTION, "validator": { "value": { "$type": "int" } } };
    application.command_ok(&in_database(&shaped, create))?;
    let item = |id: i32, value: Bson| doc! { "_id": id, "k": id, "control": { "v": 3 }, "value": value };
    let items = [item(1, 1.into()), item(2, "text".into()), item(3, 3.into())];
    let reply = application.command(&shaped.insert(&items))?;
    let error = first_error(&reply)?;
    ensure!(
        reply.get_i32("n")? == 1 && error.get_i32("index")? == 1 && error.get_i32("code")? == 121,
        "{reply}"
    );
    let find = in_database(&shaped, doc! { "find": COLLECTION });
    ensure!(application.all(&find)? == [item(1, 1.into())], "items differ");
    Ok(())
}

/// A page whose error mongod shortens.
#[test]
fn a_large_page_reports_its_item() -> Result<()> {
    let shaped = Shaped::with("", &ProxyOptions::new(&mongod::shared_replica_set().uri()))?;
    let mut application = shaped.application()?;
    let validator = doc! { "value": { "$type": "int" } };
    application.command_ok(&in_database(
        &shaped,
        doc! { "create": COLLECTION, "validator": validator },
    ))?;
    let large = "x".repeat(4_000_000);
    let item = |id: i32, value: Bson| doc! { "_id": id, "k": 1, "value": value, "large": &large };
    for id in 1..=3 {
        application.command_ok(&shaped.insert(&[item(id, id.into())]))?;
    }
    let reply = application.command(&shaped.insert(&[item(4, 4.5.into())]))?;
    let info = first_error(&reply)?.get_document("errInfo")?;
    ensure!(info.get_i32("failingDocumentId")? == 4, "{info}");
    let update = doc! { "q": { "_id": 2 }, "u": { "$set": { "value": Bson::Null } } };
    let reply = application.command(&in_database(
        &shaped,
        doc! { "update": COLLECTION, "updates": [update] },
    ))?;
    let info = first_error(&reply)?.get_document("errInfo")?;
    ensure!(
        info.get_document("details")?.get_str("consideredType")? == "null",
        "{info}"
    );
    Ok(())
}

/// The validator of unique indexes is not the application's.
#[test]
fn unique_indexes_do_not_change_the_options() -> Result<()> {
    let shaped = Shaped::start("")?;
    let mut application = shaped.application()?;
    let create = in_database(&shaped, doc! { "create": COLLECTION });
    application.command_ok(&create)?;
    let index = doc! { "key": { "value": 1 }, "name": "value_1", "unique": true };
    application.command_ok(&in_database(
        &shaped,
        doc! { "createIndexes": COLLECTION, "indexes": [index] },
    ))?;
    ensure!(
        options(&mut application, &shaped, COLLECTION)?.is_empty(),
        "options differ"
    );
    // mongod 6.0 refuses a `create` of a collection that exists, also with equal options.
    let expected = (mongod::find_program()?.version.major < 7).then_some(48);
    let reply = application.command(&create)?;
    ensure!(reply.get_i32("code").ok() == expected, "{reply}");
    let validator = doc! { "value": { "$gt": 0 } };
    let modify = doc! { "collMod": COLLECTION, "validator": validator.clone() };
    application.command_ok(&in_database(&shaped, modify))?;
    let expected = doc! { "validator": validator, "validationLevel": "strict", "validationAction": "error" };
    ensure!(
        options(&mut application, &shaped, COLLECTION)? == expected,
        "options differ"
    );
    let reply = application.command(&create)?;
    ensure!(reply.get_i32("code")? == 48, "{reply}");
    Ok(())
}

/// A refused validator creates no collection, and a mistake has mongod's own words.
#[test]
fn a_validator_without_an_equivalent_creates_nothing() -> Result<()> {
    let shaped = Shaped::start("")?;
    let mut application = shaped.application()?;
    for (validator, code) in [
        (doc! { "$expr": true }, 115),
        (doc! { "$jsonSchema": { "minProperties": 1 } }, 115),
        (doc! { "$nonsense": 1 }, 2),
        (doc! { "$jsonSchema": { "nonsense": 1 } }, 9),
    ] {
        let create = in_database(&shaped, doc! { "create": COLLECTION, "validator": validator });
        let reply = application.command(&create)?;
        ensure!(reply.get_i32("code")? == code, "{reply}");
    }
    let listed = application.all(&in_database(&shaped, doc! { "listCollections": 1 }))?;
    ensure!(listed.is_empty(), "{listed:?}");
    Ok(())
}
