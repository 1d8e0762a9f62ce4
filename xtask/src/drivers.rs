//! `cargo xtask drivers`: the driver matrix, whole or a part.
//!
//! The matrix is a test of `proto-tests` and runs as one. This command adds a command line, and removes the
//! time limit.

use std::process::Command;

use anyhow::{Result, ensure};
use proto_tests::paths;

/// The test, and the variable that it takes words from.
const TEST: &str = "matrix::whole";
const ONLY: &str = "DRIVER_MATRIX_ONLY";

/// Which cells to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only cells that have all of these names: a driver (pymongo, async, node, mongosh, go, java, rust), how
    /// the proxy presents itself (standalone, mongos, replica-set, members), how it is connected to (plain,
    /// snappy, zlib, zstd, tls, scram-sha-1, scram-sha-256)
    only: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(paths::workspace())
        .args(["test", "--quiet", "--package", "proto-tests", "--test", "drivers", "--"])
        .args(["--ignored", "--exact", "--nocapture", TEST])
        .env(ONLY, options.only.join(","))
        .status()?;
    ensure!(status.success(), "not all cells are equal: see above");
    Ok(())
}
