//! `bench unique`: the additional cost of a unique index on a field, for inserts into a plain collection and
//! through mongoshape.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use bson::{Bson, DateTime, Document, doc};
use clap::Args;
use proto_tests::raw::Connection;
use proto_tests::{Mongod, Proxy, ProxyOptions, Shape, mongod};

use super::at_least_one;
use super::place::as_f64;
use super::statistics::{median, ratio};

const DATABASE: &str = "unique";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// In each round every variant is measured once; figures and ratios are medians
    #[arg(long, default_value_t = 5, value_parser = at_least_one())]
    rounds: usize,
    /// Items that a variant stores in a round
    #[arg(long, default_value_t = 20_000, value_parser = at_least_one())]
    items: usize,
    /// Maximum items of a page
    #[arg(long, default_value_t = 100, value_parser = at_least_one())]
    max_items: usize,
    /// Measures this binary of mongoshape; otherwise the release build is made and measured
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// How the items are inserted.
#[derive(Debug, Clone, Copy)]
struct Workload {
    name: &'static str,
    /// Items in a command.
    batch: usize,
    keys: usize,
}

const WORKLOADS: [Workload; 4] = [
    Workload {
        name: "one by one, 100 keys",
        batch: 1,
        keys: 100,
    },
    Workload {
        name: "batches of 1,000, one key",
        batch: 1000,
        keys: 1,
    },
    Workload {
        name: "batches of 1,000, 50 keys",
        batch: 1000,
        keys: 50,
    },
    Workload {
        name: "batches of 1,000, 1,000 keys",
        batch: 1000,
        keys: 1000,
    },
];

/// Prints a table with a line per workload.
///
/// # Errors
/// If a program fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = super::binary(options.binary.as_deref())?;
    let settings = mongod::Options::for_measurements(1.0);
    let mongod = settings.standalone()?;
    let tables = ["shaped_no_unique", "shaped_unique"].map(|collection| {
        let shape = Shape {
            time: Some("at".to_owned()),
            max_items: options.max_items,
            ..Shape::new(&["user"])
        };
        shape.toml(&format!("{DATABASE}.{collection}"))
    });
    let proxy = Proxy::start(
        &ProxyOptions::new(&mongod.uri())
            .config(&tables.join("\n"))
            .binary(&binary),
    )?;
    println!(
        "{} items a variant and round, pages of {}; µs an item, medians of {} rounds; the ratio is that with the index to that without \
         it",
        options.items, options.max_items, options.rounds
    );
    println!("| inserts | plain | with a unique index | ratio | mongoshape | with a unique index | ratio |");
    println!("|---|---|---|---|---|---|---|");
    for workload in WORKLOADS {
        let mut times: [Vec<f64>; 4] = std::array::from_fn(|_| Vec::new());
        for _ in 0..options.rounds {
            for (variant, times) in variants(&mongod, &proxy)?.iter_mut().zip(&mut times) {
                times.push(variant.measure(workload, options.items)?);
            }
        }
        let [plain, plain_unique, shaped, shaped_unique] = &times;
        let of = |times: &[f64]| median(times.iter().copied());
        println!(
            "| {} | {:.1} | {:.1} | {:.2} | {:.1} | {:.1} | {:.2} |",
            workload.name,
            of(plain),
            of(plain_unique),
            ratio(plain_unique, plain),
            of(shaped),
            of(shaped_unique),
            ratio(shaped_unique, shaped)
        );
    }
    Ok(())
}

/// A new collection, with or without the index.
struct Variant {
    connection: Connection,
    collection: &'static str,
    is_unique: bool,
}

fn variants(mongod: &Mongod, proxy: &Proxy) -> Result<[Variant; 4]> {
    let variant = |address, collection, is_unique| -> Result<Variant> {
        Ok(Variant {
            connection: Connection::open(address)?,
            collection,
            is_unique,
        })
    };
    Ok([
        variant(mongod.address(), "plain_no_unique", false)?,
        variant(mongod.address(), "plain_unique", true)?,
        variant(proxy.address(), "shaped_no_unique", false)?,
        variant(proxy.address(), "shaped_unique", true)?,
    ])
}

impl Variant {
    /// Microseconds an item.
    fn measure(&mut self, workload: Workload, items: usize) -> Result<f64> {
        self.command(doc! { "drop": self.collection }).ok();
        self.command(doc! { "create": self.collection })?;
        let mut indexes = vec![doc! { "key": { "user": 1, "at": 1 }, "name": "user_at" }];
        if self.is_unique {
            indexes.push(doc! { "key": { "email": 1 }, "name": "email_1", "unique": true });
        }
        self.command(doc! { "createIndexes": self.collection, "indexes": indexes })?;
        let documents: Vec<Document> = (0..items).map(|number| document(number, workload.keys)).collect();
        let commands: Vec<Document> = documents
            .chunks(workload.batch)
            .map(|batch| {
                let batch: Vec<Bson> = batch.iter().cloned().map(Bson::from).collect();
                doc! { "insert": self.collection, "documents": batch, "$db": DATABASE }
            })
            .collect();
        let begun = Instant::now();
        for command in &commands {
            self.connection.command_ok(command)?;
        }
        Ok(begun.elapsed().as_secs_f64() * 1e6 / as_f64(items))
    }

    fn command(&mut self, mut command: Document) -> Result<()> {
        command.insert("$db", DATABASE);
        self.connection.command_ok(&command).map(drop)
    }
}

fn document(number: usize, keys: usize) -> Document {
    let number = i64::try_from(number).unwrap_or_default();
    let keys = i64::try_from(keys).unwrap_or(1);
    doc! {
        "_id": number,
        "user": number % keys,
        "at": DateTime::from_millis(1_700_000_000_000 + number),
        "email": format!("user{number}@example.com"),
        "text": "a text of some words, as a message has it, neither short nor long",
    }
}
