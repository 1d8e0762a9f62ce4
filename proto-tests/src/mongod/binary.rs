//! Finds a mongod: `MONGOSHAPE_MONGOD`, else `PATH`, else a downloaded one under the target directory.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, anyhow, bail};

use super::builds::{BUILDS, Build};
use crate::{commands, paths};

const OTHERWISE: &str = "install mongod 6.0 or later, or set MONGOSHAPE_MONGOD to one";

/// A mongod that has been seen to run.
#[derive(Debug)]
pub struct Program {
    /// The file to execute.
    pub path: PathBuf,
    /// Its own version.
    pub version: Version,
    /// Whether it is a build for Windows, which lacks some options. It runs under Wine.
    pub is_windows: bool,
}

/// A version of mongod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 7 of 7.0.28.
    pub major: u32,
    /// 0 of 7.0.28.
    pub minor: u32,
    /// 28 of 7.0.28.
    pub patch: u32,
}

impl Version {
    /// The oldest version that can be fetched. Later releases of 6.0 have changes of 7.0.
    pub const OLDEST: Self = Self {
        major: 6,
        minor: 0,
        patch: 5,
    };
}

/// The program to start. Found once a process. `MONGOSHAPE_MONGOD` is its path, or the version of one of the
/// [builds](BUILDS) that can be fetched.
///
/// # Errors
/// One line with what to install.
pub fn find() -> Result<&'static Program> {
    static FOUND: OnceLock<Result<Program, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| locate().and_then(runs).map_err(|error| format!("{error:#}")));
    found.as_ref().map_err(|error| anyhow!("{error}"))
}

/// The versions that can be fetched, from the oldest to the newest.
#[must_use]
pub fn fetchable_versions() -> [&'static str; 3] {
    BUILDS.each_ref().map(|build| build.version)
}

/// The program of a version that can be fetched.
///
/// # Errors
/// One line with the versions, or with what to install.
pub fn of_version(version: &str) -> Result<Program> {
    let Some(build) = Build::named(version) else {
        bail!(
            "mongod {version} cannot be fetched: give one of {}",
            fetchable_versions().join(", ")
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
fn runs(path: PathBuf) -> Result<Program> {
    let ran = Command::new(&path).arg("--version").output();
    let output = ran.with_context(|| format!("{} cannot be run: {OTHERWISE}", path.display()))?;
    if !output.status.success() {
        let last_line = commands::last_line(&output);
        let remedy = if last_line.contains("libcurl") {
            "apt-get install libcurl4"
        } else {
            OTHERWISE
        };
        bail!("{} does not run: {remedy} ({last_line})", path.display());
    }
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = version_in(&printed).with_context(|| format!("{} prints no version", path.display()))?;
    Ok(Program {
        path,
        version,
        is_windows: printed.contains(r#""distmod": "windows""#),
    })
}

/// The version in the output of `mongod --version`.
fn version_in(printed: &str) -> Option<Version> {
    let line = printed.lines().next()?.strip_prefix("db version v")?;
    // A build before a release has a text behind the numbers.
    let mut numbers = line.trim().split(['.', '-']).map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some(Version {
        major: next()?,
        minor: next()?,
        patch: next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_the_first_line() {
        let of = |line: &str| version_in(&format!("{line}\nBuild Info: {{\n    \"version\": \"1.1.1\"\n"));
        let version = |major, minor, patch| Version { major, minor, patch };
        assert_eq!(of("db version v6.0.27"), Some(version(6, 0, 27)));
        assert_eq!(of("db version v8.0.0-rc1"), Some(version(8, 0, 0)));
        assert_eq!(of("another program"), None);
        assert!(version(6, 0, 27) > version(6, 0, 5));
    }
}
