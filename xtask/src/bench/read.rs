//! `bench read`: the cost of reads through mongoshape, beside hand-written buckets, a time-series collection
//! and a plain one.

mod answer;
mod by_hand;
mod data;
mod plot;
mod queries;
mod query;
mod reader;
mod sizes;
mod streams;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};
use proto_tests::ItemIds;

use super::at_least_one;
use super::client::Retries;
use super::model::{Indexes, Model};
use super::place::{self, Place, Terms};
use super::servers::{Servers, Setup};
use data::{Data, LARGEST, SECOND};
use query::{Order, ReadQuery};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// In each round every variant is measured once, so that noise hits all alike; the figures are medians
    #[arg(long, default_value_t = 5, value_parser = at_least_one())]
    rounds: usize,
    /// Items of the largest key, and three more where that makes full pages; the other 99 keys have 52,000
    /// together
    #[arg(long, default_value_t = 1_000_000, value_parser = items())]
    items: usize,
    /// How long a variant repeats a read in each round, in milliseconds
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    turn_ms: u64,
    /// Parts to measure, separated by commas; otherwise all
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Writes a plot of the medians by page number to this file, as SVG
    #[arg(long)]
    plot: Option<PathBuf>,
    /// Clients that read a whole key at once
    #[arg(long, default_value_t = 100, value_parser = at_least_one())]
    clients: usize,
    /// How long they all have their cursors open, in seconds
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,
    /// Measures this binary of mongoshape; otherwise the release build is made and measured
    #[arg(long)]
    binary: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Pages of the largest key, oldest first
    Pages,
    /// Pages of the largest key, newest first and without a sort
    Orders,
    /// A week, a whole key, counts, one item, a filter on items
    Others,
    /// A whole key, by many clients at once that take their time
    Streams,
    /// What the collections and their indexes take
    Sizes,
}

fn items() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(20_000..=data::MAX_ITEMS)
}

/// What there is to read.
struct Loaded {
    /// The plain one first.
    places: Vec<Place>,
    data: Data,
    /// Answers that were not the plain collection's.
    differences: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(
        options.plot.is_none() || options.measures(Part::Pages),
        "a plot is of the part `pages`"
    );
    let binary = super::binary(options.binary.as_deref())?;
    let servers = Servers::start(&Setup {
        replica_set: false,
        cache_gb: 3.0,
        item_ids: &[ItemIds::Unique, ItemIds::Stored],
        binary: &binary,
    })?;
    let mut loaded = load(&servers, options)?;
    if [Part::Pages, Part::Orders, Part::Others]
        .iter()
        .any(|part| options.measures(*part))
    {
        println!(
            "medians of {} rounds, latencies in µs; comparisons are of the median",
            options.rounds
        );
    }
    for part in [Part::Pages, Part::Orders, Part::Others, Part::Streams, Part::Sizes] {
        if options.measures(part) {
            part.run(&servers, &mut loaded, options)?;
        }
    }
    ensure!(
        loaded.differences.is_empty(),
        "answers that differ:\n{}",
        loaded.differences.join("\n")
    );
    Ok(())
}

/// Creates and fills the collections of every variant, or of the only one that is measured.
fn load(servers: &Servers, options: &Options) -> Result<Loaded> {
    let mut variants = servers.variants();
    if options.only == [Part::Streams] {
        variants.retain(|variant| variant.model == Model::Shaped(ItemIds::Stored));
    }
    let terms = Terms {
        database: "read".to_owned(),
        spacing: data::SPACING,
        indexes: Indexes::ForReading,
        retries: Retries::None,
    };
    let data = Data::new(options.items)?;
    print!("{} items, {} of them of one key; filled:", data.len(), data.largest);
    let mut places = Vec::new();
    for variant in variants {
        let started = Instant::now();
        let mut place = Place::make(variant, &terms)?;
        data.store(&mut place).with_context(|| place.variant.name)?;
        place.check()?;
        let separator = if places.is_empty() { "" } else { "," };
        print!(
            "{separator} {} in {:.0} s",
            place.variant.name,
            started.elapsed().as_secs_f64()
        );
        std::io::Write::flush(&mut std::io::stdout())?;
        places.push(place);
    }
    println!();
    place::checkpoint(servers.direct())?;
    Ok(Loaded {
        places,
        data,
        differences: Vec::new(),
    })
}

impl Part {
    fn run(self, servers: &Servers, loaded: &mut Loaded, options: &Options) -> Result<()> {
        match self {
            Self::Pages => pages(loaded, options),
            Self::Orders => {
                println!("\nthe same: newest first, and without a sort");
                let newest = [1, 1000].map(|number| ReadQuery::Page(number, Order::NewestFirst));
                let any = [1, 1000].map(|number| ReadQuery::Page(number, Order::Any));
                queries::run(&[newest, any].concat(), loaded, options).map(|_| ())
            }
            Self::Others => {
                println!(
                    "\na week of the largest key, 300 items; all of a key of 10003 items, by date; how many that and the \
                     largest have; one item; a hundredth of 10003"
                );
                let all = [
                    ReadQuery::Week,
                    ReadQuery::WholeKey,
                    ReadQuery::Count(SECOND),
                    ReadQuery::Count(LARGEST),
                    ReadQuery::ById,
                    ReadQuery::ByQuantity,
                ];
                queries::run(&all, loaded, options).map(|_| ())
            }
            Self::Streams => streams::run(servers, loaded, options),
            Self::Sizes => sizes::run(loaded, servers.direct()),
        }
    }
}

fn pages(loaded: &mut Loaded, options: &Options) -> Result<()> {
    println!("\na page of ten of the largest key, oldest first, by its number");
    let pages = (0..=5).map(|exponent| ReadQuery::Page(10_usize.pow(exponent), Order::OldestFirst));
    let series = queries::run(&pages.collect::<Vec<_>>(), loaded, options)?;
    match &options.plot {
        Some(file) => plot::write(file, &series, loaded.data.largest),
        None => Ok(()),
    }
}

impl Options {
    fn measures(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}
