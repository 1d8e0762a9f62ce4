//! A program that checks a format, and how to get it.

use std::path::PathBuf;

use proto_tests::paths;

/// Where what comes from `PyPI` is installed, below the target directory, so that `cargo clean` removes it.
const VENV: &str = "tools/venv/bin";

#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: &'static str,
    pub(super) install: &'static str,
}

impl Tool {
    pub(super) const fn new(name: &'static str, install: &'static str) -> Self {
        Self { name, install }
    }

    pub(super) fn find(&self) -> Option<PathBuf> {
        let ours = paths::target().join(VENV).join(self.name);
        ours.is_file().then_some(ours).or_else(|| paths::on_path(self.name))
    }
}
