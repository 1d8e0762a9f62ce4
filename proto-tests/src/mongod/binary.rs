//! Finds a mongod: `MONGOSHAPE_MONGOD`, else `PATH`, else a downloaded one under the target directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, anyhow, bail};

use super::builds::{BUILDS, Build};
use crate::{commands, paths};

const OTHERWISE: &str = "install mongod 6.0 or later, or set MONGOSHAPE_MONGOD to one";

/// The binary to start, which has been seen to run. Found once a process. `MONGOSHAPE_MONGOD` is its path, or the
/// version of one of the [builds](BUILDS) that can be fetched.
///
/// # Errors
/// One line with what to install.
pub fn find() -> Result<&'static Path> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| locate().and_then(runs).map_err(|error| format!("{error:#}")));
    found.as_deref().map_err(|error| anyhow!("{error}"))
}

/// The binary of a version that can be fetched.
///
/// # Errors
/// One line with the versions, or with what to install.
pub fn of_version(version: &str) -> Result<PathBuf> {
    let Some(build) = Build::named(version) else {
        let versions = BUILDS.each_ref().map(|build| build.version);
        bail!(
            "mongod {version} cannot be fetched: give one of {}",
            versions.join(", ")
        );
    };
    build.program().and_then(runs)
}

fn locate() -> Result<PathBuf> {
    if let Some(set) = std::env::var_os("MONGOSHAPE_MONGOD") {
        let build = set.to_str().and_then(Build::named);
        return build.map_or_else(|| Ok(PathBuf::from(set)), Build::program);
    }
    if let Some(installed) = paths::on_path("mongod") {
        return Ok(installed);
    }
    let fetched = BUILDS[0].program();
    fetched.with_context(|| format!("no mongod could be found or fetched: {OTHERWISE}"))
}

/// A mongod without a shared library fails here once, not later as a server that does not respond.
fn runs(mongod: PathBuf) -> Result<PathBuf> {
    let ran = Command::new(&mongod).arg("--version").output();
    let output = ran.with_context(|| format!("{} cannot be run: {OTHERWISE}", mongod.display()))?;
    if !output.status.success() {
        let last_line = commands::last_line(&output);
        let remedy = if last_line.contains("libcurl") {
            "apt-get install libcurl4"
        } else {
            OTHERWISE
        };
        bail!("{} does not run: {remedy} ({last_line})", mongod.display());
    }
    Ok(mongod)
}
