//! `bench streams`: what change streams cost writes: those on a collection without them beside an open stream,
//! and those on a collection with them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use bson::{Bson, DateTime, Document, doc};
use clap::Args;
use proto_tests::raw::Connection;
use proto_tests::{Proxy, ProxyOptions, Shape, mongod};

use super::at_least_one;
use super::place::as_f64;
use super::statistics::{median, ratio};

const DATABASE: &str = "streams";
/// The collection without change streams.
const WITHOUT: &str = "without";
/// The collection with change streams.
const WITH: &str = "with";
/// The collection that is watched while another is measured.
const WATCHED: &str = "watched";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// In each round every variant is measured once; figures and ratios are medians
    #[arg(long, default_value_t = 5, value_parser = at_least_one())]
    rounds: usize,
    /// Items that a variant writes in a round
    #[arg(long, default_value_t = 5_000, value_parser = at_least_one())]
    items: usize,
    /// Measures this binary of mongoshape; otherwise the release build is made and measured
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// The writes that are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Workload {
    InsertOne,
    InsertMany,
    UpdateOne,
}

impl Workload {
    const ALL: [Self; 3] = [Self::InsertOne, Self::InsertMany, Self::UpdateOne];

    fn name(self) -> &'static str {
        match self {
            Self::InsertOne => "insertOne, 50 keys",
            Self::InsertMany => "insertMany of 1,000, 50 keys",
            Self::UpdateOne => "updateOne by `_id`",
        }
    }

    fn commands(self, collection: &str, items: usize) -> Vec<Document> {
        let numbers: Vec<i64> = (0..i64::try_from(items).unwrap_or(i64::MAX)).collect();
        let insert = |numbers: &[i64]| {
            let documents: Vec<Bson> = numbers.iter().map(|number| document(*number).into()).collect();
            doc! { "insert": collection, "documents": documents, "$db": DATABASE }
        };
        let update = |number: &i64| {
            let statement = doc! { "q": { "_id": number }, "u": { "$inc": { "changes": 1 } } };
            doc! { "update": collection, "updates": [statement], "$db": DATABASE }
        };
        match self {
            Self::InsertOne => numbers.chunks(1).map(insert).collect(),
            Self::InsertMany => numbers.chunks(1000).map(insert).collect(),
            Self::UpdateOne => numbers.iter().map(update).collect(),
        }
    }
}

/// Prints a table with a line per workload.
///
/// # Errors
/// If a program fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = super::binary(options.binary.as_deref())?;
    let settings = mongod::Options::for_measurements(1.0);
    let mongod = settings.replica_set(1)?;
    let shape = |collection: &str, change_streams| {
        let shape = Shape {
            time: Some("at".to_owned()),
            max_items: 100,
            change_streams,
            ..Shape::new(&["user"])
        };
        shape.toml(&format!("{DATABASE}.{collection}"))
    };
    let start = |shapes: &[String]| {
        let options = ProxyOptions::new(&mongod.uri())
            .config(&shapes.join("\n"))
            .binary(&binary);
        Proxy::start(&options)
    };
    let without = start(&[shape(WITHOUT, false)])?;
    let with = start(&[shape(WITHOUT, false), shape(WITH, true), shape(WATCHED, true)])?;
    println!(
        "{} items a variant and round on a replica set of one, pages of 100; µs an item, medians of {} rounds",
        options.items, options.rounds
    );
    println!("| writes | without | beside an open stream | ratio | with `change_streams` | ratio |");
    println!("|---|---|---|---|---|---|");
    for workload in Workload::ALL {
        let mut times: [Vec<f64>; 3] = std::array::from_fn(|_| Vec::new());
        for _ in 0..options.rounds {
            times[0].push(measure(without.address(), WITHOUT, workload, options.items)?);
            let watched = || measure(with.address(), WITHOUT, workload, options.items);
            times[1].push(while_watched(with.address(), watched)?);
            times[2].push(measure(with.address(), WITH, workload, options.items)?);
        }
        let [alone, beside, streamed] = &times;
        let of = |times: &[f64]| median(times.iter().copied());
        println!(
            "| {} | {:.1} | {:.1} | {:.2} | {:.1} | {:.2} |",
            workload.name(),
            of(alone),
            of(beside),
            ratio(beside, alone),
            of(streamed),
            ratio(streamed, alone)
        );
    }
    Ok(())
}

/// Microseconds an item.
fn measure(address: SocketAddr, collection: &str, workload: Workload, items: usize) -> Result<f64> {
    let mut connection = Connection::open(address)?;
    connection
        .command_ok(&doc! { "drop": collection, "$db": DATABASE })
        .ok();
    connection.command_ok(&doc! { "create": collection, "$db": DATABASE })?;
    if workload == Workload::UpdateOne {
        for command in Workload::InsertMany.commands(collection, items) {
            connection.command_ok(&command)?;
        }
    }
    let commands = workload.commands(collection, items);
    let begun = Instant::now();
    for command in &commands {
        connection.command_ok(command)?;
    }
    Ok(begun.elapsed().as_secs_f64() * 1e6 / as_f64(items))
}

/// The result of a measurement while a stream on another collection is open and waits for events.
fn while_watched(address: SocketAddr, measure: impl FnOnce() -> Result<f64>) -> Result<f64> {
    let mut connection = Connection::open(address)?;
    let open = doc! { "aggregate": WATCHED, "pipeline": [{ "$changeStream": {} }], "cursor": {}, "$db": DATABASE };
    connection.command_ok(&doc! { "create": WATCHED, "$db": DATABASE }).ok();
    let reply = connection.command_ok(&open)?;
    let id = reply.get_document("cursor")?.get_i64("id").context("a cursor")?;
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| -> Result<()> {
            let more = doc! { "getMore": id, "collection": WATCHED, "maxTimeMS": 500, "$db": DATABASE };
            while !ends.load(Ordering::Relaxed) {
                connection.command_ok(&more)?;
            }
            connection.command_ok(&doc! { "killCursors": WATCHED, "cursors": [id], "$db": DATABASE })?;
            Ok(())
        });
        let measured = measure();
        ends.store(true, Ordering::Relaxed);
        watcher.join().map_err(|_| anyhow!("the stream's reader panicked"))??;
        measured
    })
}

fn document(number: i64) -> Document {
    doc! {
        "_id": number,
        "user": number % 50,
        "at": DateTime::from_millis(1_700_000_000_000 + number),
        "text": "a text of some words, as a message has it, neither short nor long",
    }
}
