//! `reject_direct_writes`: mongod refuses writes that bypass the proxy, and none of the proxy.

use anyhow::{Result, ensure};
use bson::{Bson, DateTime, Document, bson, doc};
use proto_tests::raw::Connection;
use proto_tests::replies::first_code;
use proto_tests::sessions::lsid;
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::{ProxyOptions, mongod};

const OPTIONS: &str = "time = \"at\"\nmax_items = 3\nreject_direct_writes = true\n";
const DOCUMENT_VALIDATION_FAILURE: i32 = 121;

fn in_database(shaped: &Shaped, mut command: Document) -> Document {
    command.insert("$db", &shaped.database);
    command
}

fn item(id: i32, key: i32) -> Document {
    doc! { "_id": id, "k": key, "at": DateTime::from_millis(i64::from(id) * 1000), "value": id, "count": 7 }
}

fn update(filter: Document, change: impl Into<Bson>) -> Document {
    doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change.into() }] }
}

/// The code of a command's first error, 0 without one.
fn code(connection: &mut Connection, shaped: &Shaped, command: Document) -> Result<i32> {
    Ok(first_code(&connection.command(&in_database(shaped, command))?))
}

/// Whether mongod refuses a plain document.
fn refuses_plain_document(direct: &mut Connection, shaped: &Shaped) -> Result<bool> {
    let insert = doc! { "insert": COLLECTION, "documents": [item(9, 1)] };
    Ok(code(direct, shaped, insert)? == 121)
}

fn succeeds(connection: &mut Connection, shaped: &Shaped, command: &Document) -> Result<Document> {
    let reply = connection.command_ok(&in_database(shaped, command.clone()))?;
    ensure!(!reply.contains_key("writeErrors"), "{command}: {reply}");
    Ok(reply)
}

fn options(connection: &mut Connection, shaped: &Shaped) -> Result<Document> {
    let list = in_database(shaped, doc! { "listCollections": 1, "filter": { "name": COLLECTION } });
    Ok(connection.all(&list)?[0].get_document("options")?.clone())
}

