//! `bench proxies`: what more proxies before one replica set change. The clients are divided among the proxies.
//! A page that one proxy has filled is unknown to the others, so inserts into one key are where they disturb each
//! other.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use bson::{DateTime, Document, doc};
use clap::Args;
use proto_tests::raw::Connection;
use proto_tests::{Mongod, Proxy, ProxyOptions, Shape, mongod};

use super::at_least_one;
use super::load::{self, Figures};
use super::place::as_f64;
use super::process::cpu_time;
use super::statistics::{median, ratio};

const DATABASE: &str = "proxies";
const COLLECTION: &str = "items";
const KEYS: i64 = 1_000;
/// Items of each key before the measurements.
const ITEMS_PER_KEY: i64 = 200;
/// Items that a read returns.
const READ: i64 = 10;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// In each round every number of proxies is measured once; figures and ratios are medians
    #[arg(long, default_value_t = 3, value_parser = at_least_one())]
    rounds: usize,
    /// Seconds of a measurement
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Clients, divided among the proxies
    #[arg(long, default_value_t = 32, value_parser = at_least_one())]
    clients: usize,
    /// The most proxies
    #[arg(long, default_value_t = 4, value_parser = at_least_one())]
    proxies: usize,
    /// Measures this binary of mongoshape; otherwise the release build is made and measured
    #[arg(long)]
    binary: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Insert,
    /// Of the newest items of a key.
    Find,
}

/// The commands of the clients.
#[derive(Debug, Clone, Copy)]
struct Workload {
    operation: Operation,
    /// The number of keys.
    keys: i64,
}

impl Workload {
    fn all() -> impl Iterator<Item = Self> {
        let operations = [Operation::Insert, Operation::Find];
        operations
            .into_iter()
            .flat_map(|operation| [1, KEYS].map(|keys| Self { operation, keys }))
    }

    fn name(self) -> String {
        let what = match self.operation {
            Operation::Insert => "insertOne".to_owned(),
            Operation::Find => format!("find of the newest {READ} items"),
        };
        match self.keys {
            1 => format!("{what}, one key"),
            keys => format!("{what}, {keys} keys"),
        }
    }

    /// The command with this number, which no other command has.
    fn command(self, number: i64) -> Document {
        // Successive commands have keys far apart.
        let key = number.wrapping_mul(7_919).rem_euclid(self.keys);
        match self.operation {
            Operation::Insert => {
                doc! { "insert": COLLECTION, "documents": [document(number, key)], "$db": DATABASE }
            }
            Operation::Find => doc! {
                "find": COLLECTION,
                "filter": { "user": key },
                "sort": { "at": -1 },
                "limit": READ,
                "$db": DATABASE,
            },
        }
    }
}

fn document(number: i64, key: i64) -> Document {
    doc! {
        "_id": number,
        "user": key,
        "at": DateTime::from_millis(1_700_000_000_000 + number),
        "text": "a text of some words, as a message has it, neither short nor long",
    }
}

/// Prints a table with a line for each workload and number of proxies.
///
/// # Errors
/// If a program fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = super::binary(options.binary.as_deref())?;
    let mongod = mongod::Options::for_measurements(1.0).replica_set(1)?;
    let shape = Shape {
        time: Some("at".to_owned()),
        max_items: 100,
        ..Shape::new(&["user"])
    };
    let shape = shape.toml(&format!("{DATABASE}.{COLLECTION}"));
    let settings = ProxyOptions::new(&mongod.uri()).config(&shape).binary(&binary);
    let proxies = (0..options.proxies).map(|_| Proxy::start(&settings));
    let deployment = Deployment {
        proxies: proxies.collect::<Result<_>>()?,
        mongod,
        numbers: AtomicI64::new(0),
    };
    deployment.fill()?;
    println!(
        "{} clients, {KEYS} keys of {ITEMS_PER_KEY} items, pages of 100, a replica set of one, {} processors; medians of {} rounds of {} s",
        options.clients,
        thread::available_parallelism()?,
        options.rounds,
        options.seconds
    );
    println!(
        "| operation | proxies | operations/s | to one proxy | p50 µs | p99 µs | CPU of the proxies, µs | CPU of mongod, µs | cached head pages |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for workload in Workload::all() {
        let mut measured: Vec<Vec<Sample>> = vec![Vec::new(); options.proxies];
        for _ in 0..options.rounds {
            for (used, samples) in (1..).zip(&mut measured) {
                samples.push(deployment.measure(workload, used, options)?);
            }
        }
        for (used, samples) in (1..).zip(&measured) {
            print_row(workload, used, samples, measured.first().unwrap_or(samples));
        }
    }
    Ok(())
}

