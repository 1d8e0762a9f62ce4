//! The application: writers that do not pause during a failover, and record every reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use mongodb::options::ClientOptions;
use mongodb::{Client, Collection};
use proto_tests::database_name;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::failover::attempts::Attempts;
use crate::failover::ledger::{Change, Ledger};
use crate::failover::workload::{COUNTERS, DOCUMENTS, Workload};

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
    attempts: Attempts,
}

impl Writers {
    pub(crate) fn start(uri: &str, workload: Workload) -> Result<Self> {
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
            attempts: Attempts::default(),
            runtime,
        };
        let client = writers.runtime.block_on(writers.connect(uri))?;
        let database = client.database(&database);
        for (id, acknowledged) in (0..).zip(&writers.acknowledged) {
            let writer = Writer {
                id,
                workload,
                documents: database.collection(DOCUMENTS),
                counters: database.collection(COUNTERS),
                stop: Arc::clone(&writers.stop),
                acknowledged: Arc::clone(acknowledged),
                ledger: Ledger::new(database.name()),
            };
            writers.tasks.push(writers.runtime.spawn(writer.run()));
        }
        Ok(writers)
    }

    /// The application's client, and the counters at zero.
    async fn connect(&self, uri: &str) -> Result<Client> {
        let mut options = ClientOptions::parse(uri).await?;
        Workload::configure(&mut options);
        options.command_event_handler = Some(self.attempts.handler());
        let client = Client::with_options(options)?;
        let counters: Collection<Document> = client.database(&self.database).collection(COUNTERS);
        let zero = (0..WRITERS).map(|id| doc! { "_id": id, "updated": 0_i64, "found": 0_i64 });
        counters.insert_many(zero).await?;
        Ok(client)
    }

    pub(crate) fn attempts(&self) -> &Attempts {
        &self.attempts
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

struct Writer {
    id: i32,
    workload: Workload,
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
                // Whether it was applied is not known, and it is not tried again: that is the driver's
                // affair.
                Err(error) => self.ledger.leave_open(change, &error),
            }
        }
        self.ledger
    }

    /// All kinds in turn; a shaped collection takes no updates.
    fn change(&self, next: i64) -> Change {
        let id = |number: i64| format!("{}-{number}", self.id);
        let kinds = if self.workload == Workload::Plain { 4 } else { 2 };
        match (next / BATCH) % kinds {
            0 => Change::Insert(vec![id(next)]),
            1 => Change::Insert((next..next + BATCH).map(id).collect()),
            2 => Change::Increment(self.id, "updated"),
            _ => Change::Increment(self.id, "found"),
        }
    }

    async fn apply(&self, change: &Change) -> mongodb::error::Result<()> {
        match change {
            Change::Insert(ids) if ids.len() == 1 => {
                self.documents.insert_one(Workload::document(&ids[0])).await?;
            }
            Change::Insert(ids) => {
                let documents = ids.iter().map(|id| Workload::document(id));
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
