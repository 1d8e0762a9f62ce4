//! The claims of `docs/operations.md` on several proxies, on backups, and on changed shapes.

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::{Proxy, ProxyOptions, client, database_name, mongod};

const ITEMS: i32 = 230;

fn filled(options: &str) -> Result<(Shaped, Vec<Document>)> {
    let shaped = Shaped::start(options)?;
    let items: Vec<_> = (0..ITEMS)
        .map(|number| doc! { "_id": number, "k": number % 3 })
        .collect();
    shaped.application()?.command_ok(&shaped.insert(&items))?;
    Ok((shaped, items))
}

fn items(connection: &mut Connection, shaped: &Shaped) -> Result<Vec<Document>> {
    connection.all(&doc! { "find": COLLECTION, "sort": { "_id": 1 }, "$db": &shaped.database })
}

/// The id of a cursor after one batch.
fn open(connection: &mut Connection, shaped: &Shaped, command: Document) -> Result<i64> {
    let mut command = command;
    command.insert("$db", &shaped.database);
    Ok(connection.command_ok(&command)?.get_document("cursor")?.get_i64("id")?)
}

fn more(shaped: &Shaped, collection: &str, id: i64) -> Document {
    doc! { "getMore": id, "collection": collection, "$db": &shaped.database }
}

#[test]
fn bucket_cursor_is_bound_to_its_proxy() -> Result<()> {
    let (shaped, items) = filled("")?;
    let another = shaped.another_proxy("")?;
    let (mut here, mut there) = (shaped.application()?, Connection::open(another.address())?);
    here.command_ok(&doc! { "insert": "plain", "documents": items, "$db": &shaped.database })?;
    let streamed = doc! { "find": COLLECTION, "batchSize": 7 };
    let unpacked = doc! { "aggregate": COLLECTION, "pipeline": [{ "$match": { "_id": { "$gt": 3 } } }], "cursor": { "batchSize": 7 } };
    for command in [streamed, unpacked] {
        let id = open(&mut here, &shaped, command)?;
        let reply = there.command(&more(&shaped, COLLECTION, id))?;
        ensure!(reply.get_i32("code")? == 43, "{reply}");
        ensure!(reply.get_str("codeName")? == "CursorNotFound", "{reply}");
        // It is still there for the proxy that opened it.
        here.command_ok(&more(&shaped, COLLECTION, id))?;
    }
    // Of a collection without a shape it is mongod's, and any connection's.
    let id = open(&mut here, &shaped, doc! { "find": "plain", "batchSize": 7 })?;
    there.command_ok(&more(&shaped, "plain", id))?;
    Ok(())
}

#[test]
fn outlier_cursor_continues_on_any_proxy() -> Result<()> {
    let server = mongod::shared();
    let database = database_name();
    let shape = format!("[[outlier]]\nnamespace = \"{database}.books\"\narray = \"buyers\"\nthreshold = 2\n");
    let options = ProxyOptions::new(&server.uri()).config(&shape);
    let (one, other) = (Proxy::start(&options)?, Proxy::start(&options)?);
    let (mut here, mut there) = (Connection::open(one.address())?, Connection::open(other.address())?);
    let books: Vec<_> = (0..20)
        .map(|number| doc! { "_id": number, "buyers": [1, 2, 3] })
        .collect();
    here.command_ok(&doc! { "insert": "books", "documents": &books, "$db": &database })?;
    let find = doc! { "find": "books", "batchSize": 7, "$db": &database };
    let id = here.command_ok(&find)?.get_document("cursor")?.get_i64("id")?;
    let more = doc! { "getMore": id, "collection": "books", "$db": &database };
    let reply = there.command_ok(&more)?;
    let batch = reply.get_document("cursor")?.get_array("nextBatch")?;
    let rest: Vec<_> = books.into_iter().skip(7).map(Bson::Document).collect();
    ensure!(*batch == rest, "{reply}");
    Ok(())
}

