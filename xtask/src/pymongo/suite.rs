//! `PyMongo`'s test suite under the target directory: its tests from the source distribution, and a Python to
//! run them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use proto_tests::paths;

/// What is installed, with versions; a change of it makes everything anew.
const REQUIREMENTS: &str = include_str!("requirements.txt");
/// Our plugins for pytest, by their names.
const PLUGINS: [(&str, &str); 2] = [
    ("outcomes.py", include_str!("outcomes.py")),
    ("fail_points.py", include_str!("shaped/fail_points.py")),
];
const VERSION: &str = "4.20.0";

/// The modules that cover what goes through a proxy: commands, cursors, sessions, transactions, retries.
const MODULES: [&str; 17] = [
    "bulk",
    "change_stream",
    "collection",
    "crud_unified",
    "cursor",
    "database",
    "gridfs",
    "gridfs_bucket",
    "gridfs_spec",
    "retryable_reads",
    "retryable_reads_unified",
    "retryable_writes",
    "retryable_writes_unified",
    "session",
    "sessions_unified",
    "transactions",
    "transactions_unified",
];

/// The suite on this machine, ready to run.
#[derive(Debug)]
pub(super) struct Suite {
    pub(super) folder: PathBuf,
}

impl Suite {
    /// Fetches it, if this was not done before. Processes that need it at the same time wait for the first.
    pub(super) fn fetched() -> Result<Self> {
        let folder = paths::target().join(format!("pymongo-{VERSION}"));
        fs::create_dir_all(&folder)?;
        let lock = File::create(folder.join("lock"))?;
        lock.lock()?;
        let suite = Self { folder };
        let done = suite.folder.join("requirements.txt");
        if fs::read_to_string(&done).ok().as_deref() != Some(REQUIREMENTS) {
            println!("Fetching PyMongo {VERSION} and its tests");
            suite.fetch().context("PyMongo's suite could not be fetched")?;
            fs::write(done, REQUIREMENTS)?;
        }
        for (name, text) in PLUGINS {
            fs::write(suite.plugins().join(name), text)?;
        }
        Ok(suite)
    }

    /// The Python of the virtual environment.
    pub(super) fn python(&self) -> PathBuf {
        self.folder.join("venv/bin/python")
    }

    /// The folder of the tests, as unpacked. Without the sources beside them, which would hide what is
    /// installed.
    pub(super) fn root(&self) -> PathBuf {
        self.folder.join(format!("pymongo-{VERSION}"))
    }

    /// The folder of our own plugins for pytest.
    pub(super) fn plugins(&self) -> PathBuf {
        self.folder.join("plugins")
    }

    /// The test files to run, relative to the root and in this folder of it: `only` names some, else the
    /// chosen modules.
    pub(super) fn files(&self, only: &[String], folder: &str) -> Result<Vec<String>> {
        let names: Vec<_> = if only.is_empty() {
            MODULES.map(str::to_owned).to_vec()
        } else {
            only.iter().map(|name| module(name)).collect()
        };
        let files: Vec<_> = names.iter().map(|name| format!("{folder}/test_{name}.py")).collect();
        for file in &files {
            ensure!(self.root().join(file).is_file(), "the suite has no {file}");
        }
        Ok(files)
    }

    fn fetch(&self) -> Result<()> {
        for made in [self.root(), self.folder.join("venv"), self.plugins()] {
            if made.exists() {
                fs::remove_dir_all(made)?;
            }
        }
        fs::create_dir_all(self.plugins())?;
        let requirements = self.plugins().join("requirements.txt");
        fs::write(&requirements, REQUIREMENTS)?;
        let requirements = requirements.to_string_lossy();
        self.run(Path::new("python3"), &["-m", "venv", "venv"])?;
        let install = ["-m", "pip", "install", "--quiet", "--requirement", &requirements];
        self.run(&self.python(), &install)?;
        let exact = format!("pymongo=={VERSION}");
        let download = [
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--no-binary",
            "pymongo",
            &exact,
        ];
        self.run(&self.python(), &download)?;
        let archive = format!("pymongo-{VERSION}.tar.gz");
        let [tests, settings] = ["test", "pyproject.toml"].map(|part| format!("pymongo-{VERSION}/{part}"));
        self.run(Path::new("tar"), &["-xzf", &archive, &tests, &settings])
    }

    fn run(&self, program: &Path, arguments: &[&str]) -> Result<()> {
        let ran = Command::new(program)
            .args(arguments)
            .current_dir(&self.folder)
            .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
            .output();
        let output = ran.with_context(|| format!("{} cannot be run", program.display()))?;
        if !output.status.success() {
            bail!(
                "`{} {}` failed:\n{}",
                program.display(),
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(())
    }
}

/// `test_cursor`, `test_cursor.py` and `cursor` are one module.
fn module(name: &str) -> String {
    let name = name.strip_suffix(".py").unwrap_or(name);
    name.strip_prefix("test_").unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_may_be_named_as_its_file() {
        for name in ["cursor", "test_cursor", "test_cursor.py"] {
            assert_eq!(module(name), "cursor");
        }
    }

    #[test]
    fn the_version_is_the_required_one() {
        assert!(REQUIREMENTS.contains(&format!("=={VERSION}\n")));
    }
}
