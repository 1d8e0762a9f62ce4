//! `cargo xtask examples`: the applications of `examples/`, directly and through mongoshape.
//!
//! They are tests of `proto-tests` and run as such. Those in Go and Java run only by this command, as they need
//! Go, a JDK and Maven.

use anyhow::{Result, ensure};
use proto_tests::cargo;

/// The module of the tests.
const TESTS: &str = "examples::";

/// Which applications to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only one: express, fastapi, go, spring
    only: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let tests = format!("{TESTS}{}", options.only.as_deref().unwrap_or_default());
    let status = cargo::command()
        .args(["test", "--quiet", "--workspace", "--test", "drivers", "--"])
        .args(["--include-ignored", &tests])
        .status()?;
    ensure!(status.success(), "not all applications answer the same: see above");
    Ok(())
}
