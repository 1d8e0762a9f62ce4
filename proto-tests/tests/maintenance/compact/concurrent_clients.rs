//! Clients of two proxies during repeated compaction.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::invariants;
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::{Mongod, Proxy, ProxyOptions, Shape, database_name, mongod};
use rand::RngExt as _;

use super::compact;
use super::transfer::transfer;

pub(super) const COLLECTION: &str = "items";
/// Times that it is packed.
const ROUNDS: i32 = 6;
/// Items of a key that no writer changes.
const STILL: i32 = 60;
/// Codes that a command may be answered with while the collection is replaced: `WriteConflict`,
/// `QueryPlanKilled`, and `CursorNotFound` of a cursor that was killed by that.
const ALLOWED: [i32; 3] = [112, 175, 43];

pub(super) struct Fixture {
    pub(super) database: String,
    /// The number of keys that no writer changes any more.
    still: Mutex<i32>,
    stopping: AtomicBool,
    pub(super) refused: AtomicU64,
    read: AtomicU64,
}

impl Fixture {
    pub(super) fn goes_on(&self) -> bool {
        !self.stopping.load(Ordering::Relaxed)
    }

    /// The reply; `None` where it is an error that may be.
    fn ask(&self, client: &mut Client, mut command: Document) -> Result<Option<Document>> {
        command.insert("$db", &self.database);
        if client.is_strict {
            command.insert("apiVersion", "1");
            command.insert("apiStrict", true);
        }
        let reply = client.connection.command(&command)?;
        let first = reply
            .get_array("writeErrors")
            .ok()
            .and_then(|errors| errors.first()?.as_document().cloned());
        let code = match &first {
            Some(error) => error.get_i32("code").ok(),
            None => reply.get_i32("code").ok(),
        };
        let Some(code) = code else { return Ok(Some(reply)) };
        ensure!(ALLOWED.contains(&code), "{command}: {reply}");
        self.refused.fetch_add(1, Ordering::Relaxed);
        Ok(None)
    }
}

/// A connection, and whether its commands are under the stable API alone.
struct Client {
    connection: Connection,
    is_strict: bool,
}

/// A key of which every second item is deleted, so that all its pages are short.
fn make_still(fixture: &Fixture, connection: &mut Connection, number: i32) -> Result<()> {
    let key = format!("still{number}");
    let items: Vec<Document> = (0..STILL * 2)
        .map(|n| doc! { "_id": format!("{key} {n}"), "k": &key, "n": n })
        .collect();
    let database = &fixture.database;
    connection.command_ok(&doc! { "insert": COLLECTION, "documents": items, "$db": database })?;
    let odd = doc! { "k": &key, "n": { "$mod": [2, 1] } };
    connection.command_ok(&doc! { "delete": COLLECTION, "deletes": [{ "q": odd, "limit": 0 }], "$db": database })?;
    *fixture.still.lock().unwrap_or_else(PoisonError::into_inner) = number + 1;
    Ok(())
}

