//! `bench relay`: operations per second and latencies of unshaped commands: direct, through HAProxy, and
//! through mongoshape.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use bson::{Document, doc};
use clap::Args;
use proto_tests::{Mongod, Proxy, ProxyOptions, raw};

use super::haproxy::HaProxy;
use super::load::{self, Figures};
use super::{idle, process, statistics};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How long each figure is measured, in seconds, spread over the rounds
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Connection counts, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1,8,64")]
    connections: Vec<usize>,
    /// In each round every variant is measured once, so that noise hits all alike; figures and ratios are medians
    /// of the rounds'
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Numbers of idle connections to measure memory with, separated by commas; 0 for none
    #[arg(long, value_delimiter = ',', default_value = "1000,5000")]
    idle: Vec<usize>,
    /// Measures this binary of mongoshape; otherwise the release build is made and measured
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// One route to mongod.
struct Variant {
    name: &'static str,
    address: SocketAddr,
    /// The process that listens there.
    process: u32,
}

/// The measurements of a variant.
#[derive(Default, Clone)]
struct Measured {
    rounds: Vec<Figures>,
    /// CPU time for each operation, in microseconds, of the process that the clients are connected to.
    cpu_us: Vec<f64>,
}

impl Measured {
    fn measure(&mut self, variant: &Variant, command: &Document, connections: usize, length: Duration) -> Result<()> {
        let before = process::cpu_time(variant.process)?;
        let figures = load::run(variant.address, command, connections, length)?;
        let used = process::cpu_time(variant.process)?.saturating_sub(before);
        let operations = figures.per_second * (length + load::WARM_UP).as_secs_f64();
        self.cpu_us.push(used.as_secs_f64() * 1e6 / operations);
        self.rounds.push(figures);
        Ok(())
    }

    /// How many times as much of it as by another variant.
    fn ratio(&self, to: &Self, figure: fn(&Figures) -> f64) -> f64 {
        load::ratio(&self.rounds, &to.rounds, figure)
    }
}

/// A collection that the proxy has to look at and leave alone needs a neighbour that it would not.
const SHAPES: &str = "[[bucket]]\nnamespace = \"bench.shaped\"\nkey = \"customerId\"\n";

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(
        options.rounds > 0 && options.seconds > 0.0,
        "at least one round of more than no time"
    );
    ensure!(
        options.connections.iter().all(|count| *count > 0),
        "at least one connection"
    );
    let mongod = Mongod::standalone()?;
    load_documents(mongod.address())?;
    let haproxy = HaProxy::start(mongod.address())?;
    let binary = super::binary(options.binary.as_deref())?;
    let proxy_options = ProxyOptions::new(&mongod.uri()).config(SHAPES);
    let proxy = Proxy::start(&proxy_options.clone().binary(&binary))?;

    let mut variants = vec![Variant {
        name: "direct",
        address: mongod.address(),
        process: mongod.ids()[0],
    }];
    match &haproxy {
        Some(haproxy) => variants.push(Variant {
            name: HAPROXY,
            address: haproxy.address,
            process: haproxy.id(),
        }),
        None => println!("haproxy is not on PATH: measured without it"),
    }
    variants.push(Variant {
        name: "mongoshape",
        address: proxy.address(),
        process: proxy.id(),
    });
    println!(
        "{} s a figure in {} rounds; medians, of the ratios also; latencies, and the CPU time of what is connected to, in µs an operation",
        options.seconds, options.rounds
    );
    for (title, command) in commands() {
        compare(title, &command, &variants, options)?;
    }
    measure_idle(&proxy_options.binary(&binary), &options.idle)
}

/// In a proxy of its own each time: memory that a process has once had it keeps.
fn measure_idle(proxy: &ProxyOptions, numbers: &[usize]) -> Result<()> {
    println!("\nidle connections   resident kB each");
    for connections in numbers.iter().filter(|number| **number > 0) {
        let proxy = Proxy::start(proxy)?;
        let each = idle::kilobytes_per_connection(proxy.address(), proxy.id(), *connections)?;
        println!("{connections:>16}{each:>19.1}");
    }
    Ok(())
}

const HAPROXY: &str = "HAProxy";

fn commands() -> [(&'static str, Document); 2] {
    let find = doc! { "find": "documents", "filter": { "_id": 500 }, "limit": 1, "singleBatch": true, "$db": "bench" };
    [
        ("ping", doc! { "ping": 1, "$db": "bench" }),
        ("find of a 1 kB document by _id", find),
    ]
}

/// Documents of 1 kB each.
fn load_documents(mongod: SocketAddr) -> Result<()> {
    let overhead = doc! { "_id": 0, "text": "" }.to_vec()?.len();
    let text = "x".repeat(1024 - overhead);
    let documents: Vec<_> = (0..1000).map(|id| doc! { "_id": id, "text": &text }).collect();
    let insert = doc! { "insert": "documents", "documents": documents, "$db": "bench" };
    raw::Connection::open(mongod)?.command_ok(&insert)?;
    Ok(())
}

fn compare(title: &str, command: &Document, variants: &[Variant], options: &Options) -> Result<()> {
    println!("\n{title}\n{HEADING}");
    let length = Duration::from_secs_f64(options.seconds / f64::from(options.rounds));
    for connections in &options.connections {
        let mut measured = vec![Measured::default(); variants.len()];
        for round in 0..options.rounds as usize {
            // Each round starts with another variant, since each variant affects the next one.
            for turn in 0..variants.len() {
                let at = (round + turn) % variants.len();
                measured[at].measure(&variants[at], command, *connections, length)?;
            }
        }
        print_rows(*connections, variants, &measured);
        std::io::stdout().flush()?;
    }
    Ok(())
}

const HEADING: &str =
    " connections  variant        ops/s      p50      p99      CPU  ops/direct  ops/HAProxy  p50/HAProxy";

fn print_rows(connections: usize, variants: &[Variant], measured: &[Measured]) {
    let haproxy = variants.iter().position(|variant| variant.name == HAPROXY);
    for (number, (variant, of_variant)) in variants.iter().zip(measured).enumerate() {
        let first = number == 0;
        let connections = if first { connections.to_string() } else { String::new() };
        let ratio = |to: usize, figure: fn(&Figures) -> f64| format!("{:.2}", of_variant.ratio(&measured[to], figure));
        let to_direct = if first {
            String::new()
        } else {
            ratio(0, |f| f.per_second)
        };
        let haproxy = haproxy.filter(|_| number + 1 == variants.len());
        let to_haproxy = haproxy.map_or(String::new(), |to| ratio(to, |f| f.per_second));
        let p50_to_haproxy = haproxy.map_or(String::new(), |to| ratio(to, |f| f.p50_us));
        let Figures {
            per_second,
            p50_us,
            p99_us,
        } = Figures::median(&of_variant.rounds);
        let cpu_us = statistics::median(of_variant.cpu_us.iter().copied());
        let row = format!(
            "{connections:>12}  {:<11}{per_second:>9.0}{p50_us:>9.0}{p99_us:>9.0}{cpu_us:>9.1}{to_direct:>12}{to_haproxy:>13}{p50_to_haproxy:>13}",
            variant.name
        );
        println!("{}", row.trim_end());
    }
}
