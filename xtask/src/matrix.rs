//! `matrix`: runs the tests that compare with a plain collection against several versions of mongod.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use proto_tests::{mongod, paths};

/// Tests that compare with a plain collection, or with a server without the proxy. From the fastest to the
/// slowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Suite {
    Auto,
    Outlier,
    Documents,
    /// Members that are killed or step down
    Failover,
    Collections,
    Reads,
    /// `PyMongo`'s tests of the CRUD, retryable writes, transactions and management specifications, shaped
    SpecificationsShaped,
    /// `PyMongo`'s tests of the CRUD, retryable writes and transactions specifications, relayed
    SpecificationsRelayed,
    Writes,
    Differential,
}

impl Suite {
    /// The arguments of cargo. Tests use the features of the whole workspace, so that nothing is built twice.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Auto => &["test", "--workspace", "--test", "auto"],
            Self::Outlier => &["test", "--workspace", "--test", "outlier"],
            Self::Documents => &["test", "--workspace", "--test", "documents"],
            Self::Failover => &["test", "--workspace", "--test", "server", "failover::"],
            Self::Collections => &["test", "--workspace", "--test", "collections"],
            Self::Reads => &["test", "--workspace", "--test", "reads"],
            Self::SpecificationsShaped => &["xtask", "pymongo", "--shaped", "all"],
            Self::SpecificationsRelayed => &[
                "xtask",
                "pymongo",
                "--only",
                "test_crud_unified",
                "test_retryable_writes_unified",
                "test_transactions_unified",
            ],
            Self::Writes => &["test", "--workspace", "--test", "writes"],
            Self::Differential => &["test", "--workspace", "--test", "differential"],
        }
    }

    /// The name on the command line.
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Tests with this version of mongod, which is fetched if need be; otherwise with each that can be fetched
    #[arg(long = "version")]
    versions: Vec<String>,
    /// Runs this suite; otherwise all
    #[arg(long = "suite", value_enum)]
    suites: Vec<Suite>,
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
    let versions = match &options.versions[..] {
        [] => mongod::fetchable_versions().map(str::to_owned).to_vec(),
        selected => selected.to_vec(),
    };
    let suites = match &options.suites[..] {
        [] => Suite::value_variants(),
        selected => selected,
    };
    let folder = paths::target().join("matrix");
    fs::create_dir_all(&folder)?;
    println!("| mongod | suite | passed | failed | seconds |");
    println!("|---|---|---|---|---|");
    let mut failures = Vec::new();
    let mut reasons = String::new();
    for version in &versions {
        mongod::program_of_version(version)?;
        for suite in suites {
            let name = suite.name();
            let log = folder.join(format!("{version}-{name}.log"));
            let begun = Instant::now();
            let result = test(version, *suite, &log)?;
            let SuiteResult { passed, failed, .. } = &result;
            let seconds = begun.elapsed().as_secs();
            println!("| {version} | {name} | {passed} | {} | {seconds} |", failed.len());
            for test in failed {
                failures.push(format!("{version} {name}: {test}, in {}", log.display()));
            }
            reasons += &result.reasons;
            if !result.is_complete {
                failures.push(format!("{version} {name}: did not end, in {}", log.display()));
            }
        }
    }
    ensure!(failures.is_empty(), "{reasons}\ntests fail:\n{}", failures.join("\n"));
    Ok(())
}

/// Runs a suite. Its output goes to a file.
fn test(version: &str, suite: Suite, log: &Path) -> Result<SuiteResult> {
    let output = File::create(log)?;
    let mut cargo = Command::new("cargo");
    cargo.args(suite.arguments()).env("MONGOSHAPE_MONGOD", version);
    let status = cargo.stdout(output.try_clone()?).stderr(output).status()?;
    let output = fs::read_to_string(log)?;
    Ok(match suite {
        Suite::SpecificationsShaped | Suite::SpecificationsRelayed => of_whole(status.success(), output),
        _ => result_of(&output),
    })
}

/// The result of a suite that counts as one test: it compares its own outcomes.
fn of_whole(is_passed: bool, output: String) -> SuiteResult {
    SuiteResult {
        passed: usize::from(is_passed),
        failed: if is_passed { vec![] } else { vec!["all".to_owned()] },
        is_complete: true,
        reasons: if is_passed { String::new() } else { output },
    }
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
