//! `distinct` with an index hint, which MongoDB has since version 7.1. The newer server is one of 6.0 behind a
//! stand-in that reports version 8.0.

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::newer_server::NewerServer;
use proto_tests::raw::Connection;
use proto_tests::{Proxy, ProxyOptions, database_name, mongod};

use crate::proxies::small_pages;

const COLLECTION: &str = "items";
/// mongod's codes for an unknown index, and for an unknown field.
const BAD_VALUE: i32 = 2;
const UNKNOWN_FIELD: i32 = 40415;

/// The reply to a `distinct` of two items with this hint.
fn distinct(uri: &str, hint: impl Into<Bson>) -> Result<Document> {
    let database = database_name();
    let config = small_pages().toml(&format!("{database}.{COLLECTION}"));
    let proxy = Proxy::start(&ProxyOptions::new(uri).config(&config))?;
    let mut application = Connection::open(proxy.address())?;
    let items = [doc! { "_id": 1, "k": 1, "n": 5 }, doc! { "_id": 2, "k": 2, "n": 6 }];
    let index = doc! { "key": { "n": 1 }, "name": "n_1" };
    for command in [
        doc! { "insert": COLLECTION, "documents": items.to_vec(), "$db": &database },
        doc! { "createIndexes": COLLECTION, "indexes": [index], "$db": &database },
    ] {
        application.command_ok(&command)?;
    }
    application.command(&doc! { "distinct": COLLECTION, "key": "n", "hint": hint.into(), "$db": &database })
}

#[test]
fn a_hint_is_known_from_its_version_on() -> Result<()> {
    let mongod = mongod::shared();
    let newer = NewerServer::before(mongod.address())?.uri();
    for hint in [Bson::from("n_1"), doc! { "n": 1 }.into()] {
        let reply = distinct(&newer, hint.clone())?;
        ensure!(reply.get_array("values")? == &[5.into(), 6.into()], "{hint}: {reply}");
        let reply = distinct(&mongod.uri(), hint.clone())?;
        ensure!(reply.get_i32("code")? == UNKNOWN_FIELD, "{hint}: {reply}");
    }
    let reply = distinct(&newer, "none")?;
    ensure!(reply.get_i32("code")? == BAD_VALUE, "{reply}");
    Ok(())
}
