//! Unchanged applications on object mappers, Mongoose and `MongoEngine`: their output on a shaped collection
//! equals that on a plain one, from creating indexes to deleting documents. The stored pages satisfy the
//! invariants.

use std::fmt::Write as _;
use std::process::Command;

use anyhow::{Result, ensure};
use bson::doc;
use proto_tests::{Mongod, Proxy, ProxyOptions, Shape, database_name, install, invariants, mongod, raw};

use crate::printed;

const COLLECTION: &str = "trades";
/// Steps that each program has at least: one that ended early would compare nothing.
const STEPS: usize = 90;

fn shape() -> Shape {
    Shape {
        time: Some("date".to_owned()),
        rename: vec![("quantity".to_owned(), "qty".to_owned())],
        items_change: true,
        ..Shape::new(&["customerId"])
    }
}

/// Runs the program that `command` makes for a connection string, first on mongod itself, then through the
/// proxy in a database of the same name, as errors name it.
fn compare(mongod: &Mongod, command: impl Fn(&str) -> Command) -> Result<()> {
    let database = database_name();
    let uri = |uri: &str| uri.replacen("/?", &format!("/{database}?"), 1);
    let plain = printed(command(&uri(&mongod.uri())))?;
    ensure!(plain.lines().count() >= STEPS, "too few steps:\n{plain}");
    let mut direct = raw::Connection::open(mongod.address())?;
    direct.command_ok(&doc! { "dropDatabase": 1, "$db": &database })?;

    let shapes = shape().toml(&format!("{database}.{COLLECTION}"));
    let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(&shapes))?;
    let through_proxy = printed(command(&uri(&proxy.uri())))?;
    invariants::check(&mut direct, &database, COLLECTION, &shape())?;
    let differing = differing(&plain, &through_proxy)?;
    ensure!(differing.is_empty(), "steps differ:\n{differing}");
    direct.command_ok(&doc! { "dropDatabase": 1, "$db": &database })?;
    Ok(())
}

/// The lines that are not the same, each below what it should be.
fn differing(plain: &str, shaped: &str) -> Result<String> {
    let lines = plain.lines().count();
    ensure!(lines == shaped.lines().count(), "not {lines} steps:\n{shaped}");
    let mut differing = String::new();
    for (plain, shaped) in plain
        .lines()
        .zip(shaped.lines())
        .filter(|(plain, shaped)| plain != shaped)
    {
        writeln!(differing, "  plain:  {plain}\n  shaped: {shaped}")?;
    }
    Ok(differing)
}

fn mongoose(mongod: &Mongod) -> Result<()> {
    let node = install::node()?;
    compare(mongod, |uri| {
        let mut command = node.program("mongoose_model.mjs");
        command.arg(uri);
        command
    })
}

fn mongoengine(mongod: &Mongod) -> Result<()> {
    let modules = install::python()?;
    compare(mongod, |uri| {
        let mut command = Command::new("python3");
        command
            .env("PYTHONPATH", &modules)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .arg(install::PROGRAMS.join("python/mongoengine_model.py"))
            .arg(uri);
        command
    })
}

#[test]
fn mongoose_on_a_standalone() -> Result<()> {
    mongoose(mongod::shared())
}

/// Where drivers number their writes, and there are transactions.
#[test]
fn mongoose_on_a_replica_set() -> Result<()> {
    mongoose(&Mongod::replica_set(1)?)
}

#[test]
fn mongoengine_on_a_standalone() -> Result<()> {
    mongoengine(mongod::shared())
}

#[test]
fn mongoengine_on_a_replica_set() -> Result<()> {
    mongoengine(&Mongod::replica_set(1)?)
}
