//! Unique indexes: several proxies, kills, interrupted and concurrent creation. The answers of single commands
//! are compared by the differential tests.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::crash::Crashing;
use proto_tests::measure::{is_full, seed, show};
use proto_tests::raw::Connection;
use proto_tests::retrying::{Client, Retries};
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::threads::{self, Answered};
use proto_tests::{Mongod, Shape, database_name, invariants};

const DUPLICATE_KEY: i32 = 11000;
const WRITE_CONFLICT: i32 = 112;
const INDEX_NOT_FOUND: i32 = 27;
/// An index of the collection is being built.
const BUILDING: i32 = 12587;

fn unique(field: &str) -> Document {
    let index = doc! { "key": { field: 1 }, "name": format!("{field}_1"), "unique": true };
    doc! { "createIndexes": COLLECTION, "indexes": [index] }
}

/// Runs a command and returns the code of its first error, 0 without one.
fn code(connection: &mut Connection, database: &str, mut command: Document) -> Result<i32> {
    command.insert("$db", database);
    let reply = connection.command(&command)?;
    Ok(first_error(&reply)
        .and_then(|error| error.get_i32("code").ok())
        .unwrap_or(0))
}

fn first_error(reply: &Document) -> Option<&Document> {
    match reply.get_array("writeErrors") {
        Ok(errors) => errors.first()?.as_document(),
        Err(_) => Some(reply).filter(|reply| reply.contains_key("code")),
    }
}

fn insert(id: i32, key: i32, value: i32) -> Document {
    doc! { "insert": COLLECTION, "documents": [{ "_id": id, "k": key, "value": value }] }
}

fn validator(shaped: &Shaped) -> Result<Option<Document>> {
    let listed = shaped
        .direct()?
        .all(&doc! { "listCollections": 1, "filter": { "name": COLLECTION }, "$db": &shaped.database })?;
    let options = listed.first().context("no collection")?.get_document("options")?;
    Ok(options
        .get_document("validator")
        .ok()
        .filter(|validator| !validator.is_empty())
        .cloned())
}

/// How many clauses the validator has.
fn clauses(shaped: &Shaped) -> Result<usize> {
    let clauses = validator(shaped)?.map(|validator| validator.get_array("$and").map(Vec::len));
    Ok(clauses.transpose()?.unwrap_or(0))
}

#[test]
fn a_creation_over_duplicates_fails_and_leaves_nothing() -> Result<()> {
    for keys in [[1, 1], [1, 2]] {
        let shaped = Shaped::start("")?;
        let mut application = shaped.application()?;
        let [one, other] = keys;
        assert_eq!(code(&mut application, &shaped.database, insert(1, one, 7))?, 0);
        assert_eq!(code(&mut application, &shaped.database, insert(2, other, 7))?, 0);
        let mut create = unique("value");
        create.insert("$db", &shaped.database);
        let reply = application.command(&create)?;
        assert_eq!(reply.get_i32("code")?, DUPLICATE_KEY, "{reply}");
        assert_eq!(reply.get_document("keyPattern")?, &doc! { "value": 1 });
        assert_eq!(reply.get_document("keyValue")?, &doc! { "value": 7 });
        assert_eq!(validator(&shaped)?, None);
        ensure!(
            !shaped.indexes()?.iter().any(|name| name == "value_1"),
            "{keys:?}: an index is left"
        );
        assert_eq!(code(&mut application, &shaped.database, insert(3, one, 7))?, 0);
    }
    Ok(())
}

#[test]
fn an_interrupted_creation_is_reported_and_repaired() -> Result<()> {
    for repair in ["drop", "create"] {
        let shaped = Shaped::start("")?;
        let (mut application, database) = (shaped.application()?, &shaped.database);
        assert_eq!(code(&mut application, database, unique("value"))?, 0);
        assert_eq!(code(&mut application, database, insert(1, 1, 7))?, 0);
        // As if the proxy had been killed before it created the index.
        let drop = doc! { "dropIndexes": COLLECTION, "index": "value_1" };
        assert_eq!(code(&mut shaped.direct()?, database, drop.clone())?, 0);
        let mut again = insert(2, 1, 7);
        again.insert("$db", database);
        let reply = application.command(&again)?;
        let error = first_error(&reply).context("no error")?;
        assert_eq!(error.get_i32("code")?, WRITE_CONFLICT, "{reply}");
        ensure!(
            error.get_str("errmsg")?.contains("create the index again, or drop it"),
            "{reply}"
        );
        let checked = shaped.proxy.run("check")?;
        let printed = String::from_utf8_lossy(&checked.stdout).into_owned();
        ensure!(
            printed.contains("the creation of the unique index value_1 was interrupted"),
            "{printed}"
        );
        if repair == "drop" {
            assert_eq!(code(&mut application, database, drop)?, INDEX_NOT_FOUND);
            assert_eq!(clauses(&shaped)?, 0);
            assert_eq!(code(&mut application, database, insert(2, 1, 7))?, 0);
        } else {
            assert_eq!(code(&mut application, database, unique("value"))?, 0);
            assert_eq!(code(&mut application, database, insert(2, 1, 7))?, DUPLICATE_KEY);
        }
    }
    Ok(())
}

