//! The router looks like a mongos.

use anyhow::{Result, ensure};
use bson::doc;
use proto_tests::frame;
use proto_tests::raw::Connection;

use crate::beside::{Beside, COLLECTION};

#[test]
fn handshakes_are_those_of_a_mongos() -> Result<()> {
    let mut beside = Beside::open()?;
    let hello = beside.run(&doc! { "hello": 1 })?;
    beside
        .router
        .send(&frame::query(1, "admin", &doc! { "isMaster": 1 })?)?;
    let old = frame::reply_document(&beside.router.receive()?)?;
    for reply in [hello, old] {
        ensure!(reply.get_str("msg")? == "isdbgrid", "{reply}");
        ensure!(reply.get_i32("maxWireVersion")? == 17, "{reply}");
        ensure!(!reply.contains_key("setName"), "{reply}");
    }
    Ok(())
}

#[test]
fn indexes_are_created_on_all_shards() -> Result<()> {
    let mut beside = Beside::open()?;
    let index = doc! { "key": { "n": 1 }, "name": "n" };
    let reply = beside.run(&doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    let raw = reply.get_document("raw")?;
    ensure!(raw.len() == beside.cluster.shards().len(), "{reply}");
    let shards = beside.router.command_ok(&doc! { "listShards": 1, "$db": "admin" })?;
    for shard in shards.get_array("shards")? {
        let host = shard.as_document().and_then(|shard| shard.get_str("host").ok());
        ensure!(host.is_some_and(|host| raw.contains_key(host)), "{reply}");
    }
    for shard in beside.cluster.shards() {
        let list = beside.here(&doc! { "listIndexes": COLLECTION });
        let indexes = Connection::open(shard.address())?.all(&list)?;
        ensure!(
            indexes.iter().any(|index| index.get_str("name").ok() == Some("n")),
            "{indexes:?}"
        );
    }
    Ok(())
}
