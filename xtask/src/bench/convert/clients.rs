//! Clients that write their own documents without a pause.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sessions::{Transaction, lsid};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};

use super::{COLLECTION, DATABASE, KEYS};

/// Documents of a client, at most.
const MAX_DOCUMENTS: usize = 2_000;
/// mongod's code for a document that does not satisfy the validator.
const DOCUMENT_VALIDATION_FAILURE: i32 = 121;
/// Attempts at one transaction.
const MAX_ATTEMPTS: u32 = 2_000;

/// The values of `n`, by `_id`.
pub(super) type Documents = BTreeMap<String, i32>;

/// The server of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Proxies,
    /// mongod refuses writes to a frozen collection, which a proxy would hold. They are sent again.
    Mongod,
}

/// The counters that all clients share.
#[derive(Debug, Default)]
struct Counters {
    stopping: AtomicBool,
    /// Commands that write, since the beginning.
    writes: AtomicU64,
    /// The longest command since the beginning of an interval.
    longest: Mutex<Option<LongCommand>>,
}

/// A command that took long.
#[derive(Debug, Clone)]
struct LongCommand {
    name: String,
    sent: Instant,
    time: Duration,
}

/// Running clients.
pub(super) struct Clients {
    counters: Arc<Counters>,
    running: Vec<JoinHandle<Result<Documents>>>,
}

/// The beginning of an interval.
pub(super) struct Beginning {
    at: Instant,
    writes: u64,
}

/// The writes of all clients in some time.
pub(super) struct Interval {
    pub(super) time: Duration,
    writes: u64,
    pub(super) longest: LongestWrite,
}

/// The longest write of an interval.
#[derive(Debug, Clone, Default)]
pub(super) struct LongestWrite {
    /// The name of the command.
    pub(super) command: String,
    /// From the beginning of the interval until the command was sent.
    pub(super) after: Duration,
    pub(super) time: Duration,
}

impl Interval {
    /// Writes a second.
    pub(super) fn rate(&self) -> f64 {
        f64::from(u32::try_from(self.writes).unwrap_or(u32::MAX)) / self.time.as_secs_f64()
    }
}

impl Clients {
    /// Starts clients with these numbers, by which their documents differ. Each writes to the next address.
    pub(super) fn start(addresses: &[SocketAddr], target: Target, numbers: Range<usize>) -> Self {
        let counters = Arc::<Counters>::default();
        let client = |(number, address): (usize, &SocketAddr)| {
            let (counters, address) = (Arc::clone(&counters), *address);
            thread::spawn(move || {
                let written = write_until_stopped(address, target, number, &counters);
                written.inspect_err(|error| eprintln!("client {number}: {error:#}"))
            })
        };
        Self {
            running: numbers.zip(addresses.iter().cycle()).map(client).collect(),
            counters,
        }
    }

    /// Begins an interval.
    pub(super) fn begin(&self) -> Beginning {
        *self.counters.longest.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Beginning {
            at: Instant::now(),
            writes: self.counters.writes.load(Ordering::Relaxed),
        }
    }

    /// The writes since the beginning of the last interval.
    pub(super) fn since(&self, beginning: &Beginning) -> Result<Interval> {
        self.check()?;
        let longest = self
            .counters
            .longest
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let longest = longest.map(|command| LongestWrite {
            after: command.sent.saturating_duration_since(beginning.at),
            time: command.time,
            command: command.name,
        });
        Ok(Interval {
            time: beginning.at.elapsed(),
            writes: self.counters.writes.load(Ordering::Relaxed) - beginning.writes,
            longest: longest.unwrap_or_default(),
        })
    }

    /// # Errors
    /// If a client has ended before it was stopped.
    pub(super) fn check(&self) -> Result<()> {
        let ended = self.running.iter().any(JoinHandle::is_finished);
        ensure!(!ended, "a client has ended with an error");
        Ok(())
    }

    /// Stops the clients. Returns their documents.
    pub(super) fn stop(self) -> Result<Documents> {
        self.counters.stopping.store(true, Ordering::Relaxed);
        let mut all = Documents::new();
        for client in self.running {
            all.extend(client.join().map_err(|_| anyhow!("a client panicked"))??);
        }
        Ok(all)
    }
}

fn write_until_stopped(address: SocketAddr, target: Target, number: usize, counters: &Counters) -> Result<Documents> {
    let mut client = Client {
        connection: Connection::open(address)?,
        target,
        number,
        random: ChaCha8Rng::seed_from_u64(u64::try_from(number)?),
        mine: Documents::new(),
        next: 0,
        counters,
    };
    while !counters.stopping.load(Ordering::Relaxed) {
        client.write()?;
        counters.writes.fetch_add(1, Ordering::Relaxed);
    }
    Ok(client.mine)
}

struct Client<'a> {
    connection: Connection,
    target: Target,
    number: usize,
    random: ChaCha8Rng,
    mine: Documents,
    /// The number of the last command.
    next: i64,
    counters: &'a Counters,
}