#[test]
fn an_index_without_its_clause_is_reported_and_repaired() -> Result<()> {
    let shaped = Shaped::start("")?;
    let (mut application, database) = (shaped.application()?, &shaped.database);
    assert_eq!(code(&mut application, database, unique("value"))?, 0);
    let without = doc! { "collMod": COLLECTION, "validator": {} };
    assert_eq!(code(&mut shaped.direct()?, database, without)?, 0);
    let checked = shaped.proxy.run("check")?;
    let printed = String::from_utf8_lossy(&checked.stdout).into_owned();
    ensure!(
        printed.contains("value_1 does not keep items of one page apart"),
        "{printed}"
    );
    assert_eq!(code(&mut application, database, unique("value"))?, 0);
    assert_eq!(clauses(&shaped)?, 1);
    Ok(())
}

#[test]
fn proxies_that_create_indexes_at_once_keep_all_clauses() -> Result<()> {
    let shaped = Shaped::start("")?;
    let other = shaped.another_proxy("")?;
    let (mut application, database) = (shaped.application()?, shaped.database.as_str());
    assert_eq!(code(&mut application, database, insert(0, 1, 0))?, 0);
    for round in 0..5 {
        thread::scope(|scope| {
            let creating: Vec<_> = [shaped.proxy.address(), other.address()]
                .into_iter()
                .zip(0..)
                .map(|(address, number)| {
                    scope.spawn(move || -> Result<()> {
                        let mut connection = Connection::open(address)?;
                        let failed = code(&mut connection, database, unique(&format!("f{round}{number}")))?;
                        ensure!(failed == 0, "createIndexes: {failed}");
                        Ok(())
                    })
                })
                .collect();
            threads::join(creating)
        })?;
        assert_eq!(clauses(&shaped)?, 2 * round + 2);
    }
    let fences = shaped.indexes()?.into_iter().filter(|name| name.contains("validator"));
    assert_eq!(fences.count(), 0);
    assert_eq!(
        code(
            &mut application,
            database,
            doc! { "dropIndexes": COLLECTION, "index": "*" }
        )?,
        0
    );
    assert_eq!(validator(&shaped)?, None);
    Ok(())
}

/// mongod refuses to change a validator while it builds an index of the collection.
#[test]
fn a_unique_index_is_created_during_other_index_builds() -> Result<()> {
    let shaped = Shaped::start("")?;
    let (mut application, database) = (shaped.application()?, shaped.database.as_str());
    let documents: Vec<Document> = (0..5000)
        .map(|number| doc! { "_id": number, "k": number % 50, "value": number, "other": number })
        .collect();
    for documents in documents.chunks(1000) {
        let insert = doc! { "insert": COLLECTION, "documents": documents };
        assert_eq!(code(&mut application, database, insert)?, 0);
    }
    let is_created = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let building = scope.spawn(|| -> Result<()> {
            let mut direct = shaped.direct()?;
            let index = doc! { "key": { "history.other": 1 }, "name": "built" };
            while !is_created.load(Ordering::Relaxed) {
                code(
                    &mut direct,
                    database,
                    doc! { "createIndexes": COLLECTION, "indexes": [&index] },
                )?;
                code(
                    &mut direct,
                    database,
                    doc! { "dropIndexes": COLLECTION, "index": "built" },
                )?;
            }
            Ok(())
        });
        let created = (0..3).try_for_each(|_| {
            let failed = code(&mut application, database, unique("value"))?;
            ensure!(failed == 0, "createIndexes: {failed}");
            // mongod refuses this one, too, while it builds another index.
            let drop = doc! { "dropIndexes": COLLECTION, "index": "value_1" };
            loop {
                match code(&mut application, database, drop.clone())? {
                    0 => return Ok(()),
                    failed => ensure!(failed == BUILDING, "dropIndexes: {failed}"),
                }
            }
        });
        is_created.store(true, Ordering::Relaxed);
        threads::join(vec![building])?;
        created
    })
}

/// A proxy that has read the list of indexes before another proxy created one.
#[test]
fn an_outdated_list_of_indexes_stores_no_duplicate() -> Result<()> {
    let shaped = Shaped::start("max_items = 2")?;
    let other = shaped.another_proxy("max_items = 2")?;
    let (mut application, database) = (shaped.application()?, &shaped.database);
    let mut outdated = Connection::open(other.address())?;
    let several = |from: i32| {
        let documents: Vec<Document> = (from..from + 4)
            .map(|id| doc! { "_id": id, "k": id % 2, "value": id })
            .collect();
        doc! { "insert": COLLECTION, "documents": documents }
    };
    assert_eq!(code(&mut outdated, database, several(0))?, 0);
    assert_eq!(code(&mut application, database, unique("value"))?, 0);
    assert_eq!(code(&mut outdated, database, insert(100, 0, 0))?, DUPLICATE_KEY);
    assert_eq!(code(&mut outdated, database, insert(101, 1, 0))?, DUPLICATE_KEY);
    let update = doc! { "q": { "_id": 1 }, "u": { "$set": { "value": 3 } } };
    let update = doc! { "update": COLLECTION, "updates": [update] };
    assert_eq!(code(&mut outdated, database, update)?, DUPLICATE_KEY);
    Ok(())
}

