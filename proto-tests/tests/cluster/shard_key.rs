//! mongoshape before the model: commands that shard a bucket collection, and that depend on its shard key.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::cluster::Kind;
use proto_tests::raw::Connection;
use proto_tests::sides::COLLECTION;

use super::sharded::{KEY, Sharded, commands, item};

#[test]
fn the_proxy_shards_a_collection_by_the_key_of_its_shape() -> Result<()> {
    for has_items in [false, true] {
        let mut sharded = Sharded::unsharded()?;
        if has_items {
            sharded.insert_items()?;
        }
        let by = |key: Document| doc! { "shardCollection": sharded.namespace(), "key": key, "$db": "admin" };
        let refused = [by(doc! { "n": 1 }), by(doc! { KEY: 1, "n": 1 })];
        let command = by(doc! { KEY: 1 });
        for command in refused {
            let reply = sharded.sides.shaped.command(&command)?;
            ensure!(reply.get_i32("code")? == 115, "{command}: {reply}");
        }
        for _ in 0..2 {
            sharded.sides.shaped.command_ok(&command)?;
        }
        if !has_items {
            sharded.insert_items()?;
        }
        let pages = sharded.pages()?;
        ensure!(!pages.contains(&0), "{pages:?}");
        for command in commands() {
            sharded.sides.alike(&command)?;
            sharded.sides.check()?;
        }
    }
    Ok(())
}

/// The model does not execute these commands, so it returns the error of a shard for those that are passed
/// on.
#[test]
fn commands_on_chunks_and_zones_are_passed_on() -> Result<()> {
    let mut sharded = Sharded::with_items()?;
    let namespace = sharded.namespace();
    let is_refused = |connection: &mut Connection, mut command: Document| -> Result<bool> {
        command.insert("$db", "admin");
        let reply = connection.command(&command)?;
        ensure!(reply.get_f64("ok")? == 0.0, "{command}: {reply}");
        Ok(reply.get_i32("code")? == 115)
    };
    for command in [
        doc! { "moveChunk": &namespace, "find": { KEY: 1 }, "to": "shard1" },
        doc! { "split": &namespace, "middle": { KEY: 5 } },
        doc! { "balancerCollectionStatus": &namespace },
        doc! { "updateZoneKeyRange": &namespace, "min": { KEY: 1 }, "max": { KEY: 5 }, "zone": "a" },
        doc! { "refineCollectionShardKey": &namespace, "key": { KEY: 1 } },
    ] {
        ensure!(!is_refused(&mut sharded.sides.shaped, command.clone())?, "{command}");
    }
    for command in [
        doc! { "refineCollectionShardKey": &namespace, "key": { KEY: 1, "n": 1 } },
        doc! { "reshardCollection": &namespace, "key": { "n": 1 } },
        doc! { "moveCollection": &namespace, "toShard": "shard1" },
    ] {
        ensure!(is_refused(&mut sharded.sides.shaped, command.clone())?, "{command}");
    }
    Ok(())
}

#[test]
fn a_hashed_shard_key_distributes_pages() -> Result<()> {
    let mut sharded = Sharded::open(Kind::Hashed)?;
    let items: Vec<Document> = (0..100).map(item).collect();
    sharded
        .sides
        .alike(&doc! { "insert": COLLECTION, "documents": items })?;
    let pages = sharded.pages()?;
    ensure!(!pages.contains(&0), "{pages:?}");
    for command in commands() {
        sharded.sides.alike(&command)?;
    }
    sharded.sides.check()
}

#[test]
fn a_unique_index_begins_with_the_shard_key() -> Result<()> {
    let mut sharded = Sharded::with_items()?;
    let unique = |key: Document| {
        let index = doc! { "name": "unique", "key": key, "unique": true };
        doc! { "createIndexes": COLLECTION, "indexes": [index] }
    };
    for key in [doc! { "email": 1 }, doc! { "email": 1, KEY: 1 }] {
        let mut command = unique(key);
        command.insert("$db", sharded.sides.shaped_database());
        let reply = sharded.sides.shaped.command(&command)?;
        ensure!(reply.get_i32("code")? == 67, "{command}: {reply}");
    }
    sharded.sides.alike(&unique(doc! { KEY: 1, "date": 1 }))?;
    // The fourth and the last one have the date of the first one; only the fourth one has its key.
    for (number, seconds) in [(200, 200), (201, 201), (217, 217), (268, 200), (269, 200)] {
        let date = bson::DateTime::from_millis(seconds * 1000);
        let document = doc! { "_id": number, KEY: number % 17, "date": date, "n": 1 };
        sharded
            .sides
            .alike(&doc! { "insert": COLLECTION, "documents": [document] })?;
        sharded.sides.check()?;
    }
    let date = bson::DateTime::from_millis(217_000);
    let update = doc! { "q": { "_id": 200 }, "u": { "$set": { "date": date } } };
    sharded
        .sides
        .alike(&doc! { "update": COLLECTION, "updates": [update] })?;
    sharded.sides.check()
}
