//! Ordinary applications, unchanged but for the connection string: a shop on each of Mongoose, Beanie, Spring
//! Data and Go's driver, with unique and TTL indexes, versions and transactions.
//!
//! `cargo xtask frameworks` runs all of them. Without it, those in Go and Java are left out.

use std::process::Command;

use anyhow::Result;
use proto_tests::mongod::Options;
use proto_tests::{Shape, install};

use crate::application::Application;

/// Runs the shop that `command` makes for a connection string; `time` is when an order was placed.
fn compare(time: &str, command: impl Fn(&str) -> Command) -> Result<()> {
    let shape = Shape {
        time: Some(time.to_owned()),
        items_change: true,
        ..Shape::new(&["customer"])
    };
    let orders = Application {
        collection: "orders",
        shape,
        steps: 60,
    };
    let mongod = Options::default().parameter("ttlMonitorSleepSecs=1").replica_set(1)?;
    orders.compare(&mongod, command)
}

#[test]
fn mongoose() -> Result<()> {
    let node = install::node()?;
    compare("placedAt", |uri| {
        let mut command = node.program("mongoose_orders.mjs");
        command.arg(uri);
        command
    })
}

#[test]
fn beanie() -> Result<()> {
    let modules = install::python()?;
    compare("placed_at", |uri| {
        install::python_program(&modules, "beanie_orders.py", uri)
    })
}

#[test]
#[ignore = "wants Go; `cargo xtask frameworks` runs it"]
fn go() -> Result<()> {
    let program = install::go_shop()?;
    compare("placedAt", |uri| {
        let mut command = Command::new(&program);
        command.arg(uri);
        command
    })
}

#[test]
#[ignore = "wants a JDK and Maven; `cargo xtask frameworks` runs it"]
fn spring() -> Result<()> {
    let classes = install::spring()?;
    compare("placedAt", |uri| {
        let mut command = Command::new("java");
        command
            .arg("-cp")
            .arg(&classes)
            .arg("shop.Shop")
            .arg(format!("--spring.mongodb.uri={uri}"));
        command
    })
}
