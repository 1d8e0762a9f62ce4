//! `demo`: starts a mongod, and runs `mongoshape demo` on it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use clap::Args;
use proto_tests::Mongod;
use proto_tests::proxy::{Profile, build_binary};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Takes this binary of mongoshape; otherwise the release build is made and taken
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Options of `mongoshape demo`, such as --keep
    #[arg(last = true)]
    options: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = options
        .binary
        .clone()
        .map_or_else(|| build_binary(Profile::Release), Ok)?;
    let mongod = Mongod::standalone()?;
    println!("started mongod at {}", mongod.address());
    let mut demo = Command::new(binary);
    demo.arg("demo")
        .args(&options.options)
        .env("MONGOSHAPE_UPSTREAM_URI", mongod.uri());
    let status = demo.status()?;
    ensure!(status.success(), "the demo ended with {status}");
    Ok(())
}
