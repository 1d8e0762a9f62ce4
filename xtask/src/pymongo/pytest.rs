//! One run of pytest against one address.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};
use proto_tests::guarded::Guarded;
use tempfile::TempDir;

use super::outcome::{self, Outcomes};
use super::suite::Suite;

/// For all modules. They take three to ten minutes; this is for one that hangs in spite of the limit for a
/// test.
const RUN_LIMIT: Duration = Duration::from_hours(1);
const TEST_LIMIT_S: &str = "--timeout=180";
const OUTCOMES: &str = "outcomes.jsonl";

/// Environment variables that the suite reads. They are removed, as they would change the run.
const FOREIGN: [&str; 8] = [
    "DB_USER",
    "DB_PASSWORD",
    "COMPRESSORS",
    "MONGODB_API_VERSION",
    "TEST_LOAD_BALANCER",
    "SINGLE_MONGOS_LB_URI",
    "MULTI_MONGOS_LB_URI",
    "PYTEST_ADDOPTS",
];

/// How the suite is run, direct and through the proxy alike.
#[derive(Debug)]
pub(super) struct Pytest {
    pub(super) suite: Suite,
    /// What clients offer, as `zlib,snappy`; none by default.
    pub(super) compressors: Option<String>,
    /// Plugins of ours that these tests want, by name.
    pub(super) plugins: &'static [&'static str],
    /// Where each run leaves pytest's own report.
    pub(super) reports: PathBuf,
}

impl Pytest {
    /// Runs `tests`, files or single tests, against `address`. pytest's output goes to the report of this
    /// name.
    pub(super) fn run(&self, name: &str, address: SocketAddr, tests: &[String]) -> Result<Outcomes> {
        let folder = TempDir::with_prefix("mongoshape-pymongo-")?;
        let report = self.reports.join(format!("{name}.log"));
        let mut command = self.command(address, tests);
        command.env("PYMONGO_OUTCOMES", folder.path().join(OUTCOMES));
        // What tests leave behind goes with the folder.
        command.env("TMPDIR", folder.path());
        let mut pytest = Guarded::start(&command, folder, Stdio::from(File::create(&report)?))?;
        let ended = pytest.wait(RUN_LIMIT)?;
        let outcomes = outcome::parse(&pytest.read(OUTCOMES))?;
        match ended.and_then(|status| status.code()) {
            // All passed, or some failed: anything else is no run.
            Some(0 | 1) => Ok(outcomes),
            Some(code) => bail!(
                "{name}: pytest ended with {code}:\n{}",
                tail(&fs::read_to_string(&report)?)
            ),
            None => bail!("{name}: pytest still ran after {RUN_LIMIT:?}; see {}", report.display()),
        }
    }

    fn command(&self, address: SocketAddr, tests: &[String]) -> Command {
        let root = self.suite.root();
        let mut command = Command::new(self.suite.python());
        // The suite's own settings, but for the options that would write into its folder.
        command.args([
            "-m",
            "pytest",
            "-o",
            "addopts=",
            "-p",
            "no:cacheprovider",
            "-p",
            "outcomes",
            "-v",
        ]);
        command.args(self.plugins.iter().flat_map(|plugin| ["-p", plugin]));
        command.args([TEST_LIMIT_S, "--tb=short"]);
        command.arg("-c").arg(root.join("pyproject.toml"));
        command.arg("--rootdir").arg(&root);
        command.args(tests.iter().map(|test| root.join(test)));
        for name in FOREIGN {
            command.env_remove(name);
        }
        let path = [root, self.suite.plugins()].map(|folder| folder.to_string_lossy().into_owned());
        command
            .env("PYTHONPATH", path.join(":"))
            .env("DB_IP", address.ip().to_string())
            .env("DB_PORT", address.port().to_string());
        if let Some(compressors) = &self.compressors {
            command.env("COMPRESSORS", compressors);
        }
        command
    }
}

fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
