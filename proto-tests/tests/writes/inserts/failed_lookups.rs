//! An insert whose lookups fail because the collection is dropped meanwhile. It is sent without a retry number.

use anyhow::{Result, ensure};
use bson::doc;
use proto_tests::mongod::Options;
use proto_tests::raw::Connection;
use proto_tests::{ProxyOptions, Shaped};

const COLLECTION: &str = "items";
const QUERY_PLAN_KILLED: i32 = 175;

#[test]
fn an_insert_reads_again_after_a_killed_lookup() -> Result<()> {
    let server = Options::default().parameter("enableTestCommands=1").standalone()?;
    let shaped = Shaped::with("", &ProxyOptions::new(&server.uri()))?;
    let (mut application, mut direct) = (shaped.application()?, Connection::open(server.address())?);
    application.command_ok(&shaped.insert(&[doc! { "_id": 0, "k": 0 }]))?;
    let data = doc! {
        "failCommands": ["find", "aggregate"], "errorCode": QUERY_PLAN_KILLED,
        "namespace": format!("{}.{COLLECTION}", shaped.database),
    };
    // The head page of one key is read by one query, those of several keys by another.
    for keys in [1..2, 2..5] {
        let fail = doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": &data, "$db": "admin" };
        direct.command_ok(&fail)?;
        let items: Vec<_> = keys.map(|key| doc! { "_id": key, "k": key }).collect();
        let reply = application.command_ok(&shaped.insert(&items))?;
        ensure!(reply.get_i32("n")? == i32::try_from(items.len())?, "{reply}");
        ensure!(!reply.contains_key("writeErrors"), "{reply}");
        let off = doc! { "configureFailPoint": "failCommand", "mode": "off", "$db": "admin" };
        let reply = direct.command_ok(&off)?;
        ensure!(reply.get_i32("count")? >= 1, "no lookup failed: {reply}");
    }
    let count = application.command_ok(&doc! { "count": COLLECTION, "$db": &shaped.database })?;
    ensure!(count.get_i32("n")? == 5, "{count}");
    Ok(())
}
