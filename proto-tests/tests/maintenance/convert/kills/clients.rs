//! Clients of two proxies. None may get an error, and each knows what must be stored.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bson::{DateTime, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use rand::RngExt as _;

use super::super::fixture::COLLECTION;
use super::subject::Subject;

/// The documents that no client changes.
pub(super) const BASE: i32 = 200;
/// Clients that write, and one that reads.
const WRITERS: usize = 2;
/// The longest time of a command: until the next run has completed the swap or has undone it.
const MAX_HELD: Duration = Duration::from_secs(25);
/// The pause of a client between two commands at the beginning. It grows, because on a busy machine clients
/// could be faster than a conversion for ever.
const PAUSE: Duration = Duration::from_millis(10);
/// The pause as a part of the time since the beginning.
const PAUSE_DIVISOR: u32 = 20;
/// Commands of each client after the last run.
const AFTERWARDS: u64 = 3;

/// A document that no client changes.
pub(super) fn base_document(id: i32) -> Document {
    document(id, id % 5, i64::from(id))
}

fn document(id: impl Into<bson::Bson>, key: i32, second: i64) -> Document {
    let at = DateTime::from_millis(1_700_000_000_000 + second * 1000);
    doc! { "_id": id.into(), "k": key, "n": 0, "at": at }
}

/// State that clients share with the test.
struct Shared {
    address: [SocketAddr; 2],
    database: String,
    /// A number of its own, because sessions are new.
    session: u64,
    stopping: AtomicBool,
    /// The commands of each client.
    done: [AtomicU64; WRITERS + 1],
}

struct Client<'a> {
    shared: &'a Shared,
    connection: Connection,
    number: usize,
    /// Its documents, by `_id`.
    mine: BTreeMap<String, i32>,
    next: i64,
}

impl Client<'_> {
    fn ask(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.shared.database);
        // Every second client sends retryable writes.
        let is_write = !command.contains_key("find") && !command.contains_key("count");
        if is_write && self.number.is_multiple_of(2) {
            command.insert("lsid", lsid(&format!("{} {}", self.shared.session, self.number)));
            command.insert("txnNumber", self.next);
        }
        let begun = Instant::now();
        let asked = self.connection.command(&command);
        let reply = asked.with_context(|| format!("{command}, after {:?}", begun.elapsed()))?;
        let is_fine = reply.get_f64("ok").is_ok_and(|ok| ok > 0.0) && reply.get_array("writeErrors").is_err();
        ensure!(is_fine, "{command}, after {:?}: {reply}", begun.elapsed());
        self.shared.done[self.number].fetch_add(1, Ordering::Relaxed);
        Ok(reply)
    }

    fn write(&mut self, operation: i32, choice: usize) -> Result<()> {
        self.next += 1;
        let chosen = self.mine.keys().nth(choice % self.mine.len().max(1)).cloned();
        let Some(id) = chosen.filter(|_| operation > 1) else {
            return self.insert(if operation == 1 { 4 } else { 1 }, choice);
        };
        let own = doc! { "_id": &id };
        let increase = doc! { "$inc": { "n": 1 } };
        match operation {
            2 => {
                let reply = self.ask(doc! { "delete": COLLECTION, "deletes": [{ "q": own, "limit": 1 }] })?;
                ensure!(reply.get_i32("n")? == 1, "{reply}");
                self.mine.remove(&id);
                return Ok(());
            }
            3 => {
                let command = doc! { "findAndModify": COLLECTION, "query": own, "update": increase, "new": true };
                let reply = self.ask(command)?;
                let known = self.mine[&id] + 1;
                ensure!(reply.get_document("value")?.get_i32("n")? == known, "{known}: {reply}");
            }
            _ => {
                let reply = self.ask(doc! { "update": COLLECTION, "updates": [{ "q": own, "u": increase }] })?;
                ensure!(reply.get_i32("nModified")? == 1, "{reply}");
            }
        }
        *self.mine.entry(id).or_default() += 1;
        Ok(())
    }

    fn insert(&mut self, count: i64, choice: usize) -> Result<()> {
        let key = i32::try_from(choice % 3)?;
        let documents: Vec<Document> = (0..count)
            .map(|place| document(format!("{} {} {place}", self.number, self.next), key, self.next + place))
            .collect();
        let reply = self.ask(doc! { "insert": COLLECTION, "documents": &documents })?;
        ensure!(i64::from(reply.get_i32("n")?) == count, "{reply}");
        for document in documents {
            self.mine.insert(document.get_str("_id")?.to_owned(), 0);
        }
        Ok(())
    }

    fn read(&mut self, operation: i32) -> Result<()> {
        let filter = doc! { "_id": { "$lt": BASE } };
        if operation % 2 == 0 {
            let reply = self.ask(doc! { "count": COLLECTION, "query": filter })?;
            ensure!(reply.get_i32("n")? == BASE, "{reply}");
            return Ok(());
        }
        let reply = self.ask(doc! { "find": COLLECTION, "filter": filter, "batchSize": 10 * BASE })?;
        let found = reply.get_document("cursor")?.get_array("firstBatch")?;
        let is_item = |item: &bson::Bson| {
            item.as_document()
                .is_some_and(|item| item.len() == 4 && item.contains_key("at"))
        };
        ensure!(
            found.len() == usize::try_from(BASE)? && found.iter().all(is_item),
            "{} found",
            found.len()
        );
        Ok(())
    }

    fn work(mut self) -> Result<BTreeMap<String, i32>> {
        let mut random = rand::rng();
        let begun = Instant::now();
        while !self.shared.stopping.load(Ordering::Relaxed) {
            thread::sleep(PAUSE.max(begun.elapsed() / PAUSE_DIVISOR));
            let (operation, choice) = (random.random_range(0..6), random.random_range(0..1000));
            let done = if self.number == WRITERS {
                self.read(operation)
            } else {
                self.write(operation, choice)
            };
            done.with_context(|| format!("client {}, operation {operation}", self.number))?;
        }
        Ok(self.mine)
    }
}

