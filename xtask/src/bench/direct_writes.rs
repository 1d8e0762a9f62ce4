//! `bench direct-writes`: what `reject_direct_writes` costs writes through mongoshape, on pages of several
//! sizes.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use clap::Args;
use proto_tests::raw::Connection;
use proto_tests::{Proxy, ProxyOptions, Shape, mongod};

use super::at_least_one;
use super::place::as_f64;
use super::statistics::{median, ratio};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// In each round every variant is measured once; figures and ratios are medians
    #[arg(long, default_value_t = 7, value_parser = at_least_one())]
    rounds: usize,
    /// Items that a variant stores in a round
    #[arg(long, default_value_t = 20_000, value_parser = at_least_one())]
    items: usize,
    /// Maximum items of a page, one run for each
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000", value_parser = at_least_one())]
    max_items: Vec<usize>,
    /// Measures this binary of mongoshape; otherwise the release build is made and measured
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// A group of commands that is measured. Each group uses the items of those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Workload {
    InsertOne,
    InsertBatches,
    Update,
}

const WORKLOADS: [Workload; 3] = [Workload::InsertOne, Workload::InsertBatches, Workload::Update];
/// Keys of the items that are inserted one by one, which therefore fill pages.
const KEYS: usize = 20;
const BATCH: usize = 1000;
/// Without the option, and with it.
const COLLECTIONS: [&str; 2] = ["without", "with"];

impl Workload {
    fn name(self) -> &'static str {
        match self {
            Self::InsertOne => "insert of one",
            Self::InsertBatches => "insert of 1,000, 20 keys",
            Self::Update => "update by `_id`",
        }
    }

    /// The commands, and the items that they write.
    fn commands(self, collection: &str, items: usize) -> (Vec<Document>, usize) {
        let half = items / 2;
        let documents = |from: usize| (from..from + half).map(document);
        let insert = |documents: Vec<Bson>| doc! { "insert": collection, "documents": documents };
        match self {
            Self::InsertOne => {
                let one = |document: Document| insert(vec![document.into()]);
                (documents(0).map(one).collect(), half)
            }
            Self::InsertBatches => {
                let all: Vec<Bson> = documents(half).map(Bson::from).collect();
                (all.chunks(BATCH).map(|batch| insert(batch.to_vec())).collect(), half)
            }
            Self::Update => {
                let update = |number: usize| {
                    let change = doc! { "$set": { "value": as_i64(number * 7 % 1000) } };
                    let statement = doc! { "q": { "_id": as_i64(number * 31 % half) }, "u": change };
                    doc! { "update": collection, "updates": [statement] }
                };
                ((0..half / 2).map(update).collect(), half / 2)
            }
        }
    }
}

/// Prints a table with a line for each size of pages and workload.
///
/// # Errors
/// If a program fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = super::binary(options.binary.as_deref())?;
    let settings = mongod::Options::for_measurements(1.0);
    let mongod = settings.standalone()?;
    println!(
        "{} items a variant and round; µs an item, medians of {} rounds; the ratio is that with the option to that without it",
        options.items, options.rounds
    );
    println!("| pages | write | without | with `reject_direct_writes` | ratio |");
    println!("|---|---|---|---|---|");
    for max_items in &options.max_items {
        let shape = Shape {
            time: Some("at".to_owned()),
            max_items: *max_items,
            ..Shape::new(&["user"])
        };
        let with = Shape {
            reject_direct_writes: true,
            ..shape.clone()
        };
        let database = format!("direct_writes_{max_items}");
        let tables = [(COLLECTIONS[0], &shape), (COLLECTIONS[1], &with)]
            .map(|(collection, shape)| shape.toml(&format!("{database}.{collection}")));
        let proxy = ProxyOptions::new(&mongod.uri()).config(&tables.join("\n"));
        let proxy = Proxy::start(&proxy.binary(&binary))?;
        let mut times = [(); WORKLOADS.len()].map(|()| [Vec::new(), Vec::new()]);
        for round in 0..options.rounds {
            for variant in [round % 2, 1 - round % 2] {
                let mut side = Side {
                    connection: Connection::open(proxy.address())?,
                    database: &database,
                    collection: COLLECTIONS[variant],
                };
                let measured = side.measure(options.items)?;
                for (times, measured) in times.iter_mut().zip(measured) {
                    times[variant].push(measured);
                }
            }
        }
        for (workload, [without, with]) in WORKLOADS.iter().zip(&times) {
            println!(
                "| {max_items} | {} | {:.1} | {:.1} | {:.2} |",
                workload.name(),
                median(without.iter().copied()),
                median(with.iter().copied()),
                ratio(with, without)
            );
        }
    }
    Ok(())
}

/// A collection through mongoshape.
struct Side<'a> {
    connection: Connection,
    database: &'a str,
    collection: &'static str,
}

impl Side<'_> {
    /// Microseconds an item of each workload, on a new collection.
    fn measure(&mut self, items: usize) -> Result<[f64; WORKLOADS.len()]> {
        self.command(doc! { "drop": self.collection }).ok();
        self.command(doc! { "create": self.collection })?;
        let mut times = [0.0; WORKLOADS.len()];
        for (workload, time) in WORKLOADS.iter().zip(&mut times) {
            let (commands, written) = workload.commands(self.collection, items);
            let begun = Instant::now();
            for command in commands {
                self.command(command)?;
            }
            *time = begun.elapsed().as_secs_f64() * 1e6 / as_f64(written);
        }
        Ok(times)
    }

    fn command(&mut self, mut command: Document) -> Result<()> {
        command.insert("$db", self.database);
        let reply = self.connection.command_ok(&command)?;
        ensure!(!reply.contains_key("writeErrors"), "{reply}");
        Ok(())
    }
}

fn document(number: usize) -> Document {
    doc! {
        "_id": as_i64(number),
        "user": as_i64(number % KEYS),
        "at": DateTime::from_millis(1_700_000_000_000 + as_i64(number)),
        "value": as_i64(number),
        "text": "a text of some words, as a message has it, neither short nor long",
    }
}

fn as_i64(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
