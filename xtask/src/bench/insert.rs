//! `bench insert`: the cost of inserts in the bucket pattern through mongoshape, beside hand-written buckets,
//! a time-series collection and a plain one.

mod batches;
mod hot;
mod pages;
mod singles;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use proto_tests::ItemIds;

use super::client::Retries;
use super::model::Indexes;
use super::place::{self, Terms};
use super::servers::{Servers, Setup};
use super::trades;
use super::{at_least_one, at_least_one_key};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// In each round every variant is measured once, so that noise hits all alike; the figures are medians
    #[arg(long, default_value_t = 5, value_parser = at_least_one())]
    rounds: usize,
    /// Items that a variant stores in a round
    #[arg(long, default_value_t = 5000, value_parser = at_least_one())]
    items: usize,
    /// Items that each collection has before, at least
    #[arg(long, default_value_t = 20_000, value_parser = at_least_one())]
    filled: usize,
    /// Items that each collection has before, at least, for each key
    #[arg(long, default_value_t = 5)]
    filled_per_key: usize,
    /// Numbers of distinct keys that batches are spread over, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1,50,1000,100000", value_parser = at_least_one_key())]
    keys: Vec<u32>,
    /// Numbers of items in a batch, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000", value_parser = at_least_one())]
    batches: Vec<usize>,
    /// Connection counts, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1,8,64", value_parser = at_least_one())]
    connections: Vec<usize>,
    /// Numbers of pages that a key has, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "10,1000,10000", value_parser = at_least_one())]
    pages: Vec<usize>,
    /// Parts to measure, separated by commas; otherwise all
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Before a replica set of one: commands then carry what drivers' retryable writes do
    #[arg(long)]
    replica_set: bool,
    /// What writes before a replica set carry for retries
    #[arg(long, value_enum, default_value_t = Retries::Numbered, requires = "replica_set")]
    retries: Retries,
    /// Leaves the plain and the time-series collection without an index on key and time
    #[arg(long)]
    bare: bool,
    /// Starts mongoshape again once collections are filled, so that it remembers nothing of their keys
    #[arg(long)]
    cold: bool,
    /// Measures this binary of mongoshape; otherwise the release build is made and measured
    #[arg(long)]
    binary: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Many items a command, over different numbers of keys, and what they take
    Batches,
    /// One item a command, over different numbers of connections
    Singles,
    /// One item a command, of keys with different numbers of pages
    Pages,
    /// One item a command, all of one key, by one connection and by many
    Hot,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = super::binary(options.binary.as_deref())?;
    let mut servers = Servers::start(&Setup {
        replica_set: options.replica_set,
        cache_gb: 1.0,
        item_ids: &[ItemIds::Unique, ItemIds::Stored, ItemIds::Dropped],
        binary: &binary,
    })?;
    servers.start_haproxy()?;
    println!(
        "{} items a variant and round, medians of {} rounds; {}; comparisons are of the time of an item, or of bytes on disk",
        options.items,
        options.rounds,
        match (options.replica_set, options.retries()) {
            (false, _) => "a standalone mongod",
            (true, Retries::None) => "a replica set of one, writes without retries",
            (true, Retries::Numbered) => "a replica set of one, retryable writes",
        }
    );
    let parts: [(Part, Measure); 4] = [
        (Part::Batches, batches::run),
        (Part::Singles, singles::run),
        (Part::Pages, pages::run),
        (Part::Hot, hot::run),
    ];
    for (part, measure) in parts {
        if options.only.is_empty() || options.only.contains(&part) {
            measure(&mut servers, options)?;
        }
    }
    Ok(())
}

type Measure = fn(&mut Servers, &Options) -> Result<()>;

impl Options {
    fn retries(&self) -> Retries {
        if self.replica_set { self.retries } else { Retries::None }
    }

    fn terms(&self, database: String, customers: u32) -> Terms {
        Terms {
            database,
            spacing: trades::STEP * customers,
            indexes: if self.bare { Indexes::Own } else { Indexes::ForReading },
            retries: self.retries(),
        }
    }

    /// Items in a collection for so many keys before anything is measured.
    fn filling(&self, keys: u32) -> usize {
        self.filled.max(self.filled_per_key * keys as usize)
    }

    /// The pause between filling and measuring: background work of the filling must not be measured.
    fn settle(&self, servers: &mut Servers) -> Result<()> {
        place::checkpoint(servers.direct())?;
        if self.cold { servers.forget() } else { Ok(()) }
    }
}
