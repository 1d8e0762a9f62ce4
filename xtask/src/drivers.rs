//! `cargo xtask drivers`: the driver matrix, whole or a part, and the programs that use `bulkWrite`.
//!
//! They are tests of `proto-tests` and run as such. This command adds a command line, and removes the time
//! limit.

use anyhow::{Result, ensure};
use proto_tests::cargo;

/// The test, and the variable that it takes words from.
const TEST: &str = "matrix::whole";
/// The tests of `bulkWrite`. They run unless cells are selected.
const BULK_WRITE: [&str; 4] = [
    "bulk_write::pymongo",
    "bulk_write::node",
    "bulk_write::go",
    "bulk_write::java",
];
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
    let status = cargo::command()
        .args(["test", "--quiet", "--package", "proto-tests", "--test", "drivers", "--"])
        .args(["--include-ignored", "--exact", "--nocapture", TEST])
        .args(BULK_WRITE.iter().filter(|_| options.only.is_empty()))
        .env(ONLY, options.only.join(","))
        .status()?;
    ensure!(status.success(), "not all cells are equal: see above");
    Ok(())
}
