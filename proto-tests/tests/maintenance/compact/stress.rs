//! Every command that changes items, repeated during repeated compaction: acknowledged writes are stored.
//! `MONGOSHAPE_STRESS_SECONDS` sets the duration. `MONGOSHAPE_CRASHES=full` makes it four times as long.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use bson::{Document, doc};
use proto_tests::measure::is_full;
use proto_tests::raw::Connection;
use proto_tests::sessions::{Transaction, lsid};
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::{Mongod, ProxyOptions, mongod};

use super::compact;

const SECONDS: &str = "MONGOSHAPE_STRESS_SECONDS";
const SECONDS_IN_CI: u64 = 2;
const SECONDS_OF_ALL: u64 = 8;
/// Items of a worker, of seven keys, which are those of all workers.
const ITEMS: i32 = 120;
/// Items that come and go between two packings, so that there are short pages.
const PASSING: i32 = 400;
const WRITE_CONFLICT: i32 = 112;
/// How often a transaction is begun anew that conflicted with another client.
const ATTEMPTS: u32 = 1000;

/// A client that changes items of its own. The field `n` of each counts how often that was done.
struct Worker<'a> {
    shaped: &'a Shaped,
    connection: Connection,
    name: &'static str,
    /// Whether its writes are retryable.
    is_retryable: bool,
    /// Commands so far.
    commands: i32,
}

impl<'a> Worker<'a> {
    fn open(shaped: &'a Shaped, name: &'static str, is_retryable: bool) -> Result<Self> {
        let connection = shaped.application()?;
        connection.stream().set_read_timeout(Some(Duration::from_mins(1)))?;
        let mut worker = Self {
            shaped,
            connection,
            name,
            is_retryable,
            commands: 0,
        };
        worker.insert(ITEMS)?;
        Ok(worker)
    }

    fn id(&self, number: i32) -> String {
        format!("{} {} {number}", self.name, self.is_retryable)
    }

    fn owner(&self) -> String {
        format!("{} {}", self.name, self.is_retryable)
    }

    fn insert(&mut self, count: i32) -> Result<()> {
        let item = |n: i32| doc! { "_id": self.id(n), "k": n % 7, "owner": self.owner(), "n": 0 };
        let items: Vec<Document> = (0..count).map(item).collect();
        let reply = self.write(doc! { "insert": COLLECTION, "documents": items })?;
        ensure!(reply.get_i32("n")? == count, "{}: {reply}", self.owner());
        Ok(())
    }

