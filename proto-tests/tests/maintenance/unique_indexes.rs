//! `compact`, `setup --pack` and `check` on collections with a unique index.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::raw::Connection;
use proto_tests::replies::first_code;
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::{Proxy, ProxyOptions};
use proto_tests::{Shape, database_name, mongod};

use crate::compact::compact;

const DUPLICATE_KEY: i32 = 11000;
const WRITE_CONFLICT: i32 = 112;

fn create() -> Document {
    let index = doc! { "key": { "value": 1 }, "name": "value_1", "unique": true };
    doc! { "createIndexes": COLLECTION, "indexes": [index] }
}

fn item(id: i32, key: i32, value: i32) -> Document {
    doc! { "_id": id, "k": key, "value": value }
}

/// The code of a command's first error, 0 without one.
fn code(connection: &mut Connection, database: &str, mut command: Document) -> Result<i32> {
    command.insert("$db", database);
    Ok(first_code(&connection.command(&command)?))
}

fn insert(item: Document) -> Document {
    doc! { "insert": COLLECTION, "documents": [item] }
}

/// Fails unless the index keeps items of one page and of several apart. Item 1 of key 1 has the value 1.
fn is_kept(application: &mut Connection, database: &str) -> Result<()> {
    for key in [1, 99] {
        let failed = code(application, database, insert(item(-1, key, 1)))?;
        ensure!(failed == DUPLICATE_KEY, "key {key}: {failed}");
    }
    Ok(())
}

fn check(proxy: &Proxy) -> Result<()> {
    let printed = proxy.run("check")?;
    ensure!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stdout));
    Ok(())
}

#[test]
fn a_compacted_collection_keeps_values_unique() -> Result<()> {
    let shaped = Shaped::start("max_items = 10")?;
    let (mut application, database) = (shaped.application()?, &shaped.database);
    let items: Vec<Document> = (0..300).map(|number| item(number, number % 3, number)).collect();
    application.command_ok(&shaped.insert(&items))?;
    assert_eq!(code(&mut application, database, create())?, 0);
    let delete = doc! { "q": { "_id": { "$gt": 1 }, "value": { "$mod": [4, 0] } }, "limit": 0 };
    assert_eq!(
        code(
            &mut application,
            database,
            doc! { "delete": COLLECTION, "deletes": [delete] }
        )?,
        0
    );
    let listed = |application: &mut Connection| application.all(&doc! { "listIndexes": COLLECTION, "$db": database });
    let before = listed(&mut application)?;
    let printed = compact(&shaped.proxy)?;
    ensure!(printed.contains("packed: "), "{printed}");
    assert_eq!(listed(&mut application)?, before);
    is_kept(&mut application, database)?;
    check(&shaped.proxy)
}

