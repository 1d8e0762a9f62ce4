//! An external program, and how to install it.

use std::path::PathBuf;

use proto_tests::paths;

/// Where what comes from `crates.io`, `PyPI` and the Go module proxy is installed, below the target directory,
/// so that `cargo clean` removes it.
const FOLDERS: [&str; 2] = ["tools/bin", "tools/venv/bin"];

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
}
