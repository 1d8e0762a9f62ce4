//! The applications of `examples/`, each run directly on mongod and through the proxy. Both get the requests of the
//! example's `requests.json` in turn, and must answer each of them equally. mongod must hold pages, or extras.
//!
//! Ids that a server generates are replaced by their order of appearance: see [`requests::Ids`].
//!
//! Those on Express and `FastAPI` run with all tests. `cargo xtask examples` runs all four. Without caches, Go builds
//! for half a minute and Maven downloads for a minute.

mod requests;
mod service;

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use bson::doc;
use proto_tests::{
    ItemIds, Outlier, Proxy, ProxyOptions, Shape, database_name, install, invariants, mongod, paths, raw,
};

use crate::application::check_pages;
use requests::Request;
use service::Service;

/// What mongod is to hold of the collection.
enum Stored {
    Pages(Shape),
    Outliers(Outlier),
}

struct Example {
    name: &'static str,
    /// As its `mongoshape.toml` says.
    database: &'static str,
    collection: &'static str,
    stored: Stored,
}

impl Example {
    /// Runs the application that `command` starts, and compares.
    fn compare(&self, command: impl Fn() -> Result<Command>) -> Result<()> {
        let server = mongod::shared_replica_set();
        let database = database_name();
        let configuration = self.shapes()?.replace(
            &format!("\"{}.{}\"", self.database, self.collection),
            &format!("\"{database}.{}\"", self.collection),
        );
        let proxy = Proxy::start(&ProxyOptions::new(&server.uri()).config(&configuration))?;
        let of_database = |uri: &str, database: &str| uri.replacen("/?", &format!("/{database}?"), 1);
        // Both start at the same time.
        let mut plain = Service::start(command()?, &of_database(&server.uri(), &database_name()))?;
        let mut shaped = Service::start(command()?, &of_database(&proxy.uri(), &database))?;
        plain.wait_until_it_listens()?;
        shaped.wait_until_it_listens()?;
        for request in Request::all(&fs::read_to_string(self.file("requests.json"))?)? {
            let expected = plain.answer(&request)?;
            ensure!(expected.status == request.status, "{request:?}: {expected:?}");
            let answer = shaped.answer(&request)?;
            ensure!(
                answer == expected,
                "{request:?}\n  plain:  {expected:?}\n  shaped: {answer:?}"
            );
        }
        self.check_stored(&mut raw::Connection::open(server.address())?, &database)
    }

    fn check_stored(&self, direct: &mut raw::Connection, database: &str) -> Result<()> {
        match &self.stored {
            Stored::Pages(shape) => check_pages(direct, database, self.collection, shape),
            Stored::Outliers(shape) => {
                invariants::outlier::check(direct, database, self.collection, shape)?;
                let count = doc! { "count": self.collection, "query": { &shape.flag: true }, "$db": database };
                ensure!(direct.command_ok(&count)?.get_i32("n")? > 0, "no outlier is left");
                Ok(())
            }
        }
    }

    /// The shapes of its configuration, which its README repeats.
    fn shapes(&self) -> Result<String> {
        let file = fs::read_to_string(self.file("mongoshape.toml"))?;
        let shapes = file.get(file.find("[[").context("no shape")?..).context("no shape")?;
        let readme = fs::read_to_string(self.file("README.md"))?;
        ensure!(readme.contains(shapes), "the README does not have:\n{shapes}");
        Ok(shapes.to_owned())
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        paths::workspace().join("examples").join(self.name).join(name)
    }
}

/// Of items that are changed.
fn shape(key: &[&str], time: &str, max_items: usize) -> Shape {
    Shape {
        time: Some(time.to_owned()),
        max_items,
        items_change: true,
        ..Shape::new(key)
    }
}

#[test]
fn express() -> Result<()> {
    let shop = Example {
        name: "express-mongoose-shop",
        database: "shop",
        collection: "orders",
        stored: Stored::Pages(shape(&["customer"], "placedAt", 10)),
    };
    shop.compare(install::node_example)
}

#[test]
fn fastapi() -> Result<()> {
    let renamed = [("temperature", "t"), ("humidity", "h")];
    let shape = Shape {
        rename: renamed
            .map(|(item, stored)| (item.to_owned(), stored.to_owned()))
            .into(),
        ..shape(&["site", "sensor"], "at", 50)
    };
    let plant = Example {
        name: "fastapi-beanie-service",
        database: "plant",
        collection: "measurements",
        stored: Stored::Pages(shape),
    };
    plant.compare(install::python_example)
}

#[test]
#[ignore = "wants Go; `cargo xtask examples` runs it"]
fn go() -> Result<()> {
    let blog = Example {
        name: "go-service",
        database: "blog",
        collection: "posts",
        stored: Stored::Outliers(Outlier::new("likes", (20, 1000))),
    };
    blog.compare(install::go_example)
}

#[test]
#[ignore = "wants a JDK and Maven; `cargo xtask examples` runs it"]
fn spring() -> Result<()> {
    let shape = Shape {
        item_ids: ItemIds::Stored,
        ..shape(&["room"], "sentAt", 20)
    };
    let chat = Example {
        name: "spring-boot-service",
        database: "chat",
        collection: "messages",
        stored: Stored::Pages(shape),
    };
    chat.compare(install::spring_example)
}