/// How much is written.
struct Measure {
    values: i64,
    kills: u32,
}

impl Measure {
    fn chosen() -> Self {
        let (values, kills) = if is_full("MONGOSHAPE_CRASHES") {
            (10_000, 40)
        } else {
            (600, 4)
        };
        Self { values, kills }
    }
}

const WRITERS: i64 = 32;

/// A writer's attempts, by value.
type Stored = Vec<(i64, bool)>;

/// Each value is inserted by two of 32 writers, through two proxies that are killed meanwhile.
#[test]
fn of_colliding_writers_one_stores_each_value_under_kills() -> Result<()> {
    let (seed, measure) = (seed(), Measure::chosen());
    let set = Mongod::replica_set(1)?;
    let database = database_name();
    let shape = Shape {
        time: Some("date".to_owned()),
        max_items: 50,
        ..Shape::new(&["k"])
    };
    let config = shape.toml(&format!("{database}.{COLLECTION}"));
    let mut crashing = Crashing::start(seed, &set, &config)?;
    let failed = code(&mut Connection::open(crashing.address())?, &database, unique("value"))?;
    ensure!(failed == 0, "createIndexes: {failed}");
    let addresses = [crashing.address()];
    let answered = Answered::default();
    let stored = thread::scope(|scope| -> Result<Vec<Stored>> {
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                let (answered, addresses, database) = (&answered, &addresses, database.as_str());
                scope.spawn(move || -> Result<Stored> {
                    let client = Client::new(usize::try_from(number)?, addresses, (database, Retries::Writes));
                    write(client, number, measure.values, answered)
                })
            })
            .collect();
        for _ in 0..measure.kills {
            crashing.crash()?;
            answered.wait_for(20, || writers.iter().any(|writer| !writer.is_finished()))?;
        }
        threads::join(writers)
    })?;
    let mut winners: HashMap<i64, u32> = HashMap::new();
    for (value, is_stored) in stored.into_iter().flatten() {
        *winners.entry(value).or_default() += u32::from(is_stored);
    }
    let mut mongod = Connection::open(set.address())?;
    invariants::check(&mut mongod, &database, COLLECTION, &shape)?;
    let mut there: HashMap<i64, u32> = HashMap::new();
    for page in mongod.find(&database, COLLECTION, doc! {})? {
        for item in page.get_array(&shape.items)?.iter().filter_map(Bson::as_document) {
            *there.entry(item.get_i64("value")?).or_default() += 1;
        }
    }
    for value in 0..measure.values {
        let (acknowledged, stored) = (winners.get(&value), there.get(&value));
        ensure!(
            acknowledged == Some(&1) && stored == Some(&1),
            "value {value}: {acknowledged:?} writers were acknowledged, {stored:?} items are stored"
        );
    }
    show(&format!("{} values, {} kills", measure.values, measure.kills));
    Ok(())
}

/// Inserts a writer's share of the values, one by one or several in an unordered command.
fn write(mut client: Client<'_>, number: i64, values: i64, answered: &Answered) -> Result<Stored> {
    let mut stored = Stored::new();
    // Two writers have each value, in different orders.
    let half = WRITERS / 2;
    let mut own: Vec<i64> = (0..values).filter(|value| value % half == number % half).collect();
    if number >= half {
        own.reverse();
    }
    for (turn, share) in own.chunks(3).enumerate() {
        let documents: Vec<Document> = share
            .iter()
            .map(|value| {
                let date = DateTime::from_millis(*value * 1000);
                doc! { "_id": value + number * 1_000_000, "k": (value + number) % 7, "date": date, "value": value }
            })
            .collect();
        let batches: Vec<&[Document]> = if turn % 2 == 0 {
            vec![&documents]
        } else {
            documents.chunks(1).collect()
        };
        for batch in batches {
            let command = doc! { "insert": COLLECTION, "documents": batch.to_vec(), "ordered": false };
            let reply = client.write_or_fail(&command)?;
            let errors = reply.get_array("writeErrors").map(Vec::as_slice).unwrap_or_default();
            let errors: Vec<&Document> = errors.iter().filter_map(Bson::as_document).collect();
            for (index, document) in (0..).zip(batch) {
                let error = errors.iter().find(|error| error.get_i32("index").ok() == Some(index));
                let value = document.get_i64("value")?;
                if let Some(error) = error {
                    ensure!(error.get_i32("code").ok() == Some(DUPLICATE_KEY), "{error}");
                    ensure!(error.get_document("keyValue")? == &doc! { "value": value }, "{error}");
                }
                stored.push((value, error.is_none()));
            }
            answered.count();
        }
    }
    Ok(stored)
}
