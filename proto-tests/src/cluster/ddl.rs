//! Commands that create, change and drop collections and indexes.

use anyhow::{Context as _, Result};
use bson::{Document, doc};

use super::refusal::Refusal;
use super::routing::{FIRST_SHARD, Routing, Sharded};
use super::shard_connections::ShardConnections;
use super::sharding;
use super::statements::{database, document, documents, is_ok, is_set, name, namespace};

/// `shardCollection`.
pub(super) fn shard_collection(connections: &mut ShardConnections, command: &Document) -> Result<Document> {
    let namespace = command.get_str("shardCollection").context("no namespace")?;
    sharding::shard_collection(connections, namespace, &document(command, "key"))?;
    Ok(doc! { "collectionsharded": namespace, "ok": 1.0 })
}

/// Runs a command that may change which collections are sharded.
pub(super) fn change_routing(
    connections: &mut ShardConnections,
    routing: &mut Routing,
    command: &Document,
) -> Result<Document> {
    match name(command) {
        "renameCollection" => {
            let named = ["renameCollection", "to"].map(|field| command.get_str(field).unwrap_or_default());
            if named.iter().any(|namespace| routing.collection(namespace).is_some()) {
                return Err(Refusal::not_modelled("renameCollection of sharded collections").into());
            }
            connections.send(FIRST_SHARD, command)
        }
        "dropDatabase" => {
            for shard in connections.all() {
                connections.send_ok(shard, command)?;
            }
            routing.remove_database(database(command));
            Ok(doc! { "dropped": database(command), "ok": 1.0 })
        }
        _ => drop_collection(connections, routing, command),
    }
}

fn drop_collection(connections: &mut ShardConnections, routing: &mut Routing, command: &Document) -> Result<Document> {
    let namespace = namespace(command).unwrap_or_default();
    if routing.collection(&namespace).is_none() {
        return connections.send(FIRST_SHARD, command);
    }
    for shard in connections.all() {
        connections.send_ok(shard, command)?;
    }
    routing.remove(&namespace);
    Ok(doc! { "ok": 1.0 })
}

/// Runs a command on these shards. The reply has that of each shard, as mongos returns it.
pub(super) fn broadcast(connections: &mut ShardConnections, shards: &[usize], command: &Document) -> Result<Document> {
    let state = connections.state();
    let mut raw = Document::new();
    let mut failed: Option<Document> = None;
    for shard in shards {
        let mut reply = connections.send(*shard, command)?;
        for name in ["$clusterTime", "operationTime"] {
            reply.remove(name);
        }
        if !is_ok(&reply) && failed.is_none() {
            failed = Some(reply.clone());
        }
        let host = state.shards.get(*shard).context("no such shard")?.host();
        raw.insert(host, reply);
    }
    let mut merged = doc! { "raw": raw, "ok": 1.0 };
    if let Some(failed) = failed {
        // The error with its details, such as the key of a duplicate.
        merged.extend(failed);
        merged.insert("ok", 0.0);
    }
    Ok(merged)
}

/// `createIndexes` on a sharded collection. Each shard can check only its own documents, so the fields of a
/// unique index begin with the shard key.
pub(super) fn create_indexes(
    connections: &mut ShardConnections,
    sharded: &Sharded,
    command: &Document,
) -> Result<Document> {
    for index in documents(command, "indexes") {
        let key = document(&index, "key");
        let is_of_id = key.keys().next().is_some_and(|name| name == "_id");
        let has_prefix =
            key.len() >= sharded.pattern.len() && key.keys().zip(sharded.pattern.keys()).all(|(a, b)| a == b);
        if is_set(&index, "unique") && !is_of_id && !has_prefix {
            let message = format!(
                "cannot create unique index over {key} with shard key pattern {}",
                sharded.pattern
            );
            return Err(Refusal::new(67, "CannotCreateIndex", message).into());
        }
    }
    let shards = connections.all();
    broadcast(connections, &shards, command)
}
