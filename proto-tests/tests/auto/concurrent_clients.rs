//! Writers and readers through two proxies, while the collection is exchanged again and again, or converted by
//! `mongoshape convert`. No client gets an error, and no acknowledged write is lost or executed twice.
//!
//! `MONGOSHAPE_CRASHES=full` exchanges and converts more often.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bson::{Document, doc};
use proto_tests::measure::is_full;
use proto_tests::raw::Connection;
use proto_tests::sessions::{Transaction, lsid};
use proto_tests::{Shape, mongod};
use rand::RngExt as _;

use super::fixture::{COLLECTION, CutOver, Fixture, item, shape};

/// Exchanges in one run. Every fifth is given up.
const ROUNDS: i32 = 6;
const ALL_ROUNDS: i32 = 16;
const CLIENTS: usize = 6;
const KEYS: i32 = 3;
/// The longest time of a command, on a busy machine.
const MAX_HELD: Duration = Duration::from_secs(10);
/// The pause of a client beside a conversion of an unoptimised build.
const PAUSE: Duration = Duration::from_millis(20);
/// Attempts at one transaction.
const MAX_ATTEMPTS: u32 = 2000;

/// A client that reads and writes its own documents.
struct Client<'a> {
    fixture: &'a Fixture,
    connection: Connection,
    number: usize,
    /// Its documents, by `_id`.
    mine: BTreeMap<String, i32>,
    next: i64,
    /// The longest time of a command.
    longest: Duration,
}

