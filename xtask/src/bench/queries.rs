//! `bench queries`: the cost of typical queries on a shaped collection, beside a plain one, and its growth
//! with the collection.

mod answer;
mod arguments;
mod counters;
mod growth;
mod measure;
mod messages;
mod plot;
mod query_client;
mod report;
mod servers;
mod shape;
mod shapes;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};
use proto_tests::ItemIds;

use super::at_least_one;
use growth::Size;
use measure::Rounds;
use messages::Messages;
use servers::{Servers, Setup, Variant};
use shape::Shape;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Sizes of the collection, in items, separated by commas. Each size has a mongod of its own. To store
    /// a million items takes some minutes
    #[arg(long, value_delimiter = ',', default_value = "10000,100000,1000000", value_parser = size())]
    sizes: Vec<usize>,
    /// In each round every variant is measured once, so that noise hits all alike; the figures are medians
    #[arg(long, default_value_t = 5, value_parser = at_least_one())]
    rounds: usize,
    /// How long a variant repeats a query in each round, in milliseconds
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    turn_ms: u64,
    /// The shape's `item_ids`
    #[arg(long, value_enum, default_value_t = ItemIdsOption::Unique)]
    item_ids: ItemIdsOption,
    /// mongod's cache, in GB
    #[arg(long, default_value_t = 3.0)]
    cache_gb: f32,
    /// The most by which the exponent of mongoshape's latency may exceed plain's: the noise of a busy machine
    #[arg(long, default_value_t = 0.2)]
    growth_allowance: f64,
    /// Measures only queries whose names contain one of these texts, separated by commas
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Writes the tables to this file, as Markdown
    #[arg(long)]
    out: Option<PathBuf>,
    /// Writes a plot of the medians of the last size to this file, as SVG
    #[arg(long)]
    plot: Option<PathBuf>,
    /// Measures this binary of mongoshape; otherwise the release build is made and measured
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// The values of `--item-ids`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ItemIdsOption {
    Unique,
    Stored,
}

impl From<ItemIdsOption> for ItemIds {
    fn from(option: ItemIdsOption) -> Self {
        match option {
            ItemIdsOption::Unique => Self::Unique,
            ItemIdsOption::Stored => Self::Stored,
        }
    }
}

/// A collection of fewer items has not enough keys.
fn size() -> clap::builder::RangedU64ValueParser<usize> {
    clap::builder::RangedU64ValueParser::new().range(2000..=16_000_000)
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut shapes = shapes::all();
    let is_wanted =
        |shape: &Shape| options.only.is_empty() || options.only.iter().any(|text| shape.name.contains(text));
    shapes.retain(is_wanted);
    ensure!(!shapes.is_empty(), "no query has such a name");
    let binary = super::binary(options.binary.as_deref())?;
    let mut report = String::new();
    let mut sizes = Vec::new();
    for items in &options.sizes {
        let size = measure_size(*items, &shapes, options, &binary)?;
        let table = report::size(&size);
        println!("\n{table}");
        report.push_str(&table);
        report.push('\n');
        sizes.push(size);
    }
    let growths = growth::judge(&sizes, options.growth_allowance);
    let table = report::growth(&growths, options.growth_allowance);
    println!("{table}");
    report.push_str(&table);
    if let Some(file) = &options.out {
        fs::write(file, report).with_context(|| format!("{}", file.display()))?;
    }
    if let (Some(file), Some(size)) = (&options.plot, sizes.last()) {
        plot::write(file, size)?;
    }
    let failed: Vec<_> = growths.iter().filter(|growth| !growth.failures.is_empty()).collect();
    let names: Vec<_> = failed.iter().map(|growth| growth.name).collect();
    ensure!(failed.is_empty(), "{} queries fail: {}", names.len(), names.join(", "));
    Ok(())
}

/// Fills a collection of one size, and measures all shapes on it.
fn measure_size(items: usize, shapes: &[Shape], options: &Options, binary: &Path) -> Result<Size> {
    let started = Instant::now();
    let servers = Servers::start(Setup {
        cache_gb: options.cache_gb,
        item_ids: options.item_ids.into(),
        binary,
    })?;
    let messages = Messages::new(items);
    servers.fill(&messages)?;
    println!(
        "{} items of {} keys, filled in {:.0} s",
        report::grouped(items),
        report::grouped(messages.keys()),
        started.elapsed().as_secs_f64()
    );
    if !servers.variants().contains(&Variant::HaProxy) {
        println!("haproxy is not on PATH: measured without it");
    }
    let rounds = Rounds {
        rounds: options.rounds,
        turn: Duration::from_millis(options.turn_ms),
    };
    let mut rows = Vec::new();
    for shape in shapes {
        let row = measure::run(shape, &servers, &messages, rounds);
        rows.extend(row.with_context(|| format!("{}, {items} items", shape.name))?);
        print!(".");
        std::io::stdout().flush()?;
    }
    println!();
    Ok(Size { items, rows })
}
