//! One run of mocha against one address.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto_tests::guarded::Guarded;
use proto_tests::paths;
use serde::Deserialize;
use tempfile::TempDir;

/// The whole suite takes two minutes directly.
const RUN_LIMIT: Duration = Duration::from_hours(1);
/// What the suite's own CI allows a test.
const TEST_LIMIT_MS: &str = "10000";
/// All that the suite runs without an encryption library.
const FILES: &str = "test/**/*.test.js";
const NOT_RUN: &str = "test/encryption/**/*.test.js";

/// What tests came to, by their full titles.
pub(super) type Outcomes = BTreeMap<String, Status>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Passed,
    Failed,
    Pending,
    /// Not reported.
    Missing,
}

impl Display for Status {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Pending => "pending",
            Self::Missing => "missing",
        })
    }
}

/// mocha's JSON report.
#[derive(Debug, Deserialize)]
struct Report {
    passes: Vec<Test>,
    failures: Vec<Test>,
    pending: Vec<Test>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Test {
    full_title: String,
}

/// A checkout of Mongoose with its development dependencies.
#[derive(Debug)]
pub(super) struct Mocha {
    checkout: PathBuf,
    program: PathBuf,
}

impl Mocha {
    pub(super) fn find(checkout: &Path) -> Result<Self> {
        let checkout = checkout
            .canonicalize()
            .with_context(|| format!("no folder {}", checkout.display()))?;
        let program = checkout.join("node_modules/mocha/bin/mocha.js");
        let remedy = "run `npm install --ignore-scripts` there";
        ensure!(program.is_file(), "{} has no mocha: {remedy}", checkout.display());
        Ok(Self { checkout, program })
    }

    /// Runs `files`, or all, against `address`. mocha's output and its report, with the errors of failed tests,
    /// go to files of this name.
    pub(super) fn run(&self, name: &str, address: SocketAddr, files: &[String]) -> Result<Outcomes> {
        let folder = TempDir::with_prefix("mongoshape-mongoose-")?;
        let reports = paths::target().join("mongoose");
        fs::create_dir_all(&reports)?;
        let log = reports.join(format!("{name}.log"));
        let mut command = Command::new("node");
        command.arg(&self.program).current_dir(&self.checkout);
        command.args([
            "--exit",
            "--timeout",
            TEST_LIMIT_MS,
            "--ignore",
            NOT_RUN,
            "--reporter",
            "json",
        ]);
        let output = reports.join(format!("{name}.json"));
        fs::write(&output, "")?;
        command
            .arg("--reporter-option")
            .arg(format!("output={}", output.display()));
        if files.is_empty() {
            command.arg(FILES);
        }
        command.args(files);
        command.env("MONGOOSE_TEST_URI", format!("mongodb://{address}/mongoose_test"));
        command
            .env_remove("MONGOOSE_REPLSET_URI")
            .env_remove("START_REPLICA_SET");
        let mut mocha = Guarded::start(&command, folder, Stdio::from(File::create(&log)?))?;
        let ended = mocha.wait(RUN_LIMIT)?;
        ensure!(
            ended.is_some(),
            "{name}: mocha still ran after {RUN_LIMIT:?}; see {}",
            log.display()
        );
        let report: Report = serde_json::from_str(&fs::read_to_string(&output)?)
            .with_context(|| format!("{name}: mocha left no report; see {}", log.display()))?;
        Ok(outcomes(report))
    }
}

/// Of tests of one title, all must have passed.
fn outcomes(report: Report) -> Outcomes {
    let mut outcomes = Outcomes::new();
    let lists = [
        (Status::Pending, report.pending),
        (Status::Passed, report.passes),
        (Status::Failed, report.failures),
    ];
    for (status, tests) in lists {
        outcomes.extend(tests.into_iter().map(|test| (test.full_title, status)));
    }
    outcomes
}