impl Client<'_> {
    fn ask(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.fixture.database);
        if !command.contains_key("distinct") {
            self.restrict(&mut command);
        }
        // Every second client sends retryable writes.
        let is_write = ["insert", "update", "delete", "findAndModify"]
            .iter()
            .any(|name| command.contains_key(name));
        if is_write && self.number.is_multiple_of(2) {
            command.insert("lsid", lsid(&format!("{} {}", self.fixture.database, self.number)));
            command.insert("txnNumber", self.next);
        }
        let begun = Instant::now();
        let reply = self.connection.command(&command)?;
        self.longest = self.longest.max(begun.elapsed());
        ensure!(is_fine(&reply), "{command}: {reply}");
        Ok(reply)
    }

    /// Changes two documents in a transaction, which is tried again as drivers do.
    fn transact(&mut self, one: String, other: String) -> Result<()> {
        let add = || doc! { "$inc": { "n": 1 } };
        for _ in 0..MAX_ATTEMPTS {
            self.next += 1;
            let session = format!("{} {} {}", self.fixture.database, self.number, self.next);
            let mut transaction = Transaction::new(&session, &self.fixture.database);
            let update = doc! { "q": { "_id": &one }, "u": add() };
            let commands = [
                doc! { "find": COLLECTION, "filter": { "_id": &one } },
                doc! { "update": COLLECTION, "updates": [update] },
                doc! { "findAndModify": COLLECTION, "query": { "_id": &other }, "update": add() },
            ];
            let mut replies = Vec::new();
            for command in commands {
                replies.push(transaction.run(&mut self.connection, &command)?);
                if !is_fine(&replies[replies.len() - 1]) {
                    break;
                }
            }
            if replies.iter().all(is_fine) {
                let committed = transaction.end(&mut self.connection, "commitTransaction")?;
                ensure!(is_fine(&committed), "{committed}");
                for id in [one, other] {
                    *self.mine.entry(id).or_default() += 1;
                }
                return Ok(());
            }
            let labels = replies[replies.len() - 1].get_array("errorLabels");
            ensure!(labels.is_ok_and(|labels| !labels.is_empty()), "{replies:?}");
            transaction.end(&mut self.connection, "abortTransaction")?;
            thread::sleep(Duration::from_millis(5));
        }
        bail!("a transaction was never executed")
    }

    /// The last client uses only the stable API, except in transactions.
    fn restrict(&self, command: &mut Document) {
        if self.number == CLIENTS - 1 {
            command.insert("apiVersion", "1");
            command.insert("apiStrict", true);
        }
    }

    fn any(&self, choice: usize) -> Option<String> {
        self.mine.keys().nth(choice % self.mine.len().max(1)).cloned()
    }

    fn fresh(&mut self, key: i32) -> Document {
        self.next += 1;
        item(format!("{} {}", self.number, self.next), key, self.next)
    }

    fn insert(&mut self, count: usize, key: i32) -> Result<()> {
        let documents: Vec<Document> = (0..count)
            .map(|place| self.fresh((key + i32::try_from(place).unwrap_or(0)) % KEYS))
            .collect();
        let ordered = count.is_multiple_of(2);
        let reply = self.ask(doc! { "insert": COLLECTION, "documents": &documents, "ordered": ordered })?;
        ensure!(reply.get_i32("n")? == i32::try_from(count)?, "{reply}");
        for document in documents {
            self.mine.insert(document.get_str("_id")?.to_owned(), 0);
        }
        Ok(())
    }

    fn step(&mut self, operation: i32, choice: usize) -> Result<()> {
        self.next += 1;
        let key = i32::try_from(choice % 3)?;
        let Some(id) = self.any(choice) else {
            return self.insert(1, key);
        };
        let own = doc! { "_id": &id };
        match operation {
            0 | 1 => return self.insert(1, key),
            2 => return self.insert(4 + choice % 3, key),
            3 => {
                let update = doc! { "q": own, "u": { "$inc": { "n": 1 } } };
                let reply = self.ask(doc! { "update": COLLECTION, "updates": [update] })?;
                ensure!(reply.get_i32("nModified")? == 1, "{reply}");
                *self.mine.entry(id).or_default() += 1;
            }
            4 => {
                let command =
                    doc! { "findAndModify": COLLECTION, "query": own, "update": { "$inc": { "n": 1 } }, "new": true };
                let reply = self.ask(command)?;
                let known = self.mine.entry(id).or_default();
                *known += 1;
                ensure!(reply.get_document("value")?.get_i32("n")? == *known, "{reply}");
            }
            5 => {
                let reply = self.ask(doc! { "delete": COLLECTION, "deletes": [{ "q": own, "limit": 1 }] })?;
                ensure!(reply.get_i32("n")? == 1, "{reply}");
                self.mine.remove(&id);
            }
            6 => {
                let reply = self.ask(doc! { "findAndModify": COLLECTION, "query": own, "remove": true })?;
                let known = self.mine.remove(&id);
                ensure!(Some(reply.get_document("value")?.get_i32("n")?) == known, "{reply}");
            }
            7 => {
                let chosen: Vec<String> = self.mine.keys().take(4).cloned().collect();
                let updates: Vec<Document> = chosen
                    .iter()
                    .map(|id| doc! { "q": { "_id": id }, "u": { "$inc": { "n": 1 } } })
                    .collect();
                let reply =
                    self.ask(doc! { "update": COLLECTION, "updates": updates, "ordered": choice.is_multiple_of(2) })?;
                ensure!(reply.get_i32("n")? == i32::try_from(chosen.len())?, "{reply}");
                for id in chosen {
                    *self.mine.entry(id).or_default() += 1;
                }
            }
            13 | 14 => {
                let other = self.any(choice / 2).unwrap_or_else(|| id.clone());
                return self.transact(id, other);
            }
            _ => return self.read(operation, &id, key),
        }
        Ok(())
    }

    /// Every result consists of items, and has what this client has written.
    fn read(&mut self, operation: i32, id: &str, key: i32) -> Result<()> {
        let known = self.mine.get(id).copied();
        let some: Vec<String> = self.mine.keys().take(20).cloned().collect();
        let count = i32::try_from(some.len())?;
        let filter = doc! { "_id": { "$in": &some } };
        match operation {
            8 => {
                let reply = self.ask(doc! { "find": COLLECTION, "filter": { "_id": id } })?;
                let found = first_batch(&reply)?;
                ensure!(
                    found.len() == 1 && found[0].get_i32("n").ok() == known,
                    "{known:?}: {reply}"
                );
            }
            9 => {
                let find = doc! { "find": COLLECTION, "filter": { "k": key }, "sort": { "at": -1 }, "limit": 20 };
                let reply = self.ask(find)?;
                for found in first_batch(&reply)? {
                    let fields: Vec<&str> = found.keys().map(String::as_str).collect();
                    ensure!(fields.len() == 4 && fields.contains(&"at"), "not an item: {found}");
                }
            }
            10 => {
                let reply = self.ask(doc! { "count": COLLECTION, "query": filter })?;
                ensure!(reply.get_i32("n")? == count, "{count}: {reply}");
            }
            11 => {
                let reply = self.ask(doc! { "distinct": COLLECTION, "key": "_id", "query": filter })?;
                ensure!(
                    i32::try_from(reply.get_array("values")?.len())? == count,
                    "{count}: {reply}"
                );
            }
            _ => {
                let group = doc! { "$group": { "_id": null, "count": { "$sum": 1 }, "sum": { "$sum": "$n" } } };
                let pipeline = [doc! { "$match": filter }, group];
                let reply = self.ask(doc! { "aggregate": COLLECTION, "pipeline": pipeline, "cursor": {} })?;
                let sum: i32 = some.iter().filter_map(|id| self.mine.get(id)).sum();
                let found = first_batch(&reply)?;
                let found = found.first().context("no group")?;
                ensure!(
                    found.get_i32("count")? == count && found.get_i32("sum")? == sum,
                    "{sum}: {reply}"
                );
            }
        }
        Ok(())
    }
}

