//! `cargo xtask`: the project's own commands.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line program prints")]

mod applications;
mod bench;
mod dashboard;
mod demo;
mod deploy;
mod drivers;
mod load;
mod matrix;
mod measures;
mod mongod;
mod mongoose;
mod page;
mod picture;
mod pymongo;
mod release;
mod session;
mod tool;

use std::process::ExitCode;

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
    /// Takes a picture of the Grafana dashboard under a workload, for the documents
    Dashboard(dashboard::Options),
    /// Shows the bucket pattern at work: starts mongod and mongoshape, and an application without
    /// code for either
    Demo(demo::Options),
    /// Checks the files of deploy/, and the Dockerfile
    Deploy(deploy::Options),
    /// Measures
    #[command(subcommand)]
    Bench(bench::Command),
    /// Compares what the drivers of all languages see through mongoshape with what they see without it
    Drivers(drivers::Options),
    /// Runs the applications of examples/ on mongod and through mongoshape, and compares their answers
    Examples(applications::Options),
    /// Runs unchanged applications on Mongoose, Beanie, Spring Data and Go's driver, without mongoshape and
    /// through it, and compares
    Frameworks(applications::Options),
    /// Runs the tests that compare with a plain collection against several versions of mongod
    Matrix(matrix::Options),
    /// Prints sizes, names and comments of the sources
    Measures(measures::Options),
    /// Runs a mongod to try mongoshape with, fetched if need be, until Ctrl-C
    Mongod(mongod::Options),
    /// Runs Mongoose's own test suite directly, through mongoshape, and with all collections in buckets, and
    /// compares
    Mongoose(mongoose::Options),
    /// Takes pictures of the operator's page under a workload, for the documents
    Page(page::Options),
    /// Runs `PyMongo`'s own test suite directly and through mongoshape, and compares
    Pymongo(pymongo::Options),
    /// Builds and checks the artefacts of a version: archives, packages and an image for two architectures
    Release(release::Options),
    /// Records a session on a terminal, directly and through mongoshape, as a picture for the README
    Session(picture::PictureOptions),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Dashboard(options) => dashboard::run(&options),
        Command::Demo(options) => demo::run(&options),
        Command::Bench(command) => bench::run(&command),
        Command::Deploy(options) => deploy::run(&options),
        Command::Drivers(options) => drivers::run(&options),
        Command::Examples(options) => applications::run(applications::EXAMPLES, &options),
        Command::Frameworks(options) => applications::run(applications::SHOPS, &options),
        Command::Matrix(options) => matrix::run(&options),
        Command::Measures(options) => measures::run(&options),
        Command::Mongod(options) => mongod::run(&options),
        Command::Mongoose(options) => mongoose::run(&options),
        Command::Page(options) => page::run(&options),
        Command::Pymongo(options) => pymongo::run(&options),
        Command::Release(options) => release::run(&options),
        Command::Session(options) => session::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // In a line, and without the backtrace that `anyhow` would add for a developer of this program.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
