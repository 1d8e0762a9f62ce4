//! The programs of the script. They are installed or built on first use.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use proto_tests::install::{self, Node};

/// The driver that runs the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Driver {
    PyMongo,
    PyMongoAsync,
    Node,
    Mongosh,
    Go,
    Java,
    Rust,
}

impl Driver {
    pub(super) const ALL: [Self; 7] = [
        Self::PyMongo,
        Self::PyMongoAsync,
        Self::Node,
        Self::Mongosh,
        Self::Go,
        Self::Java,
        Self::Rust,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::PyMongo => "pymongo",
            Self::PyMongoAsync => "async",
            Self::Node => "node",
            Self::Mongosh => "mongosh",
            Self::Go => "go",
            Self::Java => "java",
            Self::Rust => "rust",
        }
    }

    pub(super) fn install(self) -> Result<Program> {
        Ok(match self {
            Self::PyMongo => Program::Python(install::python()?, "pymongo_script.py"),
            Self::PyMongoAsync => Program::Python(install::python()?, "async_script.py"),
            Self::Node => Program::Node(install::node()?),
            Self::Mongosh => Program::Mongosh(install::node()?),
            Self::Go => Program::Binary(install::go()?),
            Self::Java => Program::Java(install::java()?),
            Self::Rust => Program::Binary(install::rust()?),
        })
    }
}

/// A program that is ready to run.
#[derive(Debug, Clone)]
pub(super) enum Program {
    /// The folder of its modules, and its name.
    Python(PathBuf, &'static str),
    Node(Node),
    Mongosh(Node),
    Binary(PathBuf),
    /// Its class path.
    Java(OsString),
}

impl Program {
    pub(super) fn command(&self, uri: &str, database: &str) -> Command {
        match self {
            Self::Python(modules, name) => {
                let program = install::PROGRAMS.join("python").join(name);
                let mut command = arguments(Path::new("python3"), &[program.into()], uri, database);
                command.env("PYTHONPATH", modules).env("PYTHONDONTWRITEBYTECODE", "1");
                command
            }
            Self::Node(node) => {
                let mut command = node.program("script.mjs");
                command.args([uri, database]);
                command
            }
            Self::Mongosh(node) => {
                let mut command = node.mongosh(&format!("{uri}&appName={database}"));
                command
                    .arg("--eval")
                    .arg(format!("const databaseName = '{database}'"))
                    .arg("--file")
                    .arg(node.file("mongosh_script.js"));
                command
            }
            Self::Binary(program) => arguments(program, &[], uri, database),
            Self::Java(classes) => {
                let options = ["-cp".into(), classes.clone(), "script.Main".into()];
                arguments(Path::new("java"), &options, uri, database)
            }
        }
    }
}

fn arguments(program: &Path, before: &[OsString], uri: &str, database: &str) -> Command {
    let mut command = Command::new(program);
    command.args(before).args([uri, database]);
    command
}
