//! Installs pinned versions of the drivers of other languages under the target directory.
//!
//! mongod's installer needs Python, so pymongo always runs. Node.js is installed with Python if it is
//! missing. The whole matrix needs an installed Go, Java and Maven.

mod compiled;
mod examples;
mod node;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use anyhow::{Context as _, Result};

use crate::{commands, paths};

pub use compiled::{go, go_bulk_write, go_shop, java, rust, spring};
pub use examples::{go_example, node_example, python_example, spring_example};
pub use node::{Node, install_packages, node};

/// Where the programs are.
pub static PROGRAMS: LazyLock<PathBuf> = LazyLock::new(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("drivers"));

/// The folder for PYTHONPATH. pip's `--target` wants neither a virtual environment nor the `venv` module.
pub fn python() -> Result<PathBuf> {
    let folder = paths::target().join("drivers/python");
    let requirements = PROGRAMS.join("requirements.txt");
    once(&folder, &fs::read(&requirements)?, || {
        pip(&folder, &[OsStr::new("--requirement"), requirements.as_os_str()])
    })?;
    Ok(folder)
}

/// Runs a program of [`PROGRAMS`] for a connection string. `modules`: the folder for PYTHONPATH.
#[must_use]
pub fn python_program(modules: &Path, name: &str, uri: &str) -> Command {
    let mut command = Command::new("python3");
    command
        .env("PYTHONPATH", modules)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(PROGRAMS.join("python").join(name))
        .arg(uri);
    command
}

fn pip(folder: &Path, wanted: &[&OsStr]) -> Result<()> {
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--upgrade",
    ])
    .arg("--target")
    .arg(folder)
    .args(wanted);
    commands::run(&mut pip, "install python3 and python3-pip").map(drop)
}

/// Runs `install` unless it was done for these very versions. Processes that come here together wait for the
/// first.
fn once(folder: &Path, versions: &[u8], install: impl FnOnce() -> Result<()>) -> Result<()> {
    let _lock = locked(folder)?;
    let marker = folder.join("installed");
    if fs::read(&marker).is_ok_and(|installed| installed == versions) {
        return Ok(());
    }
    install()?;
    Ok(fs::write(marker, versions)?)
}

/// Makes the folder, and keeps other processes from installing into it for as long as the file is held.
fn locked(folder: &Path) -> Result<File> {
    fs::create_dir_all(folder)?;
    let lock = File::create(folder.with_extension("lock"))?;
    lock.lock()?;
    Ok(lock)
}

/// Copies so that a test that runs the program meanwhile sees the old or the new file, never a part of one.
fn replace(from: &Path, to: &Path) -> Result<()> {
    let scratch = tempfile::NamedTempFile::new_in(to.parent().context("a folder")?)?;
    fs::copy(from, scratch.path())?;
    scratch.persist(to)?;
    Ok(())
}