type Described = (&'static str, Document);

/// Inserts of documents that are no pages.
fn inserts(page: &Document) -> Result<Vec<Described>> {
    let mut without_control = page.clone();
    without_control.remove("control");
    without_control.insert("_id", "another");
    let mut other_version = page.clone();
    other_version.insert("_id", "another");
    other_version.get_document_mut("control")?.insert("v", 2);
    let control = doc! { "v": 1, "page": 7, "bytes": 0 };
    let documents = [
        ("a document", item(9, 1)),
        ("no key", doc! { "_id": 9 }),
        (
            "fields of a page",
            doc! { "k": 1, "count": 0, "history": [], "control": {} },
        ),
        (
            "no array",
            doc! { "k": 1, "count": 0, "history": 1, "control": control },
        ),
        ("no page header", without_control),
        ("another layout", other_version),
    ];
    let insert = |(what, document)| (what, doc! { "insert": COLLECTION, "documents": [document] });
    Ok(documents.into_iter().map(insert).collect())
}

/// Updates that take a page for a document, or change a part of a page.
fn updates() -> Vec<Described> {
    let upsert = doc! { "q": { "k": 8 }, "u": { "$set": { "value": 1 } }, "upsert": true };
    let modify = doc! { "findAndModify": COLLECTION, "query": { "k": 1 }, "update": { "$set": { "value": 1 } } };
    let mut commands = vec![
        ("an upsert", doc! { "update": COLLECTION, "updates": [upsert] }),
        ("findAndModify", modify),
        (
            "a pipeline",
            update(doc! { "k": 1 }, bson!([{ "$set": { "value": 1 } }])),
        ),
    ];
    let changes = [
        ("a replacement", doc! { "k": 1, "value": 9 }),
        ("$set", doc! { "$set": { "value": 9 } }),
        ("$inc", doc! { "$inc": { "value": 1 } }),
        ("$push", doc! { "$push": { "tags": "new" } }),
        ("$inc of the number", doc! { "$inc": { "count": 1 } }),
        ("$set of the number", doc! { "$set": { "count": "7" } }),
        ("$push to the array", doc! { "$push": { "history": item(9, 1) } }),
        ("$set of the array", doc! { "$set": { "history": 1 } }),
        ("$unset of the header", doc! { "$unset": { "control": 1 } }),
        ("$unset of a part of it", doc! { "$unset": { "control.page": 1 } }),
    ];
    commands.extend(changes.map(|(what, change)| (what, update(doc! { "k": 1 }, change))));
    commands
}

#[test]
fn mongod_refuses_writes_that_bypass_the_proxy() -> Result<()> {
    let shaped = Shaped::start(OPTIONS)?;
    let mut application = shaped.application()?;
    application.command_ok(&shaped.insert(&[item(1, 1), item(2, 1), item(3, 2)]))?;
    let mut direct = shaped.direct()?;
    let before = shaped.stored()?;
    for (what, command) in inserts(&before[0])?.into_iter().chain(updates()) {
        let code = code(&mut direct, &shaped, command)?;
        ensure!(code == DOCUMENT_VALIDATION_FAILURE, "{what}: {code}");
    }
    ensure!(shaped.stored()? == before, "a page was changed");
    let reply = direct.command(&shaped.insert(&[item(9, 1)]))?;
    ensure!(reply.to_string().contains("write to it through mongoshape"), "{reply}");
    Ok(())
}

/// What mongod does not refuse, as documented.
#[test]
fn deletes_and_writes_without_validation_are_not_refused() -> Result<()> {
    let shaped = Shaped::start(OPTIONS)?;
    let mut application = shaped.application()?;
    application.command_ok(&shaped.insert(&[item(1, 1), item(2, 2)]))?;
    let mut direct = shaped.direct()?;
    let delete = doc! { "delete": COLLECTION, "deletes": [{ "q": { "k": 1 }, "limit": 1 }] };
    let deleted = succeeds(&mut direct, &shaped, &delete)?;
    let mut bypassing = update(doc! { "k": 2 }, doc! { "$set": { "value": 1 } });
    bypassing.insert("bypassDocumentValidation", true);
    let changed = succeeds(&mut direct, &shaped, &bypassing)?;
    ensure!(
        deleted.get_i32("n")? == 1 && changed.get_i32("nModified")? == 1,
        "{changed}"
    );
    Ok(())
}

fn every_kind_of_write(shaped: &Shaped) -> Result<()> {
    let mut application = shaped.application()?;
    let at = |second: i64| DateTime::from_millis(second * 1000);
    let many: Vec<Document> = (1..=30).map(|id| item(id, id % 4)).collect();
    let index = |key: Document, name: &str, unique: bool| doc! { "key": key, "name": name, "unique": unique };
    let geo = doc! { "key": { "place": "2dsphere" }, "name": "place" };
    let expiring = doc! { "key": { "until": 1 }, "name": "until", "expireAfterSeconds": 100_000 };
    let unique = index(doc! { "value": 1 }, "value", true);
    let validator = doc! { "value": { "$type": "number" } };
    let place = doc! { "type": "Point", "coordinates": [1, 2] };
    let one = |q: Document, u: Document| update(q, u);
    let all = |q: Document, u: Document| {
        doc! { "update": COLLECTION, "updates": [{ "q": q, "u": u, "multi": true }] }
    };
    let modify = |q: Document, u: Document| doc! { "findAndModify": COLLECTION, "query": q, "update": u };
    let commands = [
        doc! { "insert": COLLECTION, "documents": many },
        doc! { "insert": COLLECTION, "documents": [item(-1, 1), item(0, 1)] },
        doc! { "createIndexes": COLLECTION, "indexes": [geo, expiring, unique] },
        doc! { "collMod": COLLECTION, "validator": validator },
        one(doc! { "_id": 1 }, doc! { "$set": { "value": 1000 } }),
        one(doc! { "_id": 2 }, item(2, 2)),
        one(
            doc! { "_id": 3 },
            doc! { "$set": { "place": place, "until": at(4_000_000_000) } },
        ),
        one(doc! { "_id": 5 }, doc! { "$set": { "at": at(90) } }),
        one(doc! { "_id": 6 }, doc! { "$unset": { "at": 1 } }),
        all(doc! { "k": 2 }, doc! { "$inc": { "count": 1 } }),
        all(doc! {}, doc! { "$push": { "history": 1 } }),
        modify(doc! { "_id": 7 }, doc! { "$set": { "history": 5, "control": 1 } }),
        doc! { "findAndModify": COLLECTION, "query": { "_id": 9 }, "remove": true },
        doc! { "update": COLLECTION, "updates": [
        { "q": { "_id": 500 }, "u": { "$set": { "k": 5, "value": 5000 } }, "upsert": true }] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "k": 1 }, "limit": 0 }] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": { "$lt": 20 } }, "limit": 0 }] },
        doc! { "insert": COLLECTION, "documents": [{ "_id": 600, "value": 6000 }, { "_id": 601, "k": 1, "value": 6001 }] },
        doc! { "dropIndexes": COLLECTION, "index": "value" },
        doc! { "insert": COLLECTION, "documents": [{ "_id": 602, "k": 1, "value": 6001 }] },
    ];
    for command in commands {
        succeeds(&mut application, shaped, &command)?;
    }
    let expected = doc! {
        "validator": { "value": { "$type": "number" } }, "validationLevel": "strict", "validationAction": "error",
    };
    let mut shown = options(&mut application, shaped)?;
    shown.remove("changeStreamPreAndPostImages");
    ensure!(shown == expected, "the options differ");
    let refused = code(
        &mut application,
        shaped,
        update(doc! { "_id": 602 }, doc! { "$set": { "value": "text" } }),
    )?;
    ensure!(refused == DOCUMENT_VALIDATION_FAILURE, "{refused}");
    let checked = shaped.proxy.run("check")?;
    let printed = String::from_utf8_lossy(&checked.stdout).into_owned();
    ensure!(checked.status.success() && !printed.contains("warning"), "{printed}");
    Ok(())
}