/// Values go from one key to another while the copy is filled, so that the copy has them twice for a while.
#[test]
fn values_move_between_keys_during_compaction() -> Result<()> {
    let shaped = Shaped::start("max_items = 5")?;
    let (mut application, database) = (shaped.application()?, &shaped.database);
    let items: Vec<Document> = (0..400).map(|number| item(number, number % 8, number)).collect();
    application.command_ok(&shaped.insert(&items))?;
    assert_eq!(code(&mut application, database, create())?, 0);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let moving = scope.spawn(|| -> Result<i32> {
            let mut connection = shaped.application()?;
            let mut next = 1000;
            while !is_done.load(Ordering::Relaxed) {
                let value = next % 400;
                let delete = doc! { "q": { "value": value }, "limit": 1 };
                let delete = doc! { "delete": COLLECTION, "deletes": [delete] };
                while code(&mut connection, database, delete.clone())? == WRITE_CONFLICT {}
                // Ids go, too.
                let inserted = || insert(item(next, next % 9, value));
                let mut failed = code(&mut connection, database, inserted())?;
                while failed == WRITE_CONFLICT {
                    failed = code(&mut connection, database, inserted())?;
                }
                ensure!(failed == 0, "value {value}: {failed}");
                next += 7;
            }
            Ok(next)
        });
        let mut compacted = Ok(());
        for round in 0..4 {
            let delete = doc! { "q": { "value": { "$gte": 400 } }, "limit": 0 };
            let passing: Vec<Document> = (0..200)
                .map(|number| item(-number - 1 - 1000 * round, number % 8, 400 + number))
                .collect();
            let insert = doc! { "insert": COLLECTION, "documents": passing };
            compacted = compacted.and_then(|()| {
                ensure!(code(&mut application, database, insert)? == 0, "passing items");
                ensure!(
                    code(
                        &mut application,
                        database,
                        doc! { "delete": COLLECTION, "deletes": [delete] }
                    )? == 0,
                    "they are not deleted"
                );
                compact(&shaped.proxy).map(drop)
            });
        }
        is_done.store(true, Ordering::Relaxed);
        let moved = moving.join().map_err(|_| anyhow::anyhow!("the mover panicked"))??;
        ensure!(moved > 1000, "nothing was moved");
        compacted
    })?;
    let mut values: Vec<i32> = Vec::new();
    for page in shaped.stored()? {
        for item in page.get_array("history")?.iter().filter_map(Bson::as_document) {
            values.push(item.get_i32("value")?);
        }
    }
    values.sort_unstable();
    ensure!(values == (0..400).collect::<Vec<_>>(), "{values:?}");
    check(&shaped.proxy)
}

#[test]
fn a_packed_collection_keeps_values_unique() -> Result<()> {
    let database = database_name();
    let shape = Shape::new(&["k"]);
    let toml = shape.toml(&format!("{database}.{COLLECTION}"));
    let proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()).config(&toml))?;
    let mut direct = Connection::open(mongod::shared().address())?;
    let mut items: Vec<Document> = (0..100).map(|number| item(number, number % 3, number)).collect();
    items.push(doc! { "_id": 100, "k": 1, "value": [200, 201] });
    items.push(doc! { "_id": 101, "k": 1 });
    let insert = doc! { "insert": COLLECTION, "documents": items };
    assert_eq!(code(&mut direct, &database, insert)?, 0);
    assert_eq!(code(&mut direct, &database, create())?, 0);
    let packed = proxy.run_with("setup", &["--pack"])?;
    ensure!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stdout));
    let mut application = Connection::open(proxy.address())?;
    is_kept(&mut application, &database)?;
    for value in [bson!(201), bson!([300, 200]), Bson::Null] {
        let of_value = doc! { "insert": COLLECTION, "documents": [{ "_id": -2, "k": 1, "value": value }] };
        assert_eq!(code(&mut application, &database, of_value)?, DUPLICATE_KEY);
    }
    check(&proxy)
}

#[test]
fn an_array_inside_a_path_is_not_packed() -> Result<()> {
    let database = database_name();
    let toml = Shape::new(&["k"]).toml(&format!("{database}.{COLLECTION}"));
    let proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()).config(&toml))?;
    let mut direct = Connection::open(mongod::shared().address())?;
    let insert = doc! { "insert": COLLECTION, "documents": [{ "_id": 1, "k": 1, "a": [{ "b": 1 }, { "b": 2 }] }] };
    assert_eq!(code(&mut direct, &database, insert)?, 0);
    let index = doc! { "key": { "a.b": 1 }, "name": "a.b_1", "unique": true };
    let create = doc! { "createIndexes": COLLECTION, "indexes": [index] };
    assert_eq!(code(&mut direct, &database, create)?, 0);
    let packed = proxy.run_with("setup", &["--pack"])?;
    let printed = String::from_utf8_lossy(&packed.stdout).into_owned();
    ensure!(!packed.status.success(), "{printed}");
    let words = "it has an array of documents inside a field of the unique index a.b_1";
    printed.contains(words).then_some(()).context(printed)
}
