//! `collStats`, `dataSize`, `dbStats` and `validate`, in the form of mongos.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use bson::{Bson, Document, doc};

use super::routing::{FIRST_SHARD, Sharded};
use super::shard_connections::ShardConnections;
use super::statements::{count, database, document, is_set, namespace, number, without};

/// Sizes, which the option `scale` divides.
const SIZES: [&str; 4] = ["size", "storageSize", "totalIndexSize", "totalSize"];
/// Fields that are those of the first shard.
const OF_FIRST_SHARD: [&str; 4] = ["capped", "max", "indexDetails", "wiredTiger"];

/// The shards that have a collection. `None`: it is not sharded.
fn owners(sharded: Option<&Sharded>) -> Vec<usize> {
    sharded.map_or_else(|| vec![FIRST_SHARD], Sharded::all_owners)
}

fn name_of(connections: &ShardConnections, shard: usize) -> Result<String> {
    let state = connections.state();
    Ok(state.shards.get(shard).context("no such shard")?.name.clone())
}

/// `collStats`. mongos divides by the scale after it has added.
pub(super) fn coll_stats(
    connections: &mut ShardConnections,
    sharded: Option<&Sharded>,
    command: &Document,
) -> Result<Document> {
    let scale = number(command, "scale").max(1);
    let mut merged = doc! { "sharded": sharded.is_some() };
    if sharded.is_none() {
        merged.insert("primary", name_of(connections, FIRST_SHARD)?);
    }
    let mut sums: BTreeMap<&str, i64> = ["count"].into_iter().chain(SIZES).map(|name| (name, 0)).collect();
    let mut index_sizes: BTreeMap<String, i64> = BTreeMap::new();
    let (mut bytes, mut indexes) = (0, 0);
    let mut shards = Document::new();
    for shard in owners(sharded) {
        let reply = connections.send_ok(shard, &without(command, &["scale"]))?;
        for (name, sum) in &mut sums {
            *sum += number(&reply, name);
        }
        for (name, size) in &document(&reply, "indexSizes") {
            *index_sizes.entry(name.clone()).or_default() += as_number(size);
        }
        bytes += number(&reply, "avgObjSize") * number(&reply, "count");
        indexes = number(&reply, "nindexes").max(indexes);
        for name in OF_FIRST_SHARD {
            if let (Some(value), false) = (reply.get(name), merged.contains_key(name)) {
                merged.insert(name, value.clone());
            }
        }
        shards.insert(name_of(connections, shard)?, scaled(reply, scale));
    }
    merged.insert("ns", namespace(command));
    let documents = sums.get("count").copied().unwrap_or(0);
    for (name, sum) in sums {
        merged.insert(name, if SIZES.contains(&name) { sum / scale } else { sum });
    }
    let sizes = index_sizes
        .into_iter()
        .map(|(name, size)| (name, Bson::Int64(size / scale)));
    merged.insert("indexSizes", sizes.collect::<Document>());
    merged.insert("avgObjSize", average(as_f64(bytes), documents));
    merged.insert("maxSize", 0_i64);
    merged.insert("nindexes", count(indexes));
    merged.insert("scaleFactor", count(scale));
    merged.insert("nchunks", 1);
    merged.insert("shards", shards);
    merged.insert("ok", 1.0);
    Ok(merged)
}

/// The reply of a shard, whose sizes the router divides.
fn scaled(mut reply: Document, scale: i64) -> Document {
    for name in SIZES {
        if reply.contains_key(name) {
            reply.insert(name, number(&reply, name) / scale);
        }
    }
    let sizes = document(&reply, "indexSizes").into_iter();
    let sizes = sizes.map(|(name, size)| (name, Bson::Int64(as_number(&size) / scale)));
    reply.insert("indexSizes", sizes.collect::<Document>());
    reply.insert("scaleFactor", count(scale));
    reply
}

fn as_number(value: &Bson) -> i64 {
    number(&doc! { "n": value }, "n")
}

/// `dataSize`, whose first field is the namespace.
pub(super) fn data_size(
    connections: &mut ShardConnections,
    sharded: Option<&Sharded>,
    command: &Document,
) -> Result<Document> {
    let (mut size, mut documents, mut millis) = (0, 0, 0);
    for shard in owners(sharded) {
        let reply = connections.send_ok(shard, command)?;
        size += number(&reply, "size");
        documents += number(&reply, "numObjects");
        millis += number(&reply, "millis");
    }
    Ok(doc! { "size": size, "numObjects": documents, "millis": millis, "ok": 1.0 })
}

/// `validate`.
pub(super) fn validate(
    connections: &mut ShardConnections,
    sharded: Option<&Sharded>,
    command: &Document,
) -> Result<Document> {
    let mut raw = Document::new();
    let mut is_valid = true;
    let mut merged = Document::new();
    for shard in owners(sharded) {
        let reply = connections.send_ok(shard, command)?;
        is_valid &= is_set(&reply, "valid");
        if sharded.is_none() {
            merged = without(&reply, &["ok", "$clusterTime", "operationTime"]);
        }
        raw.insert(name_of(connections, shard)?, reply);
    }
    merged.insert("valid", is_valid);
    merged.insert("raw", raw);
    merged.insert("ok", 1.0);
    Ok(merged)
}

/// `dbStats`: sums of all shards.
pub(super) fn db_stats(connections: &mut ShardConnections, command: &Document) -> Result<Document> {
    let state = connections.state();
    let mut raw = Document::new();
    let mut merged = doc! { "db": database(command) };
    let mut bytes = 0.0;
    for shard in connections.all() {
        let reply = connections.send_ok(shard, command)?;
        for name in [
            "collections",
            "views",
            "objects",
            "dataSize",
            "storageSize",
            "indexes",
            "indexSize",
            "totalSize",
        ] {
            merged.insert(name, number(&merged, name) + number(&reply, name));
        }
        bytes += reply.get_f64("avgObjSize").unwrap_or(0.0) * as_f64(number(&reply, "objects"));
        raw.insert(state.shards.get(shard).context("no such shard")?.host(), reply);
    }
    merged.insert("avgObjSize", average(bytes, number(&merged, "objects")));
    merged.insert("scaleFactor", count(number(command, "scale").max(1)));
    merged.insert("raw", raw);
    merged.insert("ok", 1.0);
    Ok(merged)
}

fn average(sum: f64, count: i64) -> f64 {
    if count > 0 { sum / as_f64(count) } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of tests are small")]
fn as_f64(number: i64) -> f64 {
    number as f64
}