    /// Runs a write, none of whose statements may fail.
    fn write(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.shaped.database);
        if self.is_retryable {
            command.insert("lsid", lsid(&format!("{} {}", self.shaped.database, self.owner())));
            command.insert("txnNumber", i64::from(self.commands));
        }
        self.commands += 1;
        let reply = self.connection.command_ok(&command)?;
        ensure!(reply.get("writeErrors").is_none(), "{}: {reply}", self.owner());
        Ok(reply)
    }

    fn changes_all(&mut self, command: Document) -> Result<()> {
        let reply = self.write(command)?;
        let changed = (reply.get_i32("n")?, reply.get_i32("nModified")?);
        ensure!(changed == (ITEMS, ITEMS), "{}: {reply}", self.owner());
        Ok(())
    }

    fn update_many(&mut self) -> Result<()> {
        let statement = doc! { "q": { "owner": self.owner() }, "u": { "$inc": { "n": 1 } }, "multi": true };
        self.changes_all(doc! { "update": COLLECTION, "updates": [statement] })
    }

    /// To another key. An update that conflicts with a packing may fail, and reports how many it has
    /// changed. Then the others are changed.
    fn move_many(&mut self, round: i32) -> Result<()> {
        let mut left = ITEMS;
        while left > 0 {
            let change = doc! { "$inc": { "n": 1 }, "$set": { "k": round % 5 } };
            let statement = doc! { "q": { "owner": self.owner(), "n": round }, "u": change, "multi": true };
            let update = doc! { "update": COLLECTION, "updates": [statement], "$db": &self.shaped.database };
            let reply = self.connection.command_ok(&update)?;
            self.commands += 1;
            let changed = match reply
                .get_array("writeErrors")
                .ok()
                .and_then(|errors| errors.first()?.as_document())
            {
                None => reply.get_i32("n")?,
                Some(error) => {
                    let message = error.get_str("errmsg")?;
                    let count = message
                        .split(" items were changed")
                        .next()
                        .and_then(|text| text.rsplit(' ').next());
                    let count = count.and_then(|count| count.parse().ok());
                    let is_conflict =
                        error.get_i32("code")? == WRITE_CONFLICT && message.contains("`mongoshape compact`");
                    count
                        .filter(|_| is_conflict)
                        .with_context(|| format!("{}: {reply}", self.owner()))?
                }
            };
            let find = doc! { "count": COLLECTION, "query": { "owner": self.owner(), "n": round }, "$db": &self.shaped.database };
            let now = self.connection.command_ok(&find)?.get_i32("n")?;
            ensure!(
                left - now == changed,
                "{}: {left} were left, and {now} are: {reply}",
                self.owner()
            );
            left = now;
        }
        Ok(())
    }

    fn bulk(&mut self, round: i32) -> Result<()> {
        let one = |n: i32| doc! { "q": { "_id": self.id(n) }, "u": { "$inc": { "n": 1 } } };
        let statements: Vec<Document> = (0..ITEMS).map(one).collect();
        self.changes_all(doc! { "update": COLLECTION, "updates": statements, "ordered": round % 2 == 0 })
    }

    /// One after the other, by `_id` and by another field.
    fn find_and_modify(&mut self, round: i32) -> Result<()> {
        for n in 0..ITEMS {
            let query = if n % 2 == 0 {
                doc! { "_id": self.id(n) }
            } else {
                doc! { "owner": self.owner(), "k": n % 7, "n": round, "_id": self.id(n) }
            };
            let command = doc! { "findAndModify": COLLECTION, "query": query, "update": { "$inc": { "n": 1 } } };
            let reply = self.write(command)?;
            let value = reply
                .get_document("value")
                .with_context(|| format!("{}: {reply}", self.owner()))?;
            ensure!(value.get_i32("n")? == round, "{}: {reply}", self.owner());
        }
        Ok(())
    }

    /// All are deleted, and inserted again with their count.
    fn delete_all(&mut self, round: i32) -> Result<()> {
        let delete = if self.is_retryable {
            let one = |n: i32| doc! { "q": { "_id": self.id(n) }, "limit": 1 };
            (0..ITEMS).map(one).collect()
        } else {
            vec![doc! { "q": { "owner": self.owner() }, "limit": 0 }]
        };
        let reply = self.write(doc! { "delete": COLLECTION, "deletes": delete })?;
        ensure!(reply.get_i32("n")? == ITEMS, "{}: {reply}", self.owner());
        let item = |n: i32| doc! { "_id": self.id(n), "k": n % 7, "owner": self.owner(), "n": round + 1 };
        let items: Vec<Document> = (0..ITEMS).map(item).collect();
        let reply = self.write(doc! { "insert": COLLECTION, "documents": items })?;
        ensure!(reply.get_i32("n")? == ITEMS, "{}: {reply}", self.owner());
        Ok(())
    }

    /// Removed one by one, and upserted again.
    fn remove_and_upsert(&mut self, round: i32) -> Result<()> {
        for n in 0..ITEMS {
            let remove = doc! { "findAndModify": COLLECTION, "query": { "_id": self.id(n) }, "remove": true };
            let reply = self.write(remove)?;
            let value = reply
                .get_document("value")
                .with_context(|| format!("{}: {reply}", self.owner()))?;
            ensure!(value.get_i32("n")? == round, "{}: {reply}", self.owner());
            let made = doc! { "$set": { "owner": self.owner(), "n": round + 1 } };
            let upsert = doc! { "q": { "_id": self.id(n), "k": n % 7 }, "u": made, "upsert": true };
            let reply = self.write(doc! { "update": COLLECTION, "updates": [upsert] })?;
            ensure!(reply.get_array("upserted")?.len() == 1, "{}: {reply}", self.owner());
        }
        Ok(())
    }

    /// All or none. A conflict with another client or a packing begins the transaction again.
    fn transaction(&mut self, round: i32) -> Result<()> {
        for attempt in 0..ATTEMPTS {
            let session = format!("{} {} {round} {attempt}", self.shaped.database, self.name);
            let mut transaction = Transaction::new(&session, &self.shaped.database);
            let half = |rest: i32| {
                let one = |n: i32| doc! { "q": { "_id": self.id(n) }, "u": { "$inc": { "n": 1 } } };
                let statements: Vec<Document> = (0..ITEMS).filter(|n| n % 2 == rest).map(one).collect();
                doc! { "update": COLLECTION, "updates": statements }
            };
            let halves = [half(0), half(1)];
            let mut is_well = true;
            for command in &halves {
                let reply = transaction.run(&mut self.connection, command)?;
                is_well = reply.get_f64("ok").is_ok_and(|ok| ok > 0.0) && !reply.contains_key("writeErrors");
                if !is_well {
                    break;
                }
                ensure!(reply.get_i32("n")? == ITEMS / 2, "{}: {reply}", self.owner());
            }
            if !is_well {
                transaction.end(&mut self.connection, "abortTransaction")?;
                continue;
            }
            let reply = transaction.end(&mut self.connection, "commitTransaction")?;
            if reply.get_f64("ok").is_ok_and(|ok| ok > 0.0) {
                return Ok(());
            }
        }
        Err(anyhow!("{}: no transaction of {ATTEMPTS} was committed", self.owner()))
    }

    /// Every item is there once, and was changed so often.
    fn check(&mut self, rounds: i32) -> Result<()> {
        let find = doc! { "find": COLLECTION, "filter": { "owner": self.owner() }, "$db": &self.shaped.database };
        let items = self.connection.all(&find)?;
        let other = items.iter().find(|item| item.get_i32("n").ok() != Some(rounds));
        ensure!(other.is_none(), "{}, {rounds} rounds: {other:?}", self.owner());
        ensure!(
            items.len() == usize::try_from(ITEMS)?,
            "{}: {} items",
            self.owner(),
            items.len()
        );
        Ok(())
    }
}