#[test]
fn writes_of_the_proxy_are_accepted_on_a_standalone() -> Result<()> {
    let shaped = Shaped::start(OPTIONS)?;
    every_kind_of_write(&shaped)?;
    ensure!(
        refuses_plain_document(&mut shaped.direct()?, &shaped)?,
        "a plain document is accepted"
    );
    Ok(())
}

#[test]
fn writes_of_the_proxy_are_accepted_on_a_replica_set() -> Result<()> {
    let upstream = mongod::shared_replica_set();
    let options = format!("{OPTIONS}change_streams = true\n");
    let shaped = Shaped::with(&options, &ProxyOptions::new(&upstream.uri()))?;
    every_kind_of_write(&shaped)?;
    let mut application = shaped.application()?;
    for id in [22, 23, 24] {
        let change = update(doc! { "_id": id }, doc! { "$set": { "k": 77 } });
        let changed = succeeds(&mut application, &shaped, &change)?;
        ensure!(changed.get_i32("nModified")? == 1, "{changed}");
    }
    let mut direct = Connection::open(upstream.address())?;
    ensure!(
        refuses_plain_document(&mut direct, &shaped)?,
        "a plain document is accepted"
    );
    Ok(())
}

/// The collection is created by `create`, and in a transaction.
#[test]
fn a_new_collection_refuses_direct_writes() -> Result<()> {
    let upstream = mongod::shared_replica_set();
    let shaped = Shaped::with(OPTIONS, &ProxyOptions::new(&upstream.uri()))?;
    let (mut application, mut direct) = (shaped.application()?, Connection::open(upstream.address())?);
    let create = doc! { "create": COLLECTION };
    succeeds(&mut application, &shaped, &create)?;
    ensure!(options(&mut application, &shaped)?.is_empty(), "the options differ");
    let insert = || doc! { "insert": COLLECTION, "documents": [item(1, 1)] };
    ensure!(code(&mut direct, &shaped, insert())? == DOCUMENT_VALIDATION_FAILURE);
    let validator = doc! { "create": COLLECTION, "validator": { "value": 1 } };
    ensure!(code(&mut application, &shaped, validator)? == 48, "another validator");
    succeeds(&mut application, &shaped, &doc! { "drop": COLLECTION })?;
    let mut in_transaction = insert();
    in_transaction.extend(doc! {
        "lsid": lsid("new"), "txnNumber": 1_i64, "startTransaction": true, "autocommit": false,
    });
    succeeds(&mut application, &shaped, &in_transaction)?;
    let commit = doc! {
        "commitTransaction": 1, "lsid": lsid("new"), "txnNumber": 1_i64, "autocommit": false, "$db": "admin",
    };
    application.command_ok(&commit)?;
    ensure!(
        code(
            &mut direct,
            &shaped,
            doc! { "insert": COLLECTION, "documents": [item(2, 1)] }
        )? == 121
    );
    ensure!(
        code(
            &mut application,
            &shaped,
            doc! { "insert": COLLECTION, "documents": [item(2, 1)] }
        )? == 0
    );
    Ok(())
}