/// Uses the collection while `happens` runs, and checks that everything is stored exactly once.
pub(super) fn beside_clients<T>(subject: &Subject, happens: impl FnOnce() -> Result<T>) -> Result<T> {
    let shared = &Shared {
        address: [0, 1].map(|number: usize| subject.proxies[number].address()),
        database: subject.database.clone(),
        session: rand::random(),
        stopping: AtomicBool::new(false),
        done: std::array::from_fn(|_| AtomicU64::new(0)),
    };
    let (result, written) = thread::scope(|scope| -> Result<_> {
        let mut clients = Vec::new();
        for number in 0..=WRITERS {
            let connection = Connection::open(shared.address[number % 2])?;
            connection.stream().set_read_timeout(Some(MAX_HELD))?;
            let client = Client {
                shared,
                connection,
                number,
                mine: BTreeMap::new(),
                next: 0,
            };
            clients.push(scope.spawn(move || client.work()));
        }
        let happened = happens().and_then(|result| {
            wait_for_clients(shared)?;
            Ok(result)
        });
        shared.stopping.store(true, Ordering::Relaxed);
        let mut written = BTreeMap::new();
        let mut failed = None;
        for client in clients {
            match client.join().expect("a client panicked") {
                Ok(documents) => written.extend(documents),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match (happened, failed) {
            (happened, None) => happened.map(|result| (result, written)),
            (Ok(_), Some(failed)) => Err(failed),
            (Err(error), Some(failed)) => Err(failed.context(format!("{error:#}"))),
        }
    })?;
    check(&subject.items()?, &written)?;
    Ok(result)
}

/// Waits until each client has executed further commands: nothing is frozen.
fn wait_for_clients(shared: &Shared) -> Result<()> {
    let counts = || -> Vec<u64> { shared.done.iter().map(|done| done.load(Ordering::Relaxed)).collect() };
    let (before, begun) = (counts(), Instant::now());
    while counts()
        .iter()
        .zip(&before)
        .any(|(now, before)| now - before < AFTERWARDS)
    {
        if begun.elapsed() > MAX_HELD {
            bail!("clients do not go on: {before:?} commands, then {:?}", counts());
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn check(items: &[Document], written: &BTreeMap<String, i32>) -> Result<()> {
    let mut stored = BTreeMap::new();
    let mut base = 0;
    for item in items {
        match item.get_str("_id") {
            Ok(id) => drop(stored.insert(id.to_owned(), item.get_i32("n")?)),
            Err(_) => base += 1,
        }
    }
    ensure!(base == BASE, "{base} documents of {BASE} that nobody changes");
    ensure!(
        items.len() == stored.len() + usize::try_from(BASE)?,
        "an item is stored twice"
    );
    for (id, n) in written {
        ensure!(
            stored.get(id) == Some(n),
            "{id}: {:?} is stored, {n} expected",
            stored.get(id)
        );
    }
    let surplus = stored.keys().find(|id| !written.contains_key(*id));
    ensure!(surplus.is_none(), "{surplus:?} was deleted or never written");
    Ok(())
}
