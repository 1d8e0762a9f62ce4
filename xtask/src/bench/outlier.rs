//! `bench outlier`: reads and writes a catalogue of books. A few books have very many buyers. Compares the
//! outlier pattern through mongoshape with plain collections, direct and relayed.

mod books;
mod compare;
mod measure;
mod part;

mod variants;

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::Args;

use super::at_least_one;
use super::client::{Client, Prepared, Retries};
use super::model::Write;
use super::table::{Quantity, Row, print_group, print_titles};
use books::{Books, Buyers};
use measure::Measured;
use part::{Part, Turn};
use variants::{DATABASE, Variants};

/// Books that a collection is filled with at once.
const BATCH: usize = 500;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// In each round every variant is measured once, so that noise hits all alike; figures and ratios are medians
    #[arg(long, default_value_t = 5, value_parser = at_least_one())]
    rounds: usize,
    /// Typical books that are read or written in a round, one a command; of what is larger, fewer
    #[arg(long, default_value_t = 3000, value_parser = at_least_one())]
    items: usize,
    /// Books that each collection has, one of 1,000 with 10,000 buyers
    #[arg(long, default_value_t = 100_000, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(2000..))]
    filled: usize,
    /// What a buyer is
    #[arg(long, value_enum, default_value_t = Buyers::Names)]
    buyers: Buyers,
    /// Connection counts, separated by commas; what is done to one large book is done over one
    #[arg(long, value_delimiter = ',', default_value = "1,8", value_parser = at_least_one())]
    connections: Vec<usize>,
    /// Parts to measure, separated by commas; otherwise all
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Before a replica set of one: writes then carry what drivers' retryable writes do
    #[arg(long)]
    replica_set: bool,
    /// Measures this binary of mongoshape; otherwise the release build is made and measured
    #[arg(long)]
    binary: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = super::binary(options.binary.as_deref())?;
    let retries = if options.replica_set {
        Retries::Numbered
    } else {
        Retries::None
    };
    let variants = Variants::start(&binary, retries)?;
    let mut books = Books::new(options.filled, options.buyers);
    fill(&variants, &books)?;
    println!(
        "medians of {} rounds; {}; comparisons are of the time of an operation",
        options.rounds,
        if options.replica_set {
            "a replica set of one, retryable writes"
        } else {
            "a standalone mongod"
        }
    );
    for part in Part::ALL {
        if options.only.is_empty() || options.only.contains(&part) {
            measure(&variants, &mut books, part, options).with_context(|| part.title().to_owned())?;
        }
    }
    compare::check(&variants)
}

/// Fills the collection of every variant through its own address.
fn fill(variants: &Variants, books: &Books) -> Result<()> {
    print!("{} books; filled:", books.len());
    for variant in variants.all() {
        let started = Instant::now();
        let mut client = Client::open(variant.address, DATABASE, Retries::None)?;
        for documents in books.batches(BATCH) {
            let write = Prepared::of(&Write::insert(variant.collection, documents))?;
            let request = client.number(&write);
            client.exchange_all(&[request]).context(variant.name)?;
        }
        print!(" {} in {:.0} s;", variant.name, started.elapsed().as_secs_f64());
        std::io::stdout().flush()?;
    }
    println!();
    super::place::checkpoint(variants.direct())
}

fn measure(variants: &Variants, books: &mut Books, part: Part, options: &Options) -> Result<()> {
    println!(
        "\n{}: operations a second, latencies{}, bytes that the client reads, CPU time, all of an operation; µs",
        part.title(),
        if part.decodes() {
            " until the reply is there and (decoded) until the client has its documents"
        } else {
            ""
        }
    );
    let columns = ["ops/s", "p50", "p99", "decoded", "bytes", "mongod", "proxy"];
    let all: Vec<_> = variants.all().iter().filter(|variant| part.is_for(variant)).collect();
    let others = all
        .iter()
        .filter(|variant| !variant.is_ours)
        .map(|variant| variant.name);
    print_titles(part.label(), &columns, others);
    for turn in part.turns(&options.connections, options.items) {
        let mut measured: Vec<Measured> = all.iter().map(|_| Measured::default()).collect();
        for round in 0..options.rounds {
            let commands = part.commands(books, turn);
            for place in 0..all.len() {
                let at = (round + place) % all.len();
                let before = variants.cpu_times(all[at])?;
                let taken = measure::run(variants, all[at], part, &commands, turn).context(all[at].name)?;
                measured[at].add(taken, before, variants.cpu_times(all[at])?, turn);
            }
        }
        let rows: Vec<Row> = all.iter().zip(&measured).map(|(variant, of)| of.row(variant)).collect();
        print_group(&turn.label(part), &rows, Quantity::Time);
        std::io::stdout().flush()?;
    }
    Ok(())
}

impl Turn {
    /// The label of this turn: the number that differs between the turns of a part.
    fn label(self, part: Part) -> String {
        if part.is_of_lengths() {
            self.buyers.to_string()
        } else {
            self.connections.to_string()
        }
    }
}