impl Client<'_> {
    fn write(&mut self) -> Result<()> {
        self.next += 1;
        let operation = self.random.random_range(0..10);
        let Some(id) = self.any().filter(|_| operation > 1 || self.mine.len() >= MAX_DOCUMENTS) else {
            return self.insert();
        };
        let own = doc! { "_id": &id };
        match operation {
            0..=4 => {
                self.update(vec![doc! { "q": own, "u": { "$inc": { "n": 1 } } }])?;
                self.count(id);
            }
            5 => {
                let key = i64::try_from(self.random.random_range(0..KEYS))?;
                self.update(vec![
                    doc! { "q": own, "u": { "$set": { "k": key }, "$inc": { "n": 1 } } },
                ])?;
                self.count(id);
            }
            6 => {
                let ids: Vec<String> = self.mine.keys().take(10).cloned().collect();
                let updates = ids
                    .iter()
                    .map(|id| doc! { "q": { "_id": id }, "u": { "$inc": { "n": 1 } } });
                self.update(updates.collect())?;
                for id in ids {
                    self.count(id);
                }
            }
            7 => {
                let reply = self.run(doc! { "delete": COLLECTION, "deletes": [{ "q": own, "limit": 1 }] })?;
                ensure!(reply.get_i32("n")? == 1, "{reply}");
                self.mine.remove(&id);
            }
            8 => {
                let update = doc! { "$inc": { "n": 1 } };
                self.run(doc! { "findAndModify": COLLECTION, "query": own, "update": update })?;
                self.count(id);
            }
            _ => {
                let other = self.any().unwrap_or_else(|| id.clone());
                self.transact(id, other)?;
            }
        }
        Ok(())
    }

    fn any(&mut self) -> Option<String> {
        let place = self.random.random_range(0..self.mine.len().max(1));
        self.mine.keys().nth(place).cloned()
    }

    fn count(&mut self, id: String) {
        *self.mine.entry(id).or_default() += 1;
    }

    fn insert(&mut self) -> Result<()> {
        let count = if self.random.random_range(0..4) == 0 { 20 } else { 1 };
        let documents: Vec<Document> = (0..count).map(|place| self.document(place)).collect();
        let reply = self.run(doc! { "insert": COLLECTION, "documents": &documents })?;
        ensure!(reply.get_i32("n")? == count, "{reply}");
        for document in documents {
            self.mine.insert(document.get_str("_id")?.to_owned(), 0);
        }
        Ok(())
    }

    fn document(&mut self, place: i32) -> Document {
        let key = i64::try_from(self.random.random_range(0..KEYS)).unwrap_or(0);
        let at = DateTime::from_millis(1_800_000_000_000 + self.next);
        doc! { "_id": format!("{} {} {place}", self.number, self.next), "k": key, "owner": key % 77, "at": at, "n": 0 }
    }

    fn update(&mut self, updates: Vec<Document>) -> Result<()> {
        let count = i32::try_from(updates.len())?;
        let reply = self.run(doc! { "update": COLLECTION, "updates": updates })?;
        ensure!(reply.get_i32("nModified")? == count, "{reply}");
        Ok(())
    }

    /// A retryable write.
    fn run(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", DATABASE);
        command.insert("lsid", lsid(&format!("client {}", self.number)));
        command.insert("txnNumber", self.next);
        loop {
            let begun = Instant::now();
            let reply = self.connection.command(&command)?;
            self.took(begun, &command);
            if self.target == Target::Mongod && is_frozen(&reply) {
                thread::sleep(Duration::from_millis(50));
                continue;
            }
            ensure!(is_ok(&reply), "{command}: {reply}");
            return Ok(reply);
        }
    }

    fn took(&self, sent: Instant, command: &Document) {
        let time = sent.elapsed();
        let mut longest = self.counters.longest.lock().unwrap_or_else(PoisonError::into_inner);
        if longest.as_ref().is_none_or(|longest| longest.time < time) {
            let name = command.keys().next().cloned().unwrap_or_default();
            *longest = Some(LongCommand { name, sent, time });
        }
    }

    /// Changes two documents in a transaction, which is tried again as drivers do.
    fn transact(&mut self, one: String, other: String) -> Result<()> {
        for attempt in 0..MAX_ATTEMPTS {
            let session = format!("transaction {} {} {attempt}", self.number, self.next);
            let mut transaction = Transaction::new(&session, DATABASE);
            let mut failed = None;
            for id in [&one, &other] {
                let update = doc! { "q": { "_id": id }, "u": { "$inc": { "n": 1 } } };
                let command = doc! { "update": COLLECTION, "updates": [update] };
                let begun = Instant::now();
                let reply = transaction.run(&mut self.connection, &command)?;
                self.took(begun, &command);
                if !is_ok(&reply) {
                    failed = Some(reply);
                    break;
                }
            }
            let Some(failed) = failed else {
                let reply = transaction.end(&mut self.connection, "commitTransaction")?;
                ensure!(is_ok(&reply), "{reply}");
                self.count(one);
                self.count(other);
                return Ok(());
            };
            let transient = Bson::from("TransientTransactionError");
            let labels = failed.get_array("errorLabels");
            let is_transient = labels.is_ok_and(|labels| labels.contains(&transient));
            ensure!(
                is_transient || (self.target == Target::Mongod && is_frozen(&failed)),
                "{failed}"
            );
            transaction.end(&mut self.connection, "abortTransaction")?;
            thread::sleep(Duration::from_millis(5));
        }
        Err(anyhow!("a transaction was never executed"))
    }
}

/// Whether mongod refuses the write because the collection is frozen. A proxy holds the command instead.
fn is_frozen(reply: &Document) -> bool {
    let of_statement = reply
        .get_array("writeErrors")
        .ok()
        .and_then(|errors| errors.first()?.as_document());
    let code = of_statement.unwrap_or(reply).get_i32("code");
    code.is_ok_and(|code| code == DOCUMENT_VALIDATION_FAILURE)
}

fn is_ok(reply: &Document) -> bool {
    reply.get_f64("ok").is_ok_and(|ok| ok > 0.0) && reply.get_array("writeErrors").is_err()
}