/// What a worker does in a round.
#[derive(Clone, Copy)]
struct Work {
    name: &'static str,
    /// Whether mongod takes it as a retryable write.
    may_be_retryable: bool,
    /// Whether it needs transactions.
    needs_a_set: bool,
    run: fn(&mut Worker<'_>, i32) -> Result<()>,
}

const WORK: &[Work] = &[
    Work {
        name: "updateMany",
        may_be_retryable: false,
        needs_a_set: false,
        run: |worker, _| worker.update_many(),
    },
    Work {
        name: "updateMany to another key",
        may_be_retryable: false,
        needs_a_set: true,
        run: |worker, round| worker.move_many(round),
    },
    Work {
        name: "bulk",
        may_be_retryable: true,
        needs_a_set: false,
        run: |worker, round| worker.bulk(round),
    },
    Work {
        name: "findAndModify",
        may_be_retryable: true,
        needs_a_set: false,
        run: |worker, round| worker.find_and_modify(round),
    },
    Work {
        name: "delete and insert",
        may_be_retryable: true,
        needs_a_set: false,
        run: |worker, round| worker.delete_all(round),
    },
    Work {
        name: "remove and upsert",
        may_be_retryable: true,
        needs_a_set: false,
        run: |worker, round| worker.remove_and_upsert(round),
    },
    Work {
        name: "transaction",
        may_be_retryable: false,
        needs_a_set: true,
        run: |worker, round| worker.transaction(round),
    },
];

#[expect(
    clippy::print_stderr,
    reason = "the test's own output, which the test runner captures"
)]
fn what_was_answered_is_stored(mongod: &Mongod) -> Result<()> {
    let seconds = std::env::var(SECONDS).ok().and_then(|seconds| seconds.parse().ok());
    let usual = if is_full("MONGOSHAPE_CRASHES") {
        SECONDS_OF_ALL
    } else {
        SECONDS_IN_CI
    };
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(usual));
    let shaped = Shaped::with("max_items = 20\n", &ProxyOptions::new(&mongod.uri()))?;
    let goes_on = AtomicBool::new(true);
    let commands = AtomicU32::new(0);
    let run = |work: Work, is_retryable: bool| -> Result<()> {
        let mut worker = Worker::open(&shaped, work.name, is_retryable)?;
        let mut rounds = 0;
        while goes_on.load(Ordering::Relaxed) {
            (work.run)(&mut worker, rounds)?;
            rounds += 1;
        }
        commands.fetch_add(u32::try_from(worker.commands)?, Ordering::Relaxed);
        worker.check(rounds)
    };
    let packings = thread::scope(|scope| -> Result<u32> {
        let mut workers = Vec::new();
        let is_set = mongod.is_replica_set();
        for work in WORK.iter().filter(|work| is_set || !work.needs_a_set) {
            workers.push(scope.spawn(|| run(*work, false)));
            if is_set && work.may_be_retryable {
                workers.push(scope.spawn(|| run(*work, true)));
            }
        }
        let packed = pack_until(&shaped, end);
        goes_on.store(false, Ordering::Relaxed);
        for worker in workers {
            worker.join().map_err(|_| anyhow!("a worker has panicked"))??;
        }
        packed
    })?;
    eprintln!("{} commands beside {packings} packings", commands.into_inner());
    ensure!(packings > 1, "{packings} packings");
    Ok(())
}

fn pack_until(shaped: &Shaped, end: Instant) -> Result<u32> {
    let mut application = shaped.application()?;
    application.stream().set_read_timeout(Some(Duration::from_mins(1)))?;
    let mut packings = 0;
    while Instant::now() < end || packings < 2 {
        let item = |n: i32| doc! { "_id": format!("{packings} {n}"), "k": n % 7, "owner": "none" };
        let items: Vec<Document> = (0..PASSING).map(item).collect();
        application.command_ok(&shaped.insert(&items))?;
        let gone = doc! { "q": { "owner": "none" }, "limit": 0 };
        let delete = doc! { "delete": COLLECTION, "deletes": [gone], "$db": &shaped.database };
        let reply = application.command_ok(&delete)?;
        ensure!(reply.get_i32("n")? == PASSING, "{reply}");
        compact(&shaped.proxy)?;
        packings += 1;
    }
    Ok(packings)
}

#[test]
fn acknowledged_writes_are_stored_on_a_replica_set() -> Result<()> {
    what_was_answered_is_stored(mongod::shared_replica_set())
}

#[test]
fn acknowledged_writes_are_stored_on_a_standalone() -> Result<()> {
    what_was_answered_is_stored(mongod::shared())
}
