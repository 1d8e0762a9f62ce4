//! Ordinary applications, unchanged but for the connection string: a shop on each of Mongoose, Beanie, Spring
//! Data and Go's driver, with unique and TTL indexes, versions and transactions.
//!
//! `cargo xtask frameworks` runs all of them. Without it, those in Go and Java are left out.

use std::process::Command;

use anyhow::Result;
use proto_tests::mongod::Options;
use proto_tests::{Shape, install};

use crate::application::Application;

/// Runs the shop that `command` makes for a connection string.
fn compare(command: impl Fn(&str) -> Command) -> Result<()> {
    let shape = Shape {
        time: Some("placedAt".to_owned()),
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
    compare(|uri| {
        let mut command = node.program("mongoose_orders.mjs");
        command.arg(uri);
        command
    })
}
