//! `bench update`: the cost of updates and deletes by `_id` in the bucket pattern through mongoshape, beside
//! a plain collection, direct and through HAProxy.

mod comparison;
mod operation;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use proto_tests::ItemIds;

use super::client::Retries;
use super::servers::{Servers, Setup};
use super::table::{Quantity, print_group, print_heading};
use super::{at_least_one, concurrent};
use comparison::Comparison;
use operation::Operation;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// In each round every variant is measured once, so that noise hits all alike; figures and ratios are medians
    #[arg(long, default_value_t = 5, value_parser = at_least_one())]
    rounds: usize,
    /// Items that are changed or deleted in a round, one a command
    #[arg(long, default_value_t = 5000, value_parser = at_least_one())]
    items: usize,
    /// Items that each collection has, of 1,000 keys; at least as many as a round takes
    #[arg(long, default_value_t = 100_000, value_parser = at_least_one())]
    filled: usize,
    /// Connection counts, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1,8,64", value_parser = at_least_one())]
    connections: Vec<usize>,
    /// Operations to measure, separated by commas; otherwise all
    #[arg(long, value_delimiter = ',')]
    only: Vec<Operation>,
    /// Before a replica set of one: commands then carry what drivers' retryable writes do
    #[arg(long)]
    replica_set: bool,
    /// Measures this binary of mongoshape; otherwise the release build is made and measured
    #[arg(long)]
    binary: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = super::binary(options.binary.as_deref())?;
    let mut servers = Servers::start(&Setup {
        retries: options.retries(),
        cache_gb: 1.0,
        item_ids: &[ItemIds::Unique],
        binary: &binary,
    })?;
    servers.start_haproxy()?;
    println!(
        "{} items a variant and round, of {}; medians of {} rounds; {}; comparisons are of the time of an operation",
        options.items,
        options.filling(),
        options.rounds,
        match options.retries() {
            Retries::None => "a standalone mongod",
            Retries::Numbered => "a replica set of one, retryable writes",
        }
    );
    let mut comparison = Comparison::prepare(&servers, options)?;
    for operation in Operation::ALL {
        if options.only.is_empty() || options.only.contains(&operation) {
            measure(&mut comparison, &servers, (operation, options))?;
        }
    }
    comparison.end(&servers)
}

fn measure(comparison: &mut Comparison, servers: &Servers, (operation, options): (Operation, &Options)) -> Result<()> {
    if let Some(reason) = comparison.refused(operation)? {
        println!("\n{}: not measured: {reason}", operation.title());
        return Ok(());
    }
    println!(
        "\n{}: operations a second of all connections, latencies, CPU time an operation; µs",
        operation.title()
    );
    let columns = ["ops/s", "p50", "p99", "mongod", "proxy"];
    print_heading("connections", &columns, &comparison.variants());
    for connections in &options.connections {
        let measured = (0..options.rounds)
            .try_for_each(|round| comparison.round(servers, (operation, *connections), (round, options.items)));
        measured?;
        print_group(&connections.to_string(), &comparison.take_rows(), Quantity::Time);
        std::io::stdout().flush()?;
    }
    comparison.check()
}

impl Options {
    fn retries(&self) -> Retries {
        if self.replica_set {
            Retries::Numbered
        } else {
            Retries::None
        }
    }

    /// Items that each collection has.
    fn filling(&self) -> usize {
        let rounds = self.connections.iter();
        let taken = rounds.map(|connections| concurrent::commands(self.items, *connections));
        taken.max().unwrap_or_default().max(self.filled)
    }
}
