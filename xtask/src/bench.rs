//! Benchmarks against a real mongod. Each compares alternatives within one run: on a noisy machine, ratios
//! are more stable than absolute figures.

mod by_hand;
mod client;
mod concurrent;
mod convert;
mod direct_writes;
mod forecast;
mod haproxy;
mod idle;
mod insert;
mod load;
mod measured;
mod model;
mod outlier;
mod place;
mod process;
mod proxies;
mod queries;
mod read;
mod relay;
mod servers;
mod statistics;
mod streams;
mod table;
mod trades;
mod unique;
mod update;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Subcommand;
use clap::builder::RangedU64ValueParser;
use proto_tests::proxy::{Profile, build_binary};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// What it costs to go through mongoshape when nothing is rewritten, beside HAProxy in TCP mode
    Relay(relay::Options),
    /// What storing items costs through mongoshape, beside the pattern by hand, a time-series collection and
    /// a plain one
    Insert(insert::Options),
    /// What reading costs through mongoshape, beside the pattern by hand, a time-series collection and a
    /// plain one
    Read(read::Options),
    /// What the queries of applications cost through mongoshape, and how that grows with the collection,
    /// beside a plain collection, direct and through `HAProxy`
    Queries(queries::Options),
    /// What updating and deleting items by `_id` costs through mongoshape, beside a plain collection, direct
    /// and through `HAProxy`
    Update(update::Options),
    /// What a unique index costs inserts, through mongoshape and on a plain collection
    Unique(unique::Options),
    /// What `reject_direct_writes` costs writes through mongoshape
    DirectWrites(direct_writes::Options),
    /// What change streams cost writes, on collections with and without them
    Streams(streams::Options),
    /// What more proxies before one replica set change
    Proxies(proxies::Options),
    /// What a conversion costs clients that write meanwhile
    Convert(convert::Options),
    /// How far the sizes that `advise` forecasts are from those after `setup --pack`
    Forecast(forecast::Options),
    /// What books with very many buyers cost through mongoshape, beside plain collections, direct and relayed
    Outlier(outlier::Options),
}

pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Relay(options) => relay::run(options),
        Command::Insert(options) => insert::run(options),
        Command::Read(options) => read::run(options),
        Command::Queries(options) => queries::run(options),
        Command::Update(options) => update::run(options),
        Command::Unique(options) => unique::run(options),
        Command::DirectWrites(options) => direct_writes::run(options),
        Command::Streams(options) => streams::run(options),
        Command::Proxies(options) => proxies::run(options),
        Command::Convert(options) => convert::run(options),
        Command::Forecast(options) => forecast::run(options),
        Command::Outlier(options) => outlier::run(options),
    }
}

/// The binary of mongoshape that is measured: the given one, or the release build, which is made.
fn binary(given: Option<&Path>) -> Result<PathBuf> {
    given.map_or_else(|| build_binary(Profile::Release), |given| Ok(given.to_owned()))
}

/// Of an option that counts what there must be some of.
fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// Of a number of keys, which are numbered in an int32.
fn at_least_one_key() -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(1..=1_000_000_000)
}
