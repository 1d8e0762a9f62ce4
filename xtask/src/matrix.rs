//! `matrix`: runs the tests that compare with a plain collection against several versions of mongod.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Args;
use proto_tests::{mongod, paths};

/// The suites, from the fastest to the slowest.
const SUITES: [&str; 7] = [
    "auto",
    "outlier",
    "documents",
    "collections",
    "reads",
    "writes",
    "differential",
];

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Tests with this version of mongod, which is fetched if need be; otherwise with each that can be fetched
    #[arg(long = "version")]
    versions: Vec<String>,
    /// Runs this test binary of `proto-tests`; otherwise those that compare with a plain collection
    #[arg(long = "suite")]
    suites: Vec<String>,
    /// Runs the tests whose names contain this text
    #[arg(long)]
    filter: Option<String>,
}

/// The result of a suite with a version.
struct SuiteResult {
    passed: usize,
    /// The names of the tests.
    failed: Vec<String>,
    /// Whether all tests were run.
    is_complete: bool,
    /// The output of the tests that fail.
    reasons: String,
}

/// Prints a table with a line per version and suite, and the names of the tests that fail.
///
/// # Errors
/// If a test fails, or a version cannot be fetched.
pub(crate) fn run(options: &Options) -> Result<()> {
    let versions = or_all(&options.versions, &mongod::fetchable_versions());
    let suites = or_all(&options.suites, &SUITES);
    let folder = paths::target().join("matrix");
    fs::create_dir_all(&folder)?;
    println!("| mongod | suite | passed | failed | seconds |");
    println!("|---|---|---|---|---|");
    let mut failures = Vec::new();
    let mut reasons = String::new();
    for version in &versions {
        mongod::program_of_version(version)?;
        for suite in &suites {
            let log = folder.join(format!("{version}-{suite}.log"));
            let begun = Instant::now();
            let result = test(version, suite, options.filter.as_deref(), &log)?;
            let SuiteResult { passed, failed, .. } = &result;
            let seconds = begun.elapsed().as_secs();
            println!("| {version} | {suite} | {passed} | {} | {seconds} |", failed.len());
            for name in failed {
                failures.push(format!("{version} {suite}: {name}, in {}", log.display()));
            }
            reasons += &result.reasons;
            if !result.is_complete {
                failures.push(format!("{version} {suite}: did not end, in {}", log.display()));
            }
        }
    }
    ensure!(failures.is_empty(), "{reasons}\ntests fail:\n{}", failures.join("\n"));
    Ok(())
}

/// The selected names, or all if none is selected.
fn or_all(selected: &[String], all: &[&str]) -> Vec<String> {
    if selected.is_empty() {
        all.iter().map(|name| (*name).to_owned()).collect()
    } else {
        selected.to_vec()
    }
}

/// Runs a suite. Its output goes to a file.
fn test(version: &str, suite: &str, filter: Option<&str>, log: &Path) -> Result<SuiteResult> {
    let output = File::create(log)?;
    let mut cargo = Command::new("cargo");
    // The features of the whole workspace, so that nothing is built twice.
    cargo.args(["test", "--workspace", "--test", suite]).args(filter);
    cargo.env("MONGOSHAPE_MONGOD", version);
    cargo.stdout(output.try_clone()?).stderr(output).status()?;
    Ok(result_of(&fs::read_to_string(log)?))
}

/// The result in the output of a test binary.
fn result_of(output: &str) -> SuiteResult {
    let with_status = |status| {
        let tests = output.lines().filter_map(|line| line.strip_prefix("test "));
        tests.filter_map(move |test| test.strip_suffix(status)?.split(' ').next())
    };
    SuiteResult {
        passed: with_status("... ok").count(),
        failed: with_status("... FAILED").map(str::to_owned).collect(),
        is_complete: output.lines().any(|line| line.starts_with("test result: ")),
        reasons: output
            .split_once("\nfailures:\n")
            .map_or_else(String::new, |(_, reasons)| reasons.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_test_binary_has_the_result() {
        let output = "running 3 tests\n\
            test a::slow has been running for over 60 seconds\n\
            test a::slow ... ok\n\
            test b::wrong ... FAILED\n\
            test b::other - should panic ... ok\n\
            \nfailures:\nthe reason\n";
        let result = result_of(output);
        assert_eq!((result.passed, result.is_complete), (2, false));
        assert_eq!(result.failed, ["b::wrong"]);
        assert_eq!(result.reasons, "the reason\n");
        let ended = output.to_owned() + "\ntest result: FAILED. 2 passed; 1 failed; 0 ignored\n";
        assert!(result_of(&ended).is_complete);
    }
}
