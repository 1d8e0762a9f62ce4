//! Unchanged applications on object mappers, Mongoose and `MongoEngine`: their output on a shaped collection
//! equals that on a plain one, from creating indexes to deleting documents. The stored pages satisfy the
//! invariants.

use std::process::Command;

use anyhow::Result;
use proto_tests::{Mongod, Shape, install, mongod};

use crate::application::Application;

fn compare(mongod: &Mongod, command: impl Fn(&str) -> Command) -> Result<()> {
    let shape = Shape {
        time: Some("date".to_owned()),
        rename: vec![("quantity".to_owned(), "qty".to_owned())],
        items_change: true,
        ..Shape::new(&["customerId"])
    };
    let trades = Application {
        collection: "trades",
        shape,
        steps: 90,
    };
    trades.compare(mongod, command)
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
        install::python_program(&modules, "mongoengine_model.py", uri)
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