fn is_fine(reply: &Document) -> bool {
    reply.get_f64("ok").is_ok_and(|ok| ok > 0.0) && reply.get_array("writeErrors").is_err()
}

fn first_batch(reply: &Document) -> Result<Vec<Document>> {
    let batch = reply.get_document("cursor")?.get_array("firstBatch")?;
    Ok(batch
        .iter()
        .filter_map(|document| document.as_document().cloned())
        .collect())
}

fn use_until(fixture: &Fixture, number: usize, run: &Run<'_>) -> Result<Used> {
    let mut random = rand::rng();
    let mut client = Client {
        fixture,
        connection: fixture.application(number)?,
        number,
        mine: BTreeMap::new(),
        next: 0,
        longest: Duration::ZERO,
    };
    while !run.stopping.load(Ordering::Relaxed) {
        thread::sleep(run.pause);
        let (operation, choice) = (random.random_range(0..15), random.random_range(0..1000));
        client
            .step(operation, choice)
            .with_context(|| format!("client {number}, operation {operation}"))?;
    }
    Ok(Used {
        documents: client.mine,
        longest: client.longest,
    })
}

/// A run of all clients.
struct Run<'a> {
    stopping: &'a AtomicBool,
    /// The pause of a client between two commands.
    pause: Duration,
}

/// The use of a collection by clients.
struct Used {
    /// The documents that must be stored, by `_id`.
    documents: BTreeMap<String, i32>,
    /// The longest time of a command.
    longest: Duration,
}

/// Uses the collection by all clients while `exchange` runs, and checks the documents.
fn beside_clients(fixture: &Fixture, pause: Duration, exchange: impl FnOnce() -> Result<()>) -> Result<Used> {
    let stopping = &AtomicBool::new(false);
    let run = &Run { stopping, pause };
    let used = thread::scope(|scope| -> Result<Used> {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || use_until(fixture, number, run)))
            .collect();
        let exchanged = exchange();
        stopping.store(true, Ordering::Relaxed);
        let (mut documents, mut longest) = (BTreeMap::new(), Duration::ZERO);
        for client in clients {
            let used = client.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
            documents.extend(used.documents);
            longest = longest.max(used.longest);
        }
        exchanged.map(|()| Used { documents, longest })
    })?;
    let mut stored = BTreeMap::new();
    let items = fixture.items()?;
    for item in &items {
        stored.insert(item.get_str("_id")?.to_owned(), item.get_i32("n")?);
    }
    ensure!(items.len() == stored.len(), "an item is stored twice");
    ensure!(
        stored == used.documents,
        "{} stored, {} expected",
        stored.len(),
        used.documents.len()
    );
    Ok(used)
}

#[test]
fn clients_of_two_proxies_notice_no_exchange() -> Result<()> {
    let fixture = Fixture::start(mongod::shared_replica_set())?;
    fixture.store_plain(&[])?;
    let rounds = if is_full("MONGOSHAPE_CRASHES") {
        ALL_ROUNDS
    } else {
        ROUNDS
    };
    let exchange = || {
        for round in 0..rounds {
            thread::sleep(Duration::from_millis(100));
            let end = if round % 5 == 4 {
                CutOver::GivenUp
            } else {
                CutOver::Done
            };
            fixture.convert(Duration::from_millis([0, 20, 150][usize::try_from(round % 3)?]), end)?;
        }
        Ok(())
    };
    beside_clients(&fixture, Duration::ZERO, exchange).map(drop)
}

#[test]
fn clients_of_two_proxies_notice_no_conversion() -> Result<()> {
    let fixture = Fixture::start(mongod::shared_replica_set())?;
    fixture.store_plain(&[])?;
    let other = Shape {
        max_items: 7,
        items: "docs".to_owned(),
        ..Shape::new(&["k", "at"])
    };
    let times = if is_full("MONGOSHAPE_CRASHES") { 2 } else { 1 };
    let exchange = || {
        for _ in 0..times {
            fixture.convert_to(&shape(), &[])?;
            ensure!(fixture.has_pages()?, "no pages");
            fixture.convert_to(&other, &[])?;
            fixture.convert_to(&shape(), &["--back"])?;
            fixture.convert_to(&shape(), &["--to", "plain"])?;
            ensure!(!fixture.has_pages()?, "pages");
        }
        Ok(())
    };
    let used = beside_clients(&fixture, PAUSE, exchange)?;
    ensure!(used.longest < MAX_HELD, "a command took {:?}", used.longest);
    Ok(())
}