/// The command that creates the collection of an automatic shape has no options of the collection.
#[test]
fn a_new_collection_of_an_automatic_shape_refuses_direct_writes() -> Result<()> {
    for upstream in [mongod::shared(), mongod::shared_replica_set()] {
        let options = format!("{OPTIONS}mode = \"auto\"\n");
        let shaped = Shaped::with(&options, &ProxyOptions::new(&upstream.uri()))?;
        let (mut application, mut direct) = (shaped.application()?, Connection::open(upstream.address())?);
        succeeds(&mut application, &shaped, &shaped.insert(&[item(1, 1)]))?;
        ensure!(
            code(
                &mut direct,
                &shaped,
                doc! { "insert": COLLECTION, "documents": [item(2, 1)] }
            )? == 121
        );
        let listed = direct.all(&in_database(&shaped, doc! { "listIndexes": COLLECTION }))?;
        let has_fence = listed
            .iter()
            .any(|index| index.to_string().contains("mongoshape_validator"));
        ensure!(!has_fence, "{listed:?}");
        succeeds(&mut application, &shaped, &shaped.insert(&[item(2, 1), item(3, 2)]))?;
    }
    Ok(())
}

/// The validator has the form of another version, which refuses a page of this one.
#[test]
fn a_refused_page_has_an_error_of_its_own() -> Result<()> {
    let upstream = mongod::shared_replica_set();
    let shaped = Shaped::with(OPTIONS, &ProxyOptions::new(&upstream.uri()))?;
    let mut application = shaped.application()?;
    application.command_ok(&shaped.insert(&[item(1, 1)]))?;
    let stricter = doc! { "$jsonSchema": { "title": "mongoshape_direct_writes", "required": ["more"] } };
    // `moderate` would not check an update of a page that does not satisfy the validator already.
    let modify = doc! { "collMod": COLLECTION, "validator": { "$and": [stricter] }, "validationLevel": "strict" };
    succeeds(&mut Connection::open(upstream.address())?, &shaped, &modify)?;
    let modify = doc! { "findAndModify": COLLECTION, "query": { "_id": 1 }, "update": { "$set": { "value": 2 } } };
    for command in [
        doc! { "insert": COLLECTION, "documents": [item(2, 1)] },
        doc! { "insert": COLLECTION, "documents": [item(3, 3)] },
        update(doc! { "_id": 1 }, doc! { "$set": { "value": 2 } }),
        update(doc! { "value": 1 }, doc! { "$set": { "k": 2 } }),
        modify,
    ] {
        let reply = application.command(&in_database(&shaped, command.clone()))?;
        let text = reply.to_string();
        ensure!(
            text.contains("reject_direct_writes") && !text.contains("errInfo"),
            "{command}: {reply}"
        );
    }
    Ok(())
}
