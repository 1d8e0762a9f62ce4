//! The proxy's binary. It is built if it is missing or older than its sources.
//!
//! `cargo test -p proto-tests` does not build another package's binary, and Cargo has no stable option for
//! it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use anyhow::{Context as _, Result, anyhow, ensure};

use crate::{cargo, paths};

/// What Cargo builds it as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Quick to build.
    Dev,
    /// Quick to run.
    Release,
}

/// `MONGOSHAPE_BINARY`, else the binary of the profile that this very program was built with. Found once a
/// process.
pub fn find() -> Result<PathBuf> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| build(own_profile()).map_err(|error| format!("{error:#}")));
    found.clone().map_err(|error| anyhow!(error))
}

/// `MONGOSHAPE_BINARY`, else the binary of this profile, built if need be.
pub fn build(profile: Profile) -> Result<PathBuf> {
    if let Some(set) = std::env::var_os("MONGOSHAPE_BINARY") {
        return Ok(PathBuf::from(set));
    }
    let folder = if profile == Profile::Release {
        "release"
    } else {
        "debug"
    };
    let binary = paths::target().join(folder).join("mongoshape");
    if is_current(&binary)? {
        return Ok(binary);
    }
    // Cargo's own lock makes processes that come here together wait; the second finds nothing to do.
    let mut cargo = cargo::command();
    cargo.args(["build", "--package", "mongoshape", "--bin", "mongoshape"]);
    cargo.arg("--target-dir").arg(paths::target());
    match profile {
        // This package as well: its dependencies have the features with which tests are built.
        Profile::Dev => cargo.args(["--quiet", "--package", "proto-tests"]),
        // The first build takes minutes, so its progress is shown.
        Profile::Release => cargo.arg("--release"),
    };
    let status = cargo
        .status()
        .context("cargo, which builds the proxy, is not on PATH")?;
    ensure!(
        status.success(),
        "the proxy could not be built; or set MONGOSHAPE_BINARY to one"
    );
    Ok(binary)
}

fn own_profile() -> Profile {
    let optimised =
        std::env::current_exe().is_ok_and(|program| program.components().any(|part| part.as_os_str() == "release"));
    if optimised { Profile::Release } else { Profile::Dev }
}

fn is_current(binary: &Path) -> Result<bool> {
    let Ok(built) = binary.metadata().and_then(|metadata| metadata.modified()) else {
        return Ok(false);
    };
    let root = paths::workspace();
    let newest = [
        newest_below(&root.join("src"))?,
        modified(&root.join("Cargo.toml"))?,
        modified(&root.join("Cargo.lock"))?,
    ];
    Ok(newest.into_iter().all(|source| source <= built))
}

fn newest_below(folder: &Path) -> Result<SystemTime> {
    let mut newest = modified(folder)?;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let time = if entry.file_type()?.is_dir() {
            newest_below(&entry.path())?
        } else {
            modified(&entry.path())?
        };
        newest = newest.max(time);
    }
    Ok(newest)
}

fn modified(path: &Path) -> Result<SystemTime> {
    Ok(path.metadata()?.modified()?)
}
