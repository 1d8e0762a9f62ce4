//! Installs the drivers of other languages under the target directory, once, from pinned versions.
//!
//! Python is needed for mongod itself, so pymongo always runs. Node.js is not: without it its tests say that they did not
//! run, and fail where `MONGOSHAPE_REQUIRE_DRIVERS` is set, as it is in CI.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use anyhow::{Context as _, Result, bail, ensure};
use proto_tests::paths;

/// Where the programs are.
pub(super) static PROGRAMS: LazyLock<PathBuf> = LazyLock::new(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("drivers"));

/// The folder for PYTHONPATH. pip's `--target` wants neither a virtual environment nor the `venv` module.
pub(super) fn python() -> Result<PathBuf> {
    let folder = paths::target().join("drivers/python");
    let requirements = PROGRAMS.join("requirements.txt");
    once(&folder, &requirements, || {
        let mut pip = Command::new("python3");
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--upgrade",
            "--target",
        ])
        .arg(&folder);
        pip.arg("--requirement").arg(&requirements);
        succeed(pip, "install python3 and python3-pip")
    })?;
    Ok(folder)
}

/// The folder that holds `node_modules` and, beside it as Node demands, the programs. `None`: no Node.js here, and none required.
pub(super) fn node() -> Result<Option<PathBuf>> {
    if paths::on_path("npm").is_none() || node_major().is_none_or(|major| major < 20) {
        missing()?;
        return Ok(None);
    }
    let folder = paths::target().join("drivers/node");
    let package = PROGRAMS.join("package.json");
    once(&folder, &package, || {
        fs::copy(&package, folder.join("package.json"))?;
        let mut npm = Command::new("npm");
        npm.args([
            "install",
            "--no-audit",
            "--no-fund",
            "--no-package-lock",
            "--ignore-scripts",
            "--loglevel",
            "error",
        ]);
        npm.arg("--prefix").arg(&folder);
        succeed(npm, "install Node.js 20 or later with npm")
    })?;
    for program in ["node_trades.mjs", "mongosh_trades.js"] {
        replace(&PROGRAMS.join(program), &folder.join(program))?;
    }
    Ok(Some(folder))
}

fn node_major() -> Option<u32> {
    let output = Command::new("node").arg("--version").output().ok()?;
    let version = String::from_utf8(output.stdout).ok()?;
    version.strip_prefix('v')?.split('.').next()?.parse().ok()
}

/// A test that does not run must say so: on the real stderr, as the test runner hides what `eprintln!` prints.
fn missing() -> Result<()> {
    let line = "the Node and mongosh driver tests need Node.js 20 or later with npm on PATH";
    ensure!(std::env::var_os("MONGOSHAPE_REQUIRE_DRIVERS").is_none(), "{line}");
    Ok(writeln!(std::io::stderr(), "NOT RUN: {line}")?)
}

/// Runs `install` unless it was done for this very list of versions. Processes that come here together wait for the first.
fn once(folder: &Path, versions: &Path, install: impl FnOnce() -> Result<()>) -> Result<()> {
    let parent = folder.parent().context("a folder below the target directory")?;
    fs::create_dir_all(folder)?;
    let lock = File::create(parent.join("lock"))?;
    lock.lock()?;
    let marker = folder.join("installed");
    let wanted = fs::read(versions)?;
    if fs::read(&marker).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    install()?;
    Ok(fs::write(marker, wanted)?)
}

/// Copies so that a test that runs the program meanwhile sees the old or the new file, never a part of one.
fn replace(from: &Path, to: &Path) -> Result<()> {
    let scratch = tempfile::NamedTempFile::new_in(to.parent().context("a folder")?)?;
    fs::copy(from, scratch.path())?;
    scratch.persist(to)?;
    Ok(())
}

fn succeed(mut command: Command, remedy: &str) -> Result<()> {
    let program = command.get_program().display().to_string();
    let output = command
        .output()
        .with_context(|| format!("{program} is not on PATH: {remedy}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr)
            .trim()
            .lines()
            .last()
            .unwrap_or("no reason given")
            .to_owned();
        let arguments: Vec<_> = command.get_args().take(3).map(OsStr::to_string_lossy).collect();
        bail!("`{program} {}` failed ({said}): {remedy}", arguments.join(" "));
    }
    Ok(())
}
