//! Programs that write to two collections at once by `bulkWrite` of MongoDB 8.0, on the newest drivers. One collection
//! is shaped, and the other is plain. The server is one of 6.0 behind a stand-in that claims to have the command.
//!
//! `cargo xtask drivers` also runs the programs in Go and Java.

use std::process::Command;

use anyhow::{Result, ensure};
use proto_tests::newer_server::NewerServer;
use proto_tests::{Proxy, ProxyOptions, install, mongod};

use crate::{SHAPES, database_uri, printed};

/// The collections, as a program names them at the beginning of a line.
const SHAPED: &str = "trades ";
const PLAIN: &str = "plain ";
/// Three commands, and the results, documents and counts of each.
const STEPS: usize = 9;

fn compare(command: impl Fn(&str) -> Command) -> Result<()> {
    let server = NewerServer::before(mongod::shared_replica_set().address())?;
    let proxy = Proxy::start(&ProxyOptions::new(&server.uri()).config(SHAPES))?;
    let printed = printed(command(&database_uri(&proxy.uri())))?;
    let lines = |collection| -> Vec<&str> {
        let of_collection = printed.lines().filter_map(|line| line.strip_prefix(collection));
        of_collection.collect()
    };
    let (shaped, plain) = (lines(SHAPED), lines(PLAIN));
    ensure!(plain.len() >= STEPS, "too few steps:\n{printed}");
    ensure!(shaped == plain, "steps differ:\n{printed}");
    Ok(())
}

#[test]
fn pymongo() -> Result<()> {
    let modules = install::python()?;
    compare(|uri| install::python_program(&modules, "bulk_write.py", uri))
}

#[test]
fn node() -> Result<()> {
    let node = install::node()?;
    compare(|uri| {
        let mut command = node.program("bulk_write.mjs");
        command.arg(uri);
        command
    })
}

#[test]
#[ignore = "wants Go; `cargo xtask drivers` runs it"]
fn go() -> Result<()> {
    let program = install::go_bulk_write()?;
    compare(|uri| {
        let mut command = Command::new(&program);
        command.arg(uri);
        command
    })
}

#[test]
#[ignore = "wants a JDK and Maven; `cargo xtask drivers` runs it"]
fn java() -> Result<()> {
    let classes = install::java()?;
    compare(|uri| {
        let mut command = Command::new("java");
        command.arg("-cp").arg(&classes).arg("script.BulkWrites").arg(uri);
        command
    })
}
