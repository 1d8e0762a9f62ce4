//! Unchanged programs on the drivers of all languages: what each sees through the proxy is what it sees
//! without it.
//!
//! Here, and in [`models`] on object mappers, on a shaped collection; in [`matrix`] on plain ones and in
//! every way that the proxy presents itself.

mod matrix;
mod models;
mod rust_driver;

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
    let naive = printed(command(&database_uri(&mongod.uri())))?;
    let shaped = printed(command(&database_uri(&proxy.uri())))?;
    assert_eq!(naive.lines().count(), LINES, "{naive}");
    for (naive, shaped) in naive.lines().zip(shaped.lines()) {
        assert_eq!(naive, shaped);
    }
    assert_eq!(shaped.lines().count(), LINES, "{shaped}");
    Ok(())
}

fn printed(mut program: Command) -> Result<String> {
    let output = program.output().with_context(|| format!("{program:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{program:?} ended with {}:\n{said}",
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
    let naive = rust_driver::trades(&client(&database_uri(&mongod.uri())).await?).await?;
    let shaped = rust_driver::trades(&client(&database_uri(&proxy.uri())).await?).await?;
    assert_eq!(naive.len(), LINES);
    assert_eq!(naive, shaped);
    Ok(())
}
