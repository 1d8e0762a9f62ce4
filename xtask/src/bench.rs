//! Benchmarks against a real mongod, each comparing alternatives within one run: the machine may be noisy, ratios are less so.

mod haproxy;
mod idle;
mod insert;
mod load;
mod process;
mod relay;
mod statistics;

use anyhow::Result;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// What it costs to go through mongoshape when nothing is rewritten, beside HAProxy in TCP mode
    Relay(relay::Options),
    /// What storing items costs through mongoshape, beside the pattern by hand, a time-series collection and a naive one
    Insert(insert::Options),
}

pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Relay(options) => relay::run(options),
        Command::Insert(options) => insert::run(options),
    }
}