/// Items that no writer changes: every read returns the same.
fn read(fixture: &Fixture, mut client: Client) -> Result<()> {
    let mut random = rand::rng();
    while fixture.goes_on() {
        let keys = *fixture.still.lock().unwrap_or_else(PoisonError::into_inner);
        if keys == 0 {
            continue;
        }
        let key = format!("still{}", random.random_range(0..keys));
        let filter = doc! { "k": &key };
        let skip = random.random_range(0..STILL);
        let numbers = |reply: &Document| -> Result<Vec<i32>> {
            let batch = reply.get_document("cursor")?.get_array("firstBatch")?;
            Ok(batch
                .iter()
                .filter_map(|item| item.as_document()?.get_i32("n").ok())
                .collect())
        };
        let all: Vec<i32> = (0..STILL).map(|n| n * 2).collect();
        let from = usize::try_from(skip)?;
        match random.random_range(0..5) {
            0 | 1 => {
                let find = doc! { "find": COLLECTION, "filter": filter, "skip": skip, "limit": 10 };
                if let Some(reply) = fixture.ask(&mut client, find)? {
                    ensure!(
                        numbers(&reply)? == all[from..all.len().min(from + 10)],
                        "{key}, {skip}: {reply}"
                    );
                }
            }
            2 => {
                if let Some(reply) = fixture.ask(&mut client, doc! { "count": COLLECTION, "query": filter })? {
                    ensure!(reply.get_i32("n")? == STILL, "{key}: {reply}");
                }
            }
            3 => {
                let id = format!("{key} {}", skip * 2);
                let find = doc! { "find": COLLECTION, "filter": { "_id": &id } };
                if let Some(reply) = fixture.ask(&mut client, find)? {
                    ensure!(numbers(&reply)? == [skip * 2], "{id}: {reply}");
                }
            }
            _ => read_in_batches(fixture, &mut client, &filter, &all)?,
        }
        fixture.read.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn read_in_batches(fixture: &Fixture, client: &mut Client, filter: &Document, all: &[i32]) -> Result<()> {
    let find = doc! { "find": COLLECTION, "filter": filter, "batchSize": 13 };
    let mut reply = fixture.ask(client, find)?;
    let mut read = Vec::new();
    while let Some(part) = reply {
        let cursor = part.get_document("cursor")?;
        let batch = cursor
            .get_array("firstBatch")
            .or_else(|_| cursor.get_array("nextBatch"))?;
        read.extend(batch.iter().filter_map(|item| item.as_document()?.get_i32("n").ok()));
        ensure!(all.starts_with(&read), "{filter}: {read:?}");
        match cursor.get_i64("id")? {
            0 => {
                ensure!(read == all, "{filter}: {read:?}");
                return Ok(());
            }
            id => {
                reply = fixture.ask(
                    client,
                    doc! { "getMore": id, "collection": COLLECTION, "batchSize": 13 },
                )?;
            }
        }
    }
    Ok(())
}

/// A writer of its own items, in keys that it shares with other writers. Returns the expected items.
fn write(fixture: &Fixture, mut client: Client, number: usize, numbered: bool) -> Result<BTreeMap<String, i64>> {
    let mut random = rand::rng();
    let mut mine: BTreeMap<String, i64> = BTreeMap::new();
    let mut next = 0_i64;
    let session = lsid(&format!("{} {number}", fixture.database));
    while fixture.goes_on() {
        next += 1;
        let key = format!("shared{}", random.random_range(0..4));
        let any = mine.keys().nth(random.random_range(0..mine.len().max(1))).cloned();
        let (mut command, id, what) = match (random.random_range(0..10), any) {
            (0..5, _) | (_, None) => {
                let id = format!("{number} {next}");
                let item = doc! { "_id": &id, "k": key, "n": 0_i64 };
                (doc! { "insert": COLLECTION, "documents": [item] }, id, 'i')
            }
            (5..8, Some(id)) => {
                let update = doc! { "q": { "_id": &id }, "u": { "$inc": { "n": 1_i64 } } };
                (doc! { "update": COLLECTION, "updates": [update] }, id, 'u')
            }
            (8, Some(id)) => {
                let command = doc! { "findAndModify": COLLECTION, "query": { "_id": &id }, "remove": true };
                (command, id, 'd')
            }
            (_, Some(id)) => {
                let delete = doc! { "q": { "_id": &id }, "limit": 1 };
                (doc! { "delete": COLLECTION, "deletes": [delete] }, id, 'd')
            }
        };
        if numbered {
            command.insert("lsid", session.clone());
            command.insert("txnNumber", next);
        }
        let Some(reply) = fixture.ask(&mut client, command.clone())? else {
            continue;
        };
        let done = match reply.get_document("lastErrorObject") {
            Ok(done) => done.get_i32("n")?,
            Err(_) => reply.get_i32("n")?,
        };
        ensure!(done == 1, "{command}: {reply}");
        match what {
            'i' => drop(mine.insert(id, 0)),
            'u' => *mine.get_mut(&id).context("an item of its own")? += 1,
            _ => drop(mine.remove(&id)),
        }
    }
    Ok(mine)
}

fn run(mongod: &Mongod, is_set: bool) -> Result<()> {
    let shape = Shape {
        items_change: true,
        ..Shape::new(&["k"])
    };
    let database = database_name();
    let toml = shape.toml(&format!("{database}.{COLLECTION}"));
    let proxies = [0, 1].map(|_| Proxy::start(&ProxyOptions::new(&mongod.uri()).config(&toml)));
    let [one, other] = proxies;
    let proxies = [one?, other?];
    let fixture = Fixture {
        database,
        still: Mutex::new(0),
        stopping: AtomicBool::new(false),
        refused: AtomicU64::new(0),
        read: AtomicU64::new(0),
    };
    let fixture = &fixture;
    let open = |number: usize| -> Result<Connection> {
        let connection = Connection::open(proxies[number % 2].address())?;
        // Longer than a write waits.
        connection.stream().set_read_timeout(Some(Duration::from_secs(40)))?;
        Ok(connection)
    };
    let client = |number: usize| -> Result<Client> {
        let (connection, is_strict) = (open(number)?, number == 2);
        Ok(Client { connection, is_strict })
    };
    let ledgers = thread::scope(|scope| -> Result<Vec<BTreeMap<String, i64>>> {
        let mut readers = Vec::new();
        let mut writers = Vec::new();
        for number in 0..3 {
            let reader = client(number)?;
            readers.push(scope.spawn(move || stopping(fixture, || read(fixture, reader))));
            let writer = client(number)?;
            let numbered = is_set && number != 1;
            writers.push(scope.spawn(move || stopping(fixture, || write(fixture, writer, number, numbered))));
        }
        if is_set {
            let connection = open(1)?;
            readers.push(scope.spawn(move || stopping(fixture, || transfer(fixture, connection))));
        }
        let packed = stopping(fixture, || {
            let mut connection = open(0)?;
            for round in 0..ROUNDS {
                make_still(fixture, &mut connection, round)?;
                let printed = compact(&proxies[0])?;
                ensure!(printed.contains("packed: "), "{printed}");
            }
            Ok(())
        });
        fixture.stopping.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().map_err(|_| anyhow::anyhow!("a reader panicked"))??;
        }
        let ledgers: Result<Vec<_>> = writers
            .into_iter()
            .map(|writer| writer.join().map_err(|_| anyhow::anyhow!("a writer panicked"))?)
            .collect();
        let ledgers = ledgers?;
        packed?;
        Ok(ledgers)
    })?;
    judge(fixture, mongod, &mut open(0)?, &shape, ledgers)
}

/// Whether what is there in the end is what was written.
fn judge(
    fixture: &Fixture,
    mongod: &Mongod,
    application: &mut Connection,
    shape: &Shape,
    ledgers: Vec<BTreeMap<String, i64>>,
) -> Result<()> {
    let mut direct = Connection::open(mongod.address())?;
    invariants::check(&mut direct, &fixture.database, COLLECTION, shape)?;
    let mut expected: BTreeMap<String, i64> = ledgers.into_iter().flatten().collect();
    let filter = doc! { "k": { "$in": ["shared0", "shared1", "shared2", "shared3"] } };
    for item in application.find(&fixture.database, COLLECTION, filter)? {
        let (id, n) = (item.get_str("_id")?, item.get_i64("n")?);
        ensure!(expected.remove(id) == Some(n), "{item}");
    }
    ensure!(expected.is_empty(), "lost: {expected:?}");
    let (read, refused) = (
        fixture.read.load(Ordering::Relaxed),
        fixture.refused.load(Ordering::Relaxed),
    );
    ensure!(read > 100 && refused < read / 2, "{refused} of {read} were refused");
    Ok(())
}

/// Whoever fails ends all.
fn stopping<T>(fixture: &Fixture, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let done = work();
    if done.is_err() {
        fixture.stopping.store(true, Ordering::Relaxed);
    }
    done
}

#[test]
fn readers_and_writers_lose_nothing_on_a_standalone() -> Result<()> {
    run(mongod::shared(), false)
}

#[test]
fn readers_and_writers_lose_nothing_on_a_replica_set() -> Result<()> {
    run(mongod::shared_replica_set(), true)
}
