//! Shards a collection: the same collection on all shards, and each document on the shard of its slot.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use mongoshape::command::namespace::Namespace;

use super::refusal::Refusal;
use super::routing::{FIRST_SHARD, Routing, SLOTS, Sharded};
use super::shard_connections::ShardConnections;
use super::statements::{document, is_ok, number, without};
use super::{moves, transactions};

/// The longest time that one attempt to create a collection waits, in milliseconds.
const ATTEMPT_MS: i32 = 100;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);
/// The longest time that the creation of a collection waits for open transactions.
const CREATION_LIMIT: Duration = Duration::from_secs(30);
const MAX_TIME_EXPIRED: i32 = 50;

/// A collection as `listCollections` shows it.
struct Listed {
    uuid: Bson,
    options: Document,
    /// The index of `_id`. A clustered collection has none.
    id_index: Option<Document>,
}

/// Whether the collection is sharded by this key. Fails if it is sharded by another one.
fn is_sharded(routing: &Routing, namespace: &str, pattern: &Document) -> Result<bool, Refusal> {
    match routing.collection(namespace) {
        None => Ok(false),
        Some(known) if known.pattern == *pattern => Ok(true),
        Some(_) => {
            let message = format!("sharding already enabled for collection {namespace}");
            Err(Refusal::new(23, "AlreadyInitialized", message))
        }
    }
}

/// Shards a collection, which is created if there is none. The slots belong to the shards in turn.
pub(super) fn shard_collection(connections: &mut ShardConnections, namespace: &str, pattern: &Document) -> Result<()> {
    let state = connections.state();
    if is_sharded(&state.routing(), namespace, pattern)? {
        return Ok(());
    }
    // This may wait for open transactions, and their statements need the routing table.
    let sharded = prepare(connections, namespace, pattern)?;
    let mut routing = state.routing_mut();
    if is_sharded(&routing, namespace, pattern)? {
        return Ok(());
    }
    transactions::abort_all(connections, namespace);
    moves::distribute(connections, &sharded)?;
    routing.insert(sharded);
    Ok(())
}

/// Creates the collection and its indexes on all shards. All documents stay on the first one.
fn prepare(connections: &mut ShardConnections, namespace: &str, pattern: &Document) -> Result<Sharded> {
    let named = Namespace::parse(namespace).context("no namespace")?;
    let Namespace { database, collection } = named;
    ensure!(!pattern.is_empty(), "a shard key of no fields");
    if listed(connections, named)?.is_none() {
        connections.send_ok(FIRST_SHARD, &doc! { "create": collection, "$db": database })?;
    }
    let listed = listed(connections, named)?.context("it was dropped meanwhile")?;
    let count = doc! { "count": collection, "$db": database };
    let is_empty = number(&connections.send_ok(FIRST_SHARD, &count)?, "n") == 0;
    let indexes = connections.drain(FIRST_SHARD, &doc! { "listIndexes": collection, "$db": database })?;
    let mut missing: Vec<Document> = indexes
        .iter()
        .filter(|index| index.get_str("name").ok() != Some("_id_") && !is_clustered(index))
        .map(|index| without(index, &["ns"]))
        .collect();
    if !indexes.iter().any(|index| supports(index, pattern)) && !supports_id(pattern) {
        if !is_empty {
            let message =
                "Please create an index that starts with the proposed shard key before sharding the collection";
            return Err(Refusal::new(72, "InvalidOptions", message).into());
        }
        missing.push(doc! { "key": pattern.clone(), "name": index_name(pattern), "v": 2 });
    }
    for shard in connections.all() {
        if shard != FIRST_SHARD {
            create_with_uuid(connections, shard, named, &listed)?;
        }
        if !missing.is_empty() {
            let create = doc! { "createIndexes": collection, "indexes": missing.clone(), "$db": database };
            connections.send_ok(shard, &create)?;
        }
    }
    let timestamp = connections.take_times().get_timestamp("operationTime")?;
    let shards = connections.all();
    Ok(Sharded {
        namespace: namespace.to_owned(),
        pattern: pattern.clone(),
        uuid: listed.uuid,
        timestamp,
        owners: shards.iter().copied().cycle().take(SLOTS).collect(),
    })
}

fn is_clustered(index: &Document) -> bool {
    index.get_bool("clustered").unwrap_or(false)
}

/// Every collection has an index of `_id`, or is clustered by it.
fn supports_id(pattern: &Document) -> bool {
    pattern.len() == 1 && pattern.get("_id").is_some_and(|kind| kind.as_str().is_none())
}

/// Whether an index begins with the shard key.
fn supports(index: &Document, pattern: &Document) -> bool {
    let key = document(index, "key");
    let is_partial = index.contains_key("partialFilterExpression") || index.contains_key("collation");
    let mut fields = key.iter().zip(pattern);
    let is_same = |(name, kind): (&String, &Bson), (other, other_kind): (&String, &Bson)| {
        name == other && kind.as_str() == other_kind.as_str()
    };
    !is_partial && key.len() >= pattern.len() && fields.all(|(one, other)| is_same(one, other))
}

/// The name that servers give to an index.
fn index_name(pattern: &Document) -> String {
    let fields = pattern.iter().map(|(name, kind)| match kind {
        Bson::String(kind) => format!("{name}_{kind}"),
        kind => format!("{name}_{kind}"),
    });
    fields.collect::<Vec<_>>().join("_")
}

fn listed(connections: &mut ShardConnections, namespace: Namespace<'_>) -> Result<Option<Listed>> {
    let list = doc! { "listCollections": 1, "filter": { "name": namespace.collection }, "$db": namespace.database };
    let Some(found) = connections.drain(FIRST_SHARD, &list)?.into_iter().next() else {
        return Ok(None);
    };
    let uuid = document(&found, "info").get("uuid").cloned();
    Ok(Some(Listed {
        uuid: uuid.context("a view has no UUID")?,
        options: document(&found, "options"),
        id_index: found.get_document("idIndex").ok().cloned(),
    }))
}

/// Creates the collection on another shard with the same UUID, as mongorestore does. A collection that an earlier
/// test has left there is dropped.
///
/// `applyOps` waits for the end of all transactions of the shard, and all other commands wait behind it. A client
/// with an open transaction may be waiting for one of those. So each attempt is short, and others run in between.
fn create_with_uuid(
    connections: &mut ShardConnections,
    shard: usize,
    namespace: Namespace<'_>,
    listed: &Listed,
) -> Result<()> {
    let Namespace { database, collection } = namespace;
    let mut create = doc! { "create": collection };
    create.extend(listed.options.clone());
    if let Some(index) = &listed.id_index {
        create.insert("idIndex", without(index, &["ns"]));
    }
    let operation = doc! { "op": "c", "ns": format!("{database}.$cmd"), "ui": listed.uuid.clone(), "o": create };
    let apply = doc! { "applyOps": [operation], "maxTimeMS": ATTEMPT_MS, "$db": "admin" };
    let end = Instant::now() + CREATION_LIMIT;
    loop {
        // It may be missing, which is an error.
        connections.send(shard, &doc! { "drop": collection, "$db": database })?;
        let reply = connections.send(shard, &apply)?;
        if is_ok(&reply) {
            return Ok(());
        }
        if reply.get_i32("code").ok() != Some(MAX_TIME_EXPIRED) || Instant::now() > end {
            return Err(Refusal::of(reply).into());
        }
        std::thread::sleep(BETWEEN_ATTEMPTS);
    }
}
