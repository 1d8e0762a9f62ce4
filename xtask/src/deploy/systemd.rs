//! `systemd-analyze` on the unit.

use std::fs;
use std::path::Path;

use anyhow::Result;
use tempfile::TempDir;

use super::read;
use super::report::Report;
use crate::tool::Tool;

const ANALYZE: Tool = Tool::new("systemd-analyze", "apt-get install systemd");
const FILE: &str = "deploy/systemd/mongoshape.service";
const INSTALLED: &str = "/usr/bin/mongoshape";
/// What may be left open to the unit, in tenths of systemd's points: the network is its trade, the rest is
/// 0.7.
const THRESHOLD: &str = "--threshold=12";

pub(super) fn check(report: &mut Report, binary: &Path) -> Result<()> {
    // It looks for the program that the unit starts, which need not be installed here.
    let folder = TempDir::with_prefix("mongoshape-unit-")?;
    let copy = folder.path().join("mongoshape.service");
    let binary = std::path::absolute(binary)?;
    fs::write(&copy, read(FILE)?.replace(INSTALLED, &binary.display().to_string()))?;
    report.run_to_silence(&ANALYZE, &["verify", "--man=no", &copy.display().to_string()]);
    let security = ["security", "--offline=yes", "--no-pager", THRESHOLD, FILE];
    if let Some(table) = report.run(&ANALYZE, &security) {
        report.note(FILE, table.lines().last().unwrap_or_default().trim_start_matches("→ "));
    }
    Ok(())
}
