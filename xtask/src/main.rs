//! `cargo xtask`: the project's own commands.
#![expect(clippy::print_stdout, reason = "a command line program prints")]

mod bench;
mod demo;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Mongoshape's own commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows the bucket pattern at work: starts mongod and mongoshape, and an application that knows of neither
    Demo(demo::Options),
    /// Measures
    #[command(subcommand)]
    Bench(bench::Command),
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Demo(options) => demo::run(&options),
        Command::Bench(command) => bench::run(&command),
    }
}
