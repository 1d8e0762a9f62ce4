//! The checks of packages by the tools of the distributions. The files with the exceptions state their reasons.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use proto_tests::paths;

use crate::tool::{Tool, output};

const LINTIAN: Tool = Tool::new("lintian", "apt-get install lintian");
const RPMLINT: Tool = Tool::new("rpmlint", "apt-get install rpmlint");

/// Checks a Debian package. Its exceptions are in the package, as Debian's are: `deploy/debian/lintian-overrides`.
pub(super) fn check_debian(package: &Path) -> Result<()> {
    let mut lintian = Command::new(LINTIAN.program()?);
    lintian.args(["--fail-on", "error,warning", "--tag-display-limit", "0"]);
    // lintian warns of the user of a container.
    lintian.arg("--allow-root");
    output(lintian.arg(package)).map(drop)
}

/// Checks an RPM package.
pub(super) fn check_rpm(package: &Path) -> Result<()> {
    let mut rpmlint = Command::new(RPMLINT.program()?);
    rpmlint.arg("--strict").arg("--config");
    rpmlint.arg(paths::workspace().join("deploy/rpm/rpmlint.toml"));
    output(rpmlint.arg(package)).map(drop)
}