fn print_row(workload: Workload, proxies: usize, samples: &[Sample], of_one: &[Sample]) {
    let middle = |figure: fn(&Sample) -> f64| median(samples.iter().map(figure));
    let rates = |samples: &[Sample]| -> Vec<f64> { samples.iter().map(|sample| sample.figures.per_second).collect() };
    let hits = match workload.operation {
        Operation::Insert => format!("{:.1} %", middle(|sample| sample.hits) * 100.0),
        Operation::Find => String::new(),
    };
    println!(
        "| {} | {proxies} | {:.0} | {:.2} | {:.0} | {:.0} | {:.0} | {:.0} | {hits} |",
        workload.name(),
        middle(|sample| sample.figures.per_second),
        ratio(&rates(samples), &rates(of_one)),
        middle(|sample| sample.figures.p50_us),
        middle(|sample| sample.figures.p99_us),
        middle(|sample| sample.proxies_us),
        middle(|sample| sample.mongod_us),
    );
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
struct Sample {
    figures: Figures,
    /// CPU time of all proxies for an operation, in microseconds.
    proxies_us: f64,
    /// The same of mongod.
    mongod_us: f64,
    /// The part of the inserts whose head page was in the proxy's cache.
    hits: f64,
}

/// What the processes have used since their start.
#[derive(Debug, Clone, Copy)]
struct Usage {
    proxies: Duration,
    mongod: Duration,
    hits: f64,
    misses: f64,
}

/// The proxies are stopped before mongod.
struct Deployment {
    proxies: Vec<Proxy>,
    mongod: Mongod,
    /// The number of the next command.
    numbers: AtomicI64,
}

impl Deployment {
    fn next_number(&self) -> i64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn fill(&self) -> Result<()> {
        let mut connection = Connection::open(self.proxies[0].address())?;
        for key in 0..KEYS {
            let documents = (0..ITEMS_PER_KEY).map(|_| document(self.next_number(), key));
            let documents: Vec<Document> = documents.collect();
            connection.command_ok(&doc! { "insert": COLLECTION, "documents": documents, "$db": DATABASE })?;
        }
        Ok(())
    }

    fn usage(&self) -> Result<Usage> {
        let times = self.proxies.iter().map(|proxy| cpu_time(proxy.id()));
        let lookups = |outcome: &str| -> f64 {
            let series = format!("mongoshape_head_page_lookups_total{{outcome=\"{outcome}\"}}");
            self.proxies.iter().map(|proxy| proxy.metric(&series)).sum()
        };
        Ok(Usage {
            proxies: times.sum::<Result<_>>()?,
            mongod: cpu_time(self.mongod.ids()[0])?,
            hits: lookups("hit"),
            misses: lookups("miss"),
        })
    }

    /// Measures a workload with the clients divided among the first proxies.
    fn measure(&self, workload: Workload, used: usize, options: &Options) -> Result<Sample> {
        let before = self.usage()?;
        let length = Duration::from_secs(options.seconds);
        let barrier = &Barrier::new(options.clients);
        let addresses = self.proxies.iter().take(used).map(Proxy::address).cycle();
        let latencies = thread::scope(|scope| {
            let start = |address| scope.spawn(move || self.send(address, workload, length, barrier));
            let threads: Vec<_> = addresses.take(options.clients).map(start).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| anyhow!("a client panicked"))?)
                .collect::<Result<Vec<_>>>()
        })?;
        let after = self.usage()?;
        let mut latencies = latencies.concat();
        latencies.sort_unstable();
        let operations = as_f64(latencies.len());
        let (hits, misses) = (after.hits - before.hits, after.misses - before.misses);
        Ok(Sample {
            figures: load::figures(&latencies, length),
            proxies_us: after.proxies.saturating_sub(before.proxies).as_secs_f64() * 1e6 / operations,
            mongod_us: after.mongod.saturating_sub(before.mongod).as_secs_f64() * 1e6 / operations,
            hits: hits / (hits + misses),
        })
    }

    /// Sends commands over a connection of its own, and returns their latencies.
    fn send(
        &self,
        address: SocketAddr,
        workload: Workload,
        length: Duration,
        barrier: &Barrier,
    ) -> Result<Vec<Duration>> {
        let connection = Connection::open(address);
        // A failed client must still reach the barrier, or the others would wait for ever.
        barrier.wait();
        let mut connection = connection?;
        let mut latencies = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < length {
            let command = workload.command(self.next_number());
            let sent = Instant::now();
            connection.command_ok(&command)?;
            latencies.push(sent.elapsed());
        }
        Ok(latencies)
    }
}
