//! The application: writers that never wait for better times, and keep account of every answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use mongodb::options::{ClientOptions, WriteConcern};
use mongodb::{Client, Collection};
use proto_tests::database_name;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::ledger::{Change, Ledger};

const WRITERS: i32 = 8;
/// Writes of each writer that show that it gets on.
const PROGRESS: i64 = 20;
/// An election takes four seconds at the most, and the driver gives up a search for a server after thirty.
const PROGRESS_LIMIT: Duration = Duration::from_secs(40);
/// Documents of one `insertMany`.
const BATCH: i64 = 3;

/// Running writers.
#[derive(Debug)]
pub(crate) struct Writers {
    runtime: Runtime,
    database: String,
    stop: Arc<AtomicBool>,
    /// How many writes of each writer were acknowledged.
    acknowledged: Vec<Arc<AtomicI64>>,
    tasks: Vec<JoinHandle<Ledger>>,
}

impl Writers {
    pub(crate) fn start(uri: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let database = database_name();
        let mut writers = Self {
            database: database.clone(),
            stop: Arc::default(),
            acknowledged: (0..WRITERS).map(|_| Arc::default()).collect(),
            tasks: Vec::new(),
            runtime,
        };
        let client = writers.runtime.block_on(connect(uri, &database))?;
        let database = client.database(&database);
        for (id, acknowledged) in (0..).zip(&writers.acknowledged) {
            let writer = Writer {
                id,
                documents: database.collection("documents"),
                counters: database.collection("counters"),
                stop: Arc::clone(&writers.stop),
                acknowledged: Arc::clone(acknowledged),
                ledger: Ledger::new(database.name()),
            };
            writers.tasks.push(writers.runtime.spawn(writer.run()));
        }
        Ok(writers)
    }

    /// Waits until every writer has got some further writes through.
    pub(crate) fn wait_for_progress(&self) -> Result<()> {
        let deadline = Instant::now() + PROGRESS_LIMIT;
        let counts = |extra: i64| {
            let loaded = self
                .acknowledged
                .iter()
                .map(move |count| count.load(Ordering::Relaxed) + extra);
            loaded.collect::<Vec<_>>()
        };
        let wanted = counts(PROGRESS);
        while counts(0).iter().zip(&wanted).any(|(count, wanted)| count < wanted) {
            ensure!(
                Instant::now() < deadline,
                "not every writer gets on: {:?} instead of {wanted:?} acknowledged writes after {PROGRESS_LIMIT:?}",
                counts(0)
            );
            ensure!(self.tasks.iter().all(|task| !task.is_finished()), "a writer ended");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Lets every writer finish what it is at, and gives their accounts.
    pub(crate) fn stop(self) -> Result<Ledger> {
        self.stop.store(true, Ordering::Relaxed);
        let mut whole = Ledger::new(&self.database);
        for task in self.tasks {
            whole.add(self.runtime.block_on(task).context("a writer panicked")?);
        }
        Ok(whole)
    }
}

/// A client with what applications have by default, retryable writes among it, and the counters at zero.
async fn connect(uri: &str, database: &str) -> Result<Client> {
    let mut options = ClientOptions::parse(uri).await?;
    options.write_concern = Some(WriteConcern::majority());
    let client = Client::with_options(options)?;
    let counters: Collection<Document> = client.database(database).collection("counters");
    let zero = (0..WRITERS).map(|id| doc! { "_id": id, "updated": 0_i64, "found": 0_i64 });
    counters.insert_many(zero).await?;
    Ok(client)
}

struct Writer {
    id: i32,
    documents: Collection<Document>,
    counters: Collection<Document>,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicI64>,
    ledger: Ledger,
}

impl Writer {
    async fn run(mut self) -> Ledger {
        let mut next = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let change = self.change(next);
            next += BATCH;
            match self.apply(&change).await {
                Ok(()) => {
                    self.ledger.acknowledge(change);
                    self.acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                // Whether it was applied is not known, and it is not tried again: that is the driver's affair.
                Err(error) => self.ledger.leave_open(change, &error),
            }
        }
        self.ledger
    }

    /// All kinds in turn.
    fn change(&self, next: i64) -> Change {
        let id = |number: i64| format!("{}-{number}", self.id);
        match (next / BATCH) % 4 {
            0 => Change::Insert(vec![id(next)]),
            1 => Change::Insert((next..next + BATCH).map(id).collect()),
            2 => Change::Increment(self.id, "updated"),
            _ => Change::Increment(self.id, "found"),
        }
    }

    async fn apply(&self, change: &Change) -> mongodb::error::Result<()> {
        match change {
            Change::Insert(ids) if ids.len() == 1 => {
                self.documents.insert_one(doc! { "_id": &ids[0] }).await?;
            }
            Change::Insert(ids) => {
                let documents = ids.iter().map(|id| doc! { "_id": id });
                self.documents.insert_many(documents).await?;
            }
            Change::Increment(id, field @ "updated") => {
                let increment = doc! { "$inc": { *field: 1_i64 } };
                let updated = self.counters.update_one(doc! { "_id": id }, increment).await?;
                assert_eq!(updated.matched_count, 1, "a counter that was there is not found");
            }
            Change::Increment(id, field) => {
                let increment = doc! { "$inc": { *field: 1_i64 } };
                let found = self.counters.find_one_and_update(doc! { "_id": id }, increment).await?;
                assert!(found.is_some(), "a counter that was there is not found");
            }
        }
        Ok(())
    }
}
