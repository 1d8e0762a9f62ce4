//! Unchanged programs on the drivers of all languages: their output through the proxy equals their output
//! without it.
//!
//! On shaped collections here, and with object mappers in [`models`] and [`shops`]; on plain collections and
//! with every presentation of the proxy in [`matrix`]. On two collections at once in [`bulk_write`].
//! The applications of `examples/` are in [`examples`].

mod application;
mod bulk_write;
mod examples;
mod matrix;
mod models;
mod rust_driver;
mod shops;

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use proto_tests::{Mongod, Proxy, ProxyOptions, client, database_name, install, mongod};

const SHAPES: &str = r#"
[[bucket]]
namespace = "*.trades"
key = "customerId"
time = "date"
rename = { quantity = "qty" }
"#;

/// What every program prints: 5 + 1 inserts, five answers for each of three customers, five more.
const LINES: usize = 26;

fn proxy(mongod: &Mongod) -> Result<Proxy> {
    Proxy::start(&ProxyOptions::new(&mongod.uri()).config(SHAPES))
}

/// A server's connection string with a database of its own.
fn database_uri(uri: &str) -> String {
    uri.replacen("/?", &format!("/{}?", database_name()), 1)
}

/// Runs the program that `command` makes for a connection string on both, and compares line by line.
fn compare(command: impl Fn(&str) -> Command) -> Result<()> {
    let mongod = mongod::shared();
    let proxy = proxy(mongod)?;
    let plain = printed(command(&database_uri(&mongod.uri())))?;
    let shaped = printed(command(&database_uri(&proxy.uri())))?;
    assert_eq!(plain.lines().count(), LINES, "{plain}");
    for (plain, shaped) in plain.lines().zip(shaped.lines()) {
        assert_eq!(plain, shaped);
    }
    assert_eq!(shaped.lines().count(), LINES, "{shaped}");
    Ok(())
}

fn printed(mut program: Command) -> Result<String> {
    let output = program.output().with_context(|| format!("{program:?}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{program:?} ended with {}:\n{stderr}",
        output.status
    );
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn pymongo() -> Result<()> {
    let modules = install::python()?;
    compare(|uri| {
        let mut command = Command::new("python3");
        command
            .env("PYTHONPATH", &modules)
            .arg(install::PROGRAMS.join("pymongo_trades.py"))
            .arg(uri);
        command
    })
}

#[test]
fn node() -> Result<()> {
    let node = install::node()?;
    compare(|uri| {
        let mut command = node.program("node_trades.mjs");
        command.arg(uri);
        command
    })
}

#[test]
fn mongosh() -> Result<()> {
    let node = install::node()?;
    compare(|uri| {
        let mut command = node.mongosh(uri);
        command.arg("--file").arg(node.file("mongosh_trades.js"));
        command
    })
}

#[tokio::test]
async fn rust() -> Result<()> {
    let mongod = mongod::shared();
    let proxy = proxy(mongod)?;
    let plain = rust_driver::trades(&client(&database_uri(&mongod.uri())).await?).await?;
    let shaped = rust_driver::trades(&client(&database_uri(&proxy.uri())).await?).await?;
    assert_eq!(plain.len(), LINES);
    assert_eq!(plain, shaped);
    Ok(())
}
