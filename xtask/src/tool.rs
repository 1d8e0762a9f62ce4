//! An external program, and how to install it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use proto_tests::paths;

/// Where what comes from `crates.io`, `PyPI` and the Go module proxy is installed, below the target directory,
/// so that `cargo clean` removes it.
const FOLDERS: [&str; 2] = ["tools/bin", "tools/venv/bin"];

/// Installs the packages from `PyPI` that xtask uses.
pub(crate) const PYTHON_REQUIREMENTS: &str =
    "python3 -m venv target/tools/venv && target/tools/venv/bin/pip install --requirement xtask/requirements.txt";

#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) install: &'static str,
}

impl Tool {
    pub(crate) const fn new(name: &'static str, install: &'static str) -> Self {
        Self { name, install }
    }

    pub(crate) fn find(&self) -> Option<PathBuf> {
        let ours = FOLDERS.map(|folder| paths::target().join(folder).join(self.name));
        let ours = ours.into_iter().find(|program| program.is_file());
        ours.or_else(|| paths::on_path(self.name))
    }

    /// The path of the program; the error names the command that installs it.
    pub(crate) fn program(&self) -> Result<PathBuf> {
        self.find()
            .with_context(|| format!("{} is missing: {}", self.name, self.install))
    }
}

/// Runs a program at the root of the repository. Its standard output; an error with both outputs if it fails.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    if command.get_current_dir().is_none() {
        command.current_dir(paths::workspace());
    }
    let ran = command.output().with_context(|| name.clone())?;
    let (stdout, stderr) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    ensure!(
        ran.status.success(),
        "{name} ended with {}:\n{stdout}{stderr}",
        ran.status
    );
    Ok(ran.stdout)
}
