//! `find`, `count` and `distinct` on a sharded collection.

use std::cmp::Ordering;

use anyhow::Result;
use bson::{Bson, Document, doc};

use super::cursors::without_batches;
use super::refusal::Refusal;
use super::routing::Sharded;
use super::shard_connections::ShardConnections;
use super::statements::{count as count_value, document, is_set, number, without};
use super::targeting::targets;
use super::value_order::compare;

/// The field for the sort key of a document. Shards add it, and the router removes it.
const SORT_KEY: &str = "_sortKeyOfTheRouter";

/// `find`. Each shard returns its first `skip + limit` documents in the order of the sort.
pub(super) fn find(connections: &mut ShardConnections, sharded: &Sharded, command: &Document) -> Result<Document> {
    if is_set(command, "tailable") {
        return Err(Refusal::not_modelled("tailable cursors on sharded collections").into());
    }
    let (skip, limit) = (number(command, "skip"), number(command, "limit"));
    let shards = targets(sharded, &document(command, "filter"), command).shards;
    let sort = document(command, "sort");
    let is_merged = shards.len() > 1 && !sort.is_empty() && !sort.contains_key("$natural");
    let mut on_shard = without(&without_batches(command), &["skip", "limit"]);
    if limit > 0 {
        on_shard.insert("limit", skip.saturating_add(limit));
    }
    if is_merged {
        let mut projection = document(command, "projection");
        projection.insert(SORT_KEY, doc! { "$meta": "sortKey" });
        on_shard.insert("projection", projection);
    }
    let mut documents = Vec::new();
    for shard in shards {
        documents.extend(connections.drain(shard, &on_shard)?);
    }
    if is_merged {
        documents = in_order(documents, &sort);
    }
    let documents = documents.into_iter().skip(usize::try_from(skip)?);
    let documents = match limit {
        0 => documents.collect(),
        limit => documents.take(usize::try_from(limit)?).collect(),
    };
    connections
        .state()
        .cursors
        .first_batch(command, &sharded.namespace, documents)
}

/// The documents by their sort keys, without these.
fn in_order(documents: Vec<Document>, sort: &Document) -> Vec<Document> {
    let keyed = documents.into_iter().map(|mut document| {
        let key = match document.remove(SORT_KEY) {
            Some(Bson::Array(values)) => values,
            Some(Bson::Document(values)) => values.into_iter().map(|(_, value)| value).collect(),
            _ => Vec::new(),
        };
        Keyed { key, document }
    });
    let mut keyed: Vec<Keyed> = keyed.collect();
    // It is stable: documents of equal keys are in the order of their shards.
    keyed.sort_by(|one, other| {
        let directions = sort.keys().map(|name| is_descending(sort, name));
        let values = one.key.iter().zip(&other.key).zip(directions);
        let mut orders = values.map(|((one, other), is_descending)| {
            let order = compare(one, other);
            if is_descending { order.reverse() } else { order }
        });
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    });
    keyed.into_iter().map(|keyed| keyed.document).collect()
}

/// A document and its sort key.
struct Keyed {
    key: Vec<Bson>,
    document: Document,
}

/// A score is sorted from the greatest.
fn is_descending(sort: &Document, name: &str) -> bool {
    matches!(sort.get(name), Some(Bson::Document(_))) || number(sort, name) < 0
}

/// `count`.
pub(super) fn count(connections: &mut ShardConnections, sharded: &Sharded, command: &Document) -> Result<Document> {
    // A negative limit is the same as a positive one.
    let (skip, limit) = (number(command, "skip"), number(command, "limit").saturating_abs());
    let shards = targets(sharded, &document(command, "query"), command).shards;
    let mut on_shard = without(command, &["skip", "limit"]);
    if limit > 0 {
        on_shard.insert("limit", skip.saturating_add(limit));
    }
    let mut all = 0;
    for shard in shards {
        all += number(&connections.send_ok(shard, &on_shard)?, "n");
    }
    let mut counted = all.saturating_sub(skip).max(0);
    if limit > 0 {
        counted = counted.min(limit);
    }
    Ok(doc! { "n": count_value(counted), "ok": 1.0 })
}

/// `distinct`. mongos returns the values of several shards in order.
pub(super) fn distinct(connections: &mut ShardConnections, sharded: &Sharded, command: &Document) -> Result<Document> {
    let shards = targets(sharded, &document(command, "query"), command).shards;
    if let [shard] = shards[..] {
        return connections.send(shard, command);
    }
    let mut values = Vec::new();
    for shard in shards {
        let mut reply = connections.send_ok(shard, command)?;
        if let Some(Bson::Array(found)) = reply.remove("values") {
            values.extend(found);
        }
    }
    values.sort_by(compare);
    values.dedup_by(|one, other| compare(one, other).is_eq());
    Ok(doc! { "values": values, "ok": 1.0 })
}