#[test]
fn writers_and_readers_may_use_any_proxy() -> Result<()> {
    let (shaped, mut expected) = filled("")?;
    let another = shaped.another_proxy("")?;
    let (mut here, mut there) = (shaped.application()?, Connection::open(another.address())?);
    for number in ITEMS..ITEMS + 40 {
        let connection = if number % 2 == 0 { &mut here } else { &mut there };
        let item = doc! { "_id": number, "k": number % 3 };
        connection.command_ok(&shaped.insert(std::slice::from_ref(&item)))?;
        expected.push(item);
    }
    ensure!(items(&mut here, &shaped)? == expected, "the one proxy");
    ensure!(items(&mut there, &shaped)? == expected, "the other");
    Ok(())
}

/// The copy of a tool without support for shapes: documents and indexes.
struct Backup {
    documents: Vec<Document>,
    indexes: Vec<Document>,
}

impl Backup {
    fn take(connection: &mut Connection, database: &str) -> Result<Self> {
        let documents = connection.all(&doc! { "find": COLLECTION, "$db": database })?;
        let indexes = connection.all(&doc! { "listIndexes": COLLECTION, "$db": database })?;
        Ok(Self { documents, indexes })
    }

    fn restore(&self, connection: &mut Connection, database: &str) -> Result<()> {
        connection.command_ok(&doc! { "create": COLLECTION, "$db": database })?;
        connection.command_ok(&doc! { "insert": COLLECTION, "documents": &self.documents, "$db": database })?;
        if !self.indexes.is_empty() {
            connection.command_ok(&doc! { "createIndexes": COLLECTION, "indexes": &self.indexes, "$db": database })?;
        }
        Ok(())
    }
}

#[test]
fn pages_copied_by_any_tool_are_a_backup() -> Result<()> {
    let (shaped, mut expected) = filled("")?;
    let (mut direct, mut application) = (shaped.direct()?, shaped.application()?);
    let backup = Backup::take(&mut direct, &shaped.database)?;
    direct.command_ok(&doc! { "drop": COLLECTION, "$db": &shaped.database })?;
    backup.restore(&mut direct, &shaped.database)?;
    ensure!(items(&mut application, &shaped)? == expected, "other items");
    // Under a running proxy: its caches are of a collection that no longer exists.
    let item = doc! { "_id": ITEMS, "k": 1 };
    application.command_ok(&shaped.insert(std::slice::from_ref(&item)))?;
    expected.push(item);
    ensure!(
        items(&mut application, &shaped)? == expected,
        "other items after an insert"
    );
    let check = shaped.proxy.run("check")?;
    ensure!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
    Ok(())
}

#[test]
fn setup_restores_indexes_of_a_backup_without_them() -> Result<()> {
    let (shaped, expected) = filled("")?;
    let (mut direct, mut application) = (shaped.direct()?, shaped.application()?);
    let mut backup = Backup::take(&mut direct, &shaped.database)?;
    let indexes = shaped.indexes()?;
    backup.indexes.clear();
    direct.command_ok(&doc! { "drop": COLLECTION, "$db": &shaped.database })?;
    backup.restore(&mut direct, &shaped.database)?;
    let setup = shaped.proxy.run("setup")?;
    ensure!(setup.status.success(), "{}", String::from_utf8_lossy(&setup.stdout));
    ensure!(shaped.indexes()? == indexes, "other indexes");
    ensure!(items(&mut application, &shaped)? == expected, "other items");
    Ok(())
}

#[test]
fn backup_through_the_proxy_contains_plain_documents() -> Result<()> {
    let (shaped, expected) = filled("")?;
    let (mut direct, mut application) = (shaped.direct()?, shaped.application()?);
    let backup = Backup::take(&mut application, &shaped.database)?;
    ensure!(
        backup.documents.len() == expected.len(),
        "{:?}",
        backup.documents.first()
    );
    ensure!(backup.indexes.len() == 1, "{:?}", backup.indexes);
    // Restored through the proxy they are pages again, restored to mongod a plain collection, which the proxy
    // does not take for pages.
    application.command_ok(&doc! { "drop": COLLECTION, "$db": &shaped.database })?;
    backup.restore(&mut application, &shaped.database)?;
    ensure!(items(&mut application, &shaped)? == expected, "other items");
    direct.command_ok(&doc! { "drop": COLLECTION, "$db": &shaped.database })?;
    backup.restore(&mut direct, &shaped.database)?;
    let reply = application.command(&doc! { "find": COLLECTION, "$db": &shaped.database })?;
    let message = reply.get_str("errmsg")?;
    ensure!(message.contains("mongoshape check"), "{reply}");
    Ok(())
}

