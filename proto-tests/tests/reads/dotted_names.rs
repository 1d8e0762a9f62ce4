//! `distinct` of a path that is also a field's own name. Whether the path names that field depends on the version
//! of the server.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::newer_server::NewerServer;
use proto_tests::raw::Connection;
use proto_tests::{Proxy, ProxyOptions, database_name, mongod};

use crate::proxies::small_pages;

const PLAIN: &str = "plain";
/// Collections with a shape: of pages and of outliers.
const SHAPED: [&str; 2] = ["pages", "outliers"];
/// mongod's code for a command that is not supported.
const COMMAND_NOT_SUPPORTED: i32 = 115;

struct Fixture {
    application: Connection,
    database: String,
    /// Stopped when the fixture is dropped.
    _proxy: Proxy,
}

impl Fixture {
    fn start(uri: &str, documents: &[Document]) -> Result<Self> {
        let database = database_name();
        let outlier = format!("[[outlier]]\nnamespace = \"{database}.outliers\"\narray = \"list\"\nthreshold = 3\n");
        let proxy = Proxy::start(
            &ProxyOptions::new(uri)
                .config(&small_pages().toml(&format!("{database}.pages")))
                .config(&outlier),
        )?;
        let mut fixture = Self {
            application: Connection::open(proxy.address())?,
            database,
            _proxy: proxy,
        };
        for collection in SHAPED.iter().chain([&PLAIN]) {
            let insert = doc! { "insert": *collection, "documents": documents, "$db": &fixture.database };
            fixture.application.command_ok(&insert)?;
        }
        Ok(fixture)
    }

    /// The reply to a `distinct` that the proxy executes by a pipeline.
    fn distinct(&mut self, collection: &str, key: &str) -> Result<Document> {
        let list = doc! { "list": { "$ne": 7 } };
        let command = doc! { "distinct": collection, "key": key, "query": list, "$db": &self.database };
        self.application.command(&command)
    }
}

/// Documents with a field whose own name is a path, and with that path.
fn documents() -> [Document; 3] {
    let list: Vec<i32> = (10..15).collect();
    [
        doc! { "_id": 1, "k": 1, "list": &list, "a.b": 1, "c": { "d.e": [2, 3] } },
        doc! { "_id": 2, "k": 1, "list": &list, "a": { "b": 4 }, "c": [{ "d": { "e": 5 } }] },
        doc! { "_id": 3, "k": 1, "list": &list, "a": { "b": 6 }, "a.b": 7, "c": { "d.e": 8, "d": { "e": 9 } } },
    ]
}

#[test]
fn values_are_those_of_a_plain_collection() -> Result<()> {
    let mut fixture = Fixture::start(&mongod::shared().uri(), &documents())?;
    for key in ["a.b", "c.d.e", "c.0.d.e", "list.0"] {
        let expected = fixture.distinct(PLAIN, key)?;
        for collection in SHAPED {
            let found = fixture.distinct(collection, key)?;
            ensure!(
                found.get("values") == expected.get("values"),
                "{collection} {key}: {found}, expected {expected}"
            );
        }
    }
    Ok(())
}

/// The stand-in reports version 8.0. Whether the path names the field there is not known.
#[test]
fn such_a_field_is_refused_if_the_behaviour_of_the_server_is_unknown() -> Result<()> {
    let server = NewerServer::before(mongod::shared().address())?;
    let mut fixture = Fixture::start(&server.uri(), &documents())?;
    for collection in SHAPED {
        for key in ["a.b", "c.d.e"] {
            let reply = fixture.distinct(collection, key)?;
            ensure!(
                reply.get_i32("code")? == COMMAND_NOT_SUPPORTED,
                "{collection} {key}: {reply}"
            );
            ensure!(reply.get_str("errmsg")?.contains("own name"), "{reply}");
        }
    }
    let mut fixture = Fixture::start(&server.uri(), &documents()[1..2])?;
    for collection in SHAPED {
        let reply = fixture.distinct(collection, "a.b")?;
        ensure!(reply.get_array("values")? == &vec![4.into()], "{collection}: {reply}");
    }
    Ok(())
}
