//! `matrix`: runs the tests that compare with a plain collection against several versions of mongod.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use proto_tests::{cargo, mongod, paths};

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

    /// Whether the suite is a test binary of the workspace. Any other is a command of xtask.
    fn has_tests(self) -> bool {
        self.arguments().first() == Some(&"test")
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

/// A server to test with.
#[derive(Clone, Copy)]
struct Server<'a> {
    version: &'a str,
    is_under_wine: bool,
}

/// The result of a suite with a version.
#[derive(Default)]
struct SuiteResult {
    passed: usize,
    /// The number of tests that failed with others and passed alone.
    passed_alone: usize,
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
    println!("| mongod | suite | passed | passed alone | failed | seconds |");
    println!("|---|---|---|---|---|---|");
    let mut failures = Vec::new();
    let mut reasons = String::new();
    for version in &versions {
        let server = Server {
            version,
            is_under_wine: mongod::program_of_version(version)?.is_windows,
        };
        for suite in suites {
            let name = suite.name();
            let log = folder.join(format!("{version}-{name}.log"));
            let begun = Instant::now();
            let result = if server.is_under_wine && suite.has_tests() {
                test_by_module(server, *suite, &log)?
            } else {
                test(server, *suite, &[], &log)?
            };
            let seconds = begun.elapsed().as_secs();
            println!(
                "| {version} | {name} | {} | {} | {} | {seconds} |",
                result.passed,
                result.passed_alone,
                result.failed.len()
            );
            for test in &result.failed {
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

/// Runs a suite with further arguments of the test binary. Its output goes to a file.
fn test(server: Server<'_>, suite: Suite, arguments: &[&str], log: &Path) -> Result<SuiteResult> {
    let output = File::create(log)?;
    let mut cargo = cargo::command();
    cargo.args(suite.arguments()).env("MONGOSHAPE_MONGOD", server.version);
    if !arguments.is_empty() {
        cargo.arg("--").args(arguments);
    }
    if server.is_under_wine {
        cargo.env("RUST_TEST_THREADS", "1");
    }
    let status = cargo.stdout(output.try_clone()?).stderr(output).status()?;
    let output = fs::read_to_string(log)?;
    Ok(if suite.has_tests() {
        result_of(&output)
    } else {
        of_whole(status.success(), output)
    })
}

/// Runs a suite by the modules of its tests, each with servers of its own, and each failed test again, alone. Under
/// Wine, mongod sometimes crashes when several connections create one collection at the same time, and all later tests
/// of the process fail.
fn test_by_module(server: Server<'_>, suite: Suite, log: &Path) -> Result<SuiteResult> {
    let mut of_suite = SuiteResult {
        is_complete: true,
        ..SuiteResult::default()
    };
    test(server, suite, &["--list"], log)?;
    let listed = fs::read_to_string(log)?;
    for (module, tests) in modules(&listed) {
        let arguments = [vec!["--exact"], tests].concat();
        let of_module = test(server, suite, &arguments, &log.with_extension(format!("{module}.log")))?;
        of_suite.passed += of_module.passed;
        of_suite.is_complete &= of_module.is_complete;
        for name in of_module.failed {
            let file = log.with_extension(format!("{}.log", name.replace("::", "-")));
            let alone = test(server, suite, &["--exact", &name], &file)?;
            if alone.passed == 1 {
                of_suite.passed_alone += 1;
            } else {
                of_suite.failed.push(name);
                of_suite.reasons += &alone.reasons;
            }
        }
    }
    Ok(of_suite)
}

/// The tests of a list by the first parts of their names.
fn modules(listed: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut modules: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for test in listed.lines().filter_map(|line| line.strip_suffix(": test")) {
        let (module, _) = test.split_once("::").unwrap_or((test, ""));
        modules.entry(module).or_default().push(test);
    }
    modules
}

/// The result of a suite that counts as one test: it compares its own outcomes.
fn of_whole(is_passed: bool, output: String) -> SuiteResult {
    SuiteResult {
        passed: usize::from(is_passed),
        passed_alone: 0,
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
        passed_alone: 0,
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
        let listed = modules("a::b: test\na::c: test\nd: test\n\n3 tests, 0 benchmarks\n");
        assert_eq!(listed, BTreeMap::from([("a", vec!["a::b", "a::c"]), ("d", vec!["d"])]));
        let ended = output.to_owned() + "\ntest result: FAILED. 2 passed; 1 failed; 0 ignored\n";
        assert!(result_of(&ended).is_complete);
    }
}
