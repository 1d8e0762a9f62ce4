//! One collection on all shards, and slots that move.

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::cluster::SLOTS;
use proto_tests::raw::Connection;

use crate::beside::{Beside, COLLECTION, item};

/// Moves all slots to a shard.
pub(crate) fn move_all(beside: &Beside, shard: usize) -> Result<()> {
    let namespace = beside.namespace();
    (0..SLOTS).try_for_each(|slot| beside.cluster.move_slot(&namespace, slot, shard))
}

#[test]
fn moved_slots_keep_every_document() -> Result<()> {
    let mut beside = Beside::with_items(150)?;
    let before = beside.stored()?;
    ensure!(before.iter().all(|shard| !shard.is_empty()), "{before:?}");
    let version = beside.cluster.version();
    move_all(&beside, 1)?;
    ensure!(beside.cluster.version() > version, "the version has not changed");
    let stored: Vec<usize> = beside.stored()?.iter().map(Vec::len).collect();
    ensure!(stored == [0, 150], "{stored:?}");
    beside.check()?;
    let namespace = beside.namespace();
    let slot = beside.cluster.slot_of(&namespace, &item(3))?;
    beside.cluster.move_slot(&namespace, slot, 0)?;
    ensure!(beside.cluster.owner_of(&namespace, slot)? == 0, "slot {slot}");
    for document in beside.stored()?.first().into_iter().flatten() {
        ensure!(beside.cluster.slot_of(&namespace, document)? == slot, "{document}");
    }
    beside.check()?;
    // The router has read all documents when it opens a cursor, so a move does not change the result.
    let find = doc! { "find": COLLECTION, "sort": { "_id": 1 }, "batchSize": 2 };
    let reply = beside.run(&find)?;
    move_all(&beside, 0)?;
    let id = reply.get_document("cursor")?.get_i64("id")?;
    let more = beside.run(&doc! { "getMore": id, "collection": COLLECTION })?;
    let rest = more.get_document("cursor")?.get_array("nextBatch")?.len();
    ensure!(rest == 148, "{rest}");
    Ok(())
}

#[test]
fn a_collection_has_one_uuid_on_all_shards() -> Result<()> {
    let mut beside = Beside::open()?;
    let list = beside.here(&doc! { "listCollections": 1, "filter": { "name": COLLECTION } });
    let mut uuids = Vec::new();
    for shard in beside.cluster.shards() {
        let listed = Connection::open(shard.address())?.all(&list)?;
        let uuid = listed.first().map(|found| found.get_document("info").cloned());
        uuids.push(uuid.transpose()?.and_then(|info| info.get("uuid").cloned()));
    }
    let namespace = beside.namespace();
    let known = beside
        .router
        .find("config", "collections", doc! { "_id": &namespace })?;
    uuids.push(known.first().and_then(|known| known.get("uuid").cloned()));
    ensure!(uuids.iter().all(Option::is_some), "{uuids:?}");
    ensure!(uuids.windows(2).all(|pair| pair[0] == pair[1]), "{uuids:?}");
    let key = known.first().and_then(|known| known.get("key").cloned());
    ensure!(key == Some(Bson::Document(doc! { "k": 1 })), "{known:?}");
    Ok(())
}

#[test]
fn a_collection_with_documents_and_indexes_is_sharded() -> Result<()> {
    let mut beside = Beside::open()?;
    let name = "later";
    let items: Vec<Document> = (0..50).map(item).collect();
    beside.alike(&doc! { "insert": name, "documents": items })?;
    let shard = doc! {
        "shardCollection": format!("{}.{name}", beside.database), "key": { "k": 1 }, "$db": "admin",
    };
    let refused = beside.router.command(&shard)?;
    ensure!(refused.get_i32("code")? == 72, "{refused}");
    let index = doc! { "key": { "k": 1, "n": 1 }, "name": "k_n" };
    beside.alike(&doc! { "createIndexes": name, "indexes": [index] })?;
    beside.router.command_ok(&shard)?;
    beside.alike_documents(&doc! { "find": name, "sort": { "_id": 1 } })?;
    for mongod in beside.cluster.shards() {
        let mut connection = Connection::open(mongod.address())?;
        let indexes = connection.all(&beside.here(&doc! { "listIndexes": name }))?;
        ensure!(indexes.len() == 2, "{indexes:?}");
    }
    beside.run(&doc! { "drop": name })?;
    let found = beside.run(&doc! { "count": name })?;
    ensure!(found.get_i32("n")? == 0, "{found}");
    Ok(())
}
