//! Checks that mongoshape accepts the configurations in `deploy/`.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use proto_tests::paths;

use super::report::Report;

const FILES: [&str; 4] = [
    "deploy/compose/mongoshape.toml",
    "deploy/kubernetes/overlays/deployment/mongoshape.toml",
    "deploy/kubernetes/overlays/deployment-tls/mongoshape.toml",
    "deploy/kubernetes/overlays/sidecar/mongoshape.toml",
];
/// Their upstreams' names mean nothing here: nothing listens on this one, and that is found out at once.
const UPSTREAM: [(&str, &str); 2] = [
    ("MONGOSHAPE_UPSTREAM_URI", "mongodb://127.0.0.1:1/"),
    ("MONGOSHAPE_UPSTREAM_CONNECT_TIMEOUT_MS", "100"),
];

pub(super) fn check(report: &mut Report, binary: &Path) -> Result<()> {
    for file in FILES {
        check_file(report, binary, file, &paths::workspace().join(file))?;
    }
    Ok(())
}

pub(super) fn check_file(report: &mut Report, binary: &Path, subject: &str, path: &Path) -> Result<()> {
    let mut command = Command::new(binary);
    let checked = command.arg("check").arg("--config").arg(path).envs(UPSTREAM).output()?;
    let output = String::from_utf8_lossy(&checked.stdout);
    if output.contains("ok: configuration: no errors") {
        report.fine(subject, "a configuration without mistakes");
    } else {
        report.error(subject, &format!("\n{output}"));
    }
    Ok(())
}
