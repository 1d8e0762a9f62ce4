//! The Debian and the RPM package of an architecture. `Cargo.toml` lists their files.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use tempfile::TempDir;

use super::architecture::Build;
use super::{Release, VERSION, installed, lint};
use crate::tool::{Tool, output};

const CARGO_DEB: Tool = Tool::new("cargo-deb", "cargo install cargo-deb --locked --root target/tools");
const CARGO_RPM: Tool = Tool::new(
    "cargo-generate-rpm",
    "cargo install cargo-generate-rpm --locked --root target/tools",
);
const RPM: Tool = Tool::new("rpm", "apt-get install rpm");

pub(super) fn create(release: &Release, build: &Build) -> Result<()> {
    let package = release.artefact(&format!(
        "mongoshape_{VERSION}-1_{}.deb",
        build.architecture.debian_name()
    ));
    // The profile has stripped the binary already.
    let mut deb = Command::new(CARGO_DEB.program()?);
    deb.args(["--package", "mongoshape", "--no-build", "--no-strip", "--quiet"]);
    deb.args(["--target", build.architecture.target()])
        .arg("--output")
        .arg(&package);
    output(deb.env("SOURCE_DATE_EPOCH", &release.time))?;
    installed::check(&package, build)?;
    lint::check_debian(&package)?;

    let package = release.artefact(&format!("mongoshape-{VERSION}-1.{}.rpm", build.architecture.name()));
    let mut rpm = Command::new(CARGO_RPM.program()?);
    rpm.args(["generate-rpm", "--target", build.architecture.target()]);
    // The binary is static. The scripts need `systemctl`, if there is one.
    rpm.args(["--auto-req", "disabled", "--source-date", &release.time])
        .arg("--output")
        .arg(&package);
    output(&mut rpm)?;
    check_rpm(&package, build)?;
    lint::check_rpm(&package)
}

/// Unpacks the RPM package, and starts its binary. Checks that it has the files of the Debian package.
fn check_rpm(package: &Path, build: &Build) -> Result<()> {
    let root = TempDir::with_prefix("mongoshape-rpm-")?;
    let rpm = RPM.program()?;
    let mut install = Command::new(rpm);
    install.args(["--install", "--nodeps", "--noscripts", "--ignorearch", "--root"]);
    output(install.arg(root.path()).arg(package))?;
    for file in installed::FILES.into_iter().chain(["usr/share/doc/mongoshape/LICENSE"]) {
        ensure!(root.path().join(file).is_file(), "{} has no /{file}", package.display());
    }
    let unpacked = Build {
        architecture: build.architecture,
        binary: root.path().join(installed::BINARY),
    };
    unpacked.check_version()
}
