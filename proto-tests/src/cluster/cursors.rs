//! Cursors of the router. Each has all its documents. Any other cursor is one of the first shard.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use bson::{Bson, Document, doc};

use super::change_streams;
use super::refusal::Refusal;
use super::routing::FIRST_SHARD;
use super::shard_connections::ShardConnections;
use super::statements::{document, is_set, number, without};

/// The documents of a first batch, if the client does not say.
const FIRST_BATCH: usize = 101;
/// The bytes of a batch.
pub(super) const BATCH_BYTES: usize = 16 << 20;
/// Ids of the router's cursors begin here. Those of mongod are random.
const FIRST_ID: i64 = 1 << 61;

#[derive(Debug)]
struct Open {
    namespace: String,
    documents: VecDeque<Document>,
}

/// All open cursors of all routers: as a client of mongos, a test uses a cursor with the router that opened
/// it.
#[derive(Debug, Default)]
pub(super) struct Cursors {
    open: Mutex<HashMap<i64, Open>>,
    opened: AtomicI64,
}

impl Cursors {
    fn lock(&self) -> MutexGuard<'_, HashMap<i64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first batch of documents that were read. The rest is kept.
    pub(super) fn first_batch(
        &self,
        command: &Document,
        namespace: &str,
        documents: Vec<Document>,
    ) -> Result<Document> {
        let options = match command.get_document("cursor") {
            Ok(options) => options,
            Err(_) => command,
        };
        let size = first_batch_size(options)?;
        let mut open = Open {
            namespace: namespace.to_owned(),
            documents: documents.into(),
        };
        let batch = open.take(size)?;
        let is_exhausted = open.documents.is_empty() && size > 0;
        let mut id = 0;
        if !is_exhausted && !is_set(command, "singleBatch") {
            id = FIRST_ID + self.opened.fetch_add(1, Ordering::Relaxed);
            self.lock().insert(id, open);
        }
        Ok(doc! { "cursor": { "firstBatch": batch, "id": id, "ns": namespace }, "ok": 1.0 })
    }

    /// The next batch. `None`: the cursor is not one of the router.
    fn next_batch(&self, id: i64, size: usize) -> Result<Option<Document>> {
        let mut cursors = self.lock();
        let Some(open) = cursors.get_mut(&id) else {
            return Ok(None);
        };
        let batch = open.take(size)?;
        let namespace = open.namespace.clone();
        let mut next = id;
        if open.documents.is_empty() {
            cursors.remove(&id);
            next = 0;
        }
        let reply = doc! { "cursor": { "nextBatch": batch, "id": next, "ns": namespace }, "ok": 1.0 };
        Ok(Some(reply))
    }
}

impl Open {
    /// At most `size` documents, of at most [`BATCH_BYTES`] together.
    fn take(&mut self, size: usize) -> Result<Vec<Bson>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(document) = self.documents.front() {
            bytes += document.to_vec()?.len();
            if batch.len() == size || !batch.is_empty() && bytes > BATCH_BYTES {
                break;
            }
            batch.extend(self.documents.pop_front().map(Bson::Document));
        }
        Ok(batch)
    }
}

/// The most documents of a first batch, by the options of the cursor.
pub(super) fn first_batch_size(options: &Document) -> Result<usize> {
    match options.get("batchSize") {
        Some(_) => Ok(usize::try_from(number(options, "batchSize"))?),
        None => Ok(FIRST_BATCH),
    }
}

/// The most documents of the batch of a `getMore`.
pub(super) fn next_batch_size(command: &Document) -> Result<usize> {
    match number(command, "batchSize") {
        0 => Ok(usize::MAX),
        size => Ok(usize::try_from(size)?),
    }
}

/// `getMore`.
pub(super) fn get_more(connections: &mut ShardConnections, command: &Document) -> Result<Document> {
    let id = number(command, "getMore");
    if let Some(reply) = change_streams::get_more(connections, command)? {
        return Ok(reply);
    }
    let size = next_batch_size(command)?;
    match connections.state().cursors.next_batch(id, size)? {
        Some(reply) => Ok(reply),
        None if id >= FIRST_ID && id < FIRST_ID + connections.state().cursors.opened.load(Ordering::Relaxed) => {
            let message = format!("cursor id {id} not found");
            Err(Refusal::new(43, "CursorNotFound", message).into())
        }
        None => connections.send(FIRST_SHARD, command),
    }
}

/// `killCursors`.
pub(super) fn kill(connections: &mut ShardConnections, command: &Document) -> Result<Document> {
    let state = connections.state();
    let named = command.get_array("cursors").cloned().unwrap_or_default();
    let (mut killed, mut others) = (Vec::new(), Vec::new());
    for id in named {
        let number = id.as_i64().unwrap_or_default();
        let is_found = state.cursors.lock().remove(&number).is_some();
        if is_found || change_streams::kill(connections, command, number)? {
            killed.push(id);
        } else {
            others.push(id);
        }
    }
    let none: Vec<Bson> = Vec::new();
    let mut reply = doc! {
        "cursorsKilled": &none, "cursorsNotFound": &none, "cursorsAlive": &none, "cursorsUnknown": &none, "ok": 1.0,
    };
    if !others.is_empty() {
        let mut rest = without(command, &["cursors"]);
        rest.insert("cursors", others);
        reply = connections.send(FIRST_SHARD, &rest)?;
    }
    if let Ok(all) = reply.get_array_mut("cursorsKilled") {
        all.splice(0..0, killed);
    }
    Ok(reply)
}

/// The options of an aggregation's cursor that only the router needs are left out.
pub(super) fn without_batches(command: &Document) -> Document {
    let mut command = without(command, &["batchSize", "singleBatch"]);
    if command.contains_key("cursor") {
        let cursor = without(&document(&command, "cursor"), &["batchSize"]);
        command.insert("cursor", cursor);
    }
    command
}