#[test]
fn changed_max_bytes_closes_pages_at_the_new_size() -> Result<()> {
    for max_bytes in ["max_bytes = 2000", "max_bytes = 2000000"] {
        let (shaped, mut expected) = filled("")?;
        let another = shaped.another_proxy(max_bytes)?;
        let mut there = Connection::open(another.address())?;
        for number in ITEMS..ITEMS + 40 {
            let item = doc! { "_id": number, "k": number % 3 };
            there.command_ok(&shaped.insert(std::slice::from_ref(&item)))?;
            expected.push(item);
        }
        ensure!(items(&mut there, &shaped)? == expected, "{max_bytes}");
        let page = there
            .all(&doc! { "find": COLLECTION, "filter": { "k": 0 }, "skip": 20, "limit": 3, "$db": &shaped.database })?;
        ensure!(
            page == expected.iter().skip(60).step_by(3).take(3).cloned().collect::<Vec<_>>(),
            "{page:?}"
        );
        let check = another.run("check")?;
        ensure!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
    }
    Ok(())
}

#[test]
fn shape_is_changed_by_copying_to_a_plain_collection() -> Result<()> {
    let (shaped, expected) = filled("")?;
    let (mut direct, mut application) = (shaped.direct()?, shaped.application()?);
    let copy =
        doc! { "aggregate": COLLECTION, "pipeline": [{ "$out": "copy" }], "cursor": {}, "$db": &shaped.database };
    application.command_ok(&copy)?;
    let name = |collection: &str| format!("{}.{collection}", shaped.database);
    direct.command_ok(
        &doc! { "renameCollection": name("copy"), "to": name(COLLECTION), "dropTarget": true, "$db": "admin" },
    )?;
    let another = shaped.misfitting_proxy("max_items = 50")?;
    let setup = another.run_with("setup", &["--pack"])?;
    ensure!(setup.status.success(), "{}", String::from_utf8_lossy(&setup.stdout));
    let mut there = Connection::open(another.address())?;
    ensure!(items(&mut there, &shaped)? == expected, "other items");
    let page = there
        .all(&doc! { "find": COLLECTION, "filter": { "k": 0 }, "skip": 60, "limit": 10, "$db": &shaped.database })?;
    ensure!(
        page == expected
            .iter()
            .skip(180)
            .step_by(3)
            .take(10)
            .cloned()
            .collect::<Vec<_>>(),
        "{page:?}"
    );
    Ok(())
}

#[tokio::test]
async fn driver_with_several_proxies_pins_a_cursor_to_one() -> Result<()> {
    let server = mongod::shared_replica_set();
    let database = database_name();
    let options = ProxyOptions::new(&server.uri())
        .config(&format!("[[bucket]]\nnamespace = \"{database}.items\"\nkey = \"k\"\n"));
    let proxies = [Proxy::start(&options)?, Proxy::start(&options)?];
    let seeds: Vec<String> = proxies.iter().map(|proxy| proxy.address().to_string()).collect();
    // On a busy machine, a proxy may be slower than the driver's threshold.
    let application = client(&format!("mongodb://{}/?localThresholdMS=10000", seeds.join(","))).await?;
    let items = application.database(&database).collection::<Document>(COLLECTION);
    items
        .insert_many((0..ITEMS).map(|number| doc! { "_id": number, "k": number % 3 }))
        .await?;
    let has_commands =
        |proxy: &Proxy| proxy.metric("mongoshape_commands_total{command=\"getMore\",outcome=\"rewritten\"}") > 0.0;
    // The driver picks one at random among those that are near.
    for read in 0.. {
        if read >= 40 && proxies.iter().all(has_commands) {
            break;
        }
        ensure!(read < 1000, "a proxy got no command");
        let mut cursor = items.find(doc! {}).batch_size(50).await?;
        let mut found = 0;
        while cursor.advance().await? {
            found += 1;
        }
        ensure!(found == ITEMS, "{found} items");
    }
    Ok(())
}
