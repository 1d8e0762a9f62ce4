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
use super::{at_least_one, at_least_one_key};
use comparison::{Comparison, Load};
use operation::Operation;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// In each round every variant is measured once, so that noise hits all alike; figures and ratios are medians
    #[arg(long, default_value_t = 5, value_parser = at_least_one())]
    rounds: usize,
    /// Items that are changed or deleted in a round
    #[arg(long, default_value_t = 5000, value_parser = at_least_one())]
    items: usize,
    /// Items that each collection has; at least as many as a round takes
    #[arg(long, default_value_t = 100_000, value_parser = at_least_one())]
    filled: usize,
    /// The number of keys that items are spread over
    #[arg(long, default_value_t = 1000, value_parser = at_least_one_key())]
    keys: u32,
    /// Numbers of statements in a command, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = at_least_one())]
    batches: Vec<usize>,
    /// Connection counts, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1,8,64", value_parser = at_least_one())]
    connections: Vec<usize>,
    /// Operations to measure, separated by commas; otherwise all
    #[arg(long, value_delimiter = ',')]
    only: Vec<Operation>,
    /// Before a replica set of one: commands then carry what drivers' retryable writes do
    #[arg(long)]
    replica_set: bool,
    /// Starts mongoshape again before each round, so that it remembers nothing of the collection
    #[arg(long)]
    cold: bool,
    /// Measures this binary of mongoshape; otherwise the release build is made and measured
    #[arg(long)]
    binary: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = super::binary(options.binary.as_deref())?;
    let mut servers = Servers::start(&Setup {
        replica_set: options.replica_set,
        cache_gb: 1.0,
        item_ids: &[ItemIds::Unique],
        binary: &binary,
    })?;
    servers.start_haproxy()?;
    println!(
        "{} items a variant and round, of {} of {} keys; medians of {} rounds; {}; comparisons are of the time of a command",
        options.items,
        options.filling(),
        options.keys,
        options.rounds,
        match options.retries() {
            Retries::None => "a standalone mongod",
            Retries::Numbered => "a replica set of one, retryable writes",
        }
    );
    let mut comparison = Comparison::prepare(&servers, options)?;
    for operation in Operation::ALL {
        if options.only.is_empty() || options.only.contains(&operation) {
            measure(&mut comparison, &mut servers, operation, options)?;
        }
    }
    comparison.end(&servers)
}

fn measure(comparison: &mut Comparison, servers: &mut Servers, operation: Operation, options: &Options) -> Result<()> {
    if let Some(reason) = comparison.refused(operation)? {
        println!("\n{}: not measured: {reason}", operation.title());
        return Ok(());
    }
    println!(
        "\n{}: commands a second of all connections, latencies of a command, CPU time an item; µs",
        operation.title()
    );
    let columns = ["commands/s", "p50", "p99", "mongod", "proxy"];
    print_heading("connections / batch", &columns, &comparison.variants());
    for load in options.loads(operation) {
        for round in 0..options.rounds {
            if options.cold {
                servers.forget()?;
            }
            comparison.round(servers, load, round)?;
        }
        let label = format!("{} / {}", load.connections, load.batch);
        print_group(&label, &comparison.take_rows(), Quantity::Time);
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

    /// The rows of an operation.
    fn loads(&self, operation: Operation) -> impl Iterator<Item = Load> {
        let batches = self
            .batches
            .iter()
            .filter(move |batch| **batch == 1 || operation.has_batches());
        batches.flat_map(move |batch| {
            self.connections.iter().map(move |connections| Load {
                operation,
                connections: *connections,
                batch: *batch,
                items: self.items,
            })
        })
    }

    /// Items that each collection has.
    fn filling(&self) -> usize {
        let taken = self.loads(Operation::DeleteOne).map(Load::taken);
        taken.max().unwrap_or_default().max(self.filled)
    }
}
