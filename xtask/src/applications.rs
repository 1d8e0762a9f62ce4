//! `cargo xtask examples` and `cargo xtask frameworks`: applications, directly and through mongoshape.
//!
//! They are tests of `proto-tests` and run as such. Those in Go and Java run only by these commands, because they
//! need Go, a JDK and Maven.

use anyhow::{Result, ensure};
use proto_tests::cargo;

/// The modules of the tests.
pub(crate) const EXAMPLES: &str = "examples";
pub(crate) const SHOPS: &str = "shops";

/// Which applications to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only this one: of examples express, fastapi, go, spring; of frameworks mongoose, beanie, spring, go
    only: Option<String>,
}

pub(crate) fn run(module: &str, options: &Options) -> Result<()> {
    let tests = format!("{module}::{}", options.only.as_deref().unwrap_or_default());
    let status = cargo::command()
        .args(["test", "--quiet", "--workspace", "--test", "drivers", "--"])
        .args(["--include-ignored", &tests])
        .status()?;
    ensure!(status.success(), "not all applications have equal answers: see above");
    Ok(())
}
