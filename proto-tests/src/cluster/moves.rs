//! Moves the documents of a slot from one shard to another.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result, ensure};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use mongoshape::command::namespace::Namespace;

use super::refusal::Refusal;
use super::routing::{FIRST_SHARD, SLOTS, Sharded};
use super::shard_connections::ShardConnections;
use super::state::State;
use super::statements::documents;
use super::transactions;

/// Documents that are copied at once.
const COPIED: usize = 1000;

/// The session of all moves. Change streams leave out its events, as a shard does for moved chunks.
pub(super) fn session_id() -> Binary {
    Binary {
        subtype: BinarySubtype::Uuid,
        bytes: b"moves of a slot.".to_vec(),
    }
}

/// Moves a slot, and returns whether it was on another shard. No statement is in flight meanwhile, and no transaction
/// on the collection is open.
pub(super) fn move_slot(state: &Arc<State>, namespace: &str, slot: usize, to: usize) -> Result<bool> {
    ensure!(slot < SLOTS, "there is no slot {slot}");
    ensure!(to < state.shards.len(), "there is no shard {to}");
    let mut routing = state.routing_mut();
    let mut connections = ShardConnections::new(state);
    let sharded = routing.collection(namespace).context("not sharded")?;
    let from = sharded.owners.get(slot).copied().context("no such slot")?;
    if from == to {
        return Ok(false);
    }
    transactions::abort_all(&mut connections, namespace);
    let mut copy = Copier::new(&mut connections, sharded)?;
    let mut moved = Vec::new();
    for document in copy.all(from)? {
        if sharded.slot_of_document(&document)? == slot {
            moved.push(document);
        }
    }
    copy.take(from, to, moved)?;
    routing.give(namespace, slot, to);
    Ok(true)
}

/// Moves each document of a new sharded collection from the first shard to its owner.
pub(super) fn distribute(connections: &mut ShardConnections, sharded: &Sharded) -> Result<()> {
    let mut copy = Copier::new(connections, sharded)?;
    let all = copy.all(FIRST_SHARD)?;
    for shard in sharded.all_owners().into_iter().filter(|shard| *shard != FIRST_SHARD) {
        let mut moved = Vec::new();
        for document in &all {
            if sharded.owner_of_document(document)? == shard {
                moved.push(document.clone());
            }
        }
        copy.take(FIRST_SHARD, shard, moved)?;
    }
    Ok(())
}

/// Copies documents of a collection between shards.
struct Copier<'a> {
    connections: &'a mut ShardConnections,
    namespace: Namespace<'a>,
}

impl<'a> Copier<'a> {
    fn new(connections: &'a mut ShardConnections, sharded: &'a Sharded) -> Result<Self> {
        Ok(Self {
            connections,
            namespace: Namespace::parse(&sharded.namespace).context("no namespace")?,
        })
    }

    fn all(&mut self, shard: usize) -> Result<Vec<Document>> {
        let find = doc! { "find": self.namespace.collection, "$db": self.namespace.database };
        self.connections.drain(shard, &find)
    }

    /// Inserts the documents on one shard, and then deletes them from the other one.
    fn take(&mut self, from: usize, to: usize, moved: Vec<Document>) -> Result<()> {
        let all: Vec<Bson> = moved.into_iter().map(Bson::Document).collect();
        for part in all.chunks(COPIED) {
            let insert = doc! {
                "insert": self.namespace.collection, "documents": part.to_vec(), "bypassDocumentValidation": true,
                "$db": self.namespace.database,
            };
            self.write(to, &insert)?;
            let ids = part.iter().filter_map(Bson::as_document);
            let ids: Vec<Bson> = ids.filter_map(|document| document.get("_id").cloned()).collect();
            let delete = doc! {
                "delete": self.namespace.collection, "deletes": [{ "q": { "_id": { "$in": ids } }, "limit": 0 }],
                "$db": self.namespace.database,
            };
            self.write(from, &delete)?;
        }
        Ok(())
    }

    /// Writes in a transaction of [the session of moves](session_id). A shard whose primary is stepping down
    /// has the next one before the transaction begins.
    fn write(&mut self, shard: usize, command: &Document) -> Result<()> {
        self.connections.append_note(shard)?;
        let number = self.connections.state().moves.fetch_add(1, Ordering::Relaxed);
        let session = doc! { "lsid": { "id": session_id() }, "txnNumber": number, "autocommit": false };
        let mut statement = command.clone();
        statement.extend(session.clone());
        statement.insert("startTransaction", true);
        let reply = self.connections.send_ok(shard, &statement)?;
        if !documents(&reply, "writeErrors").is_empty() {
            return Err(Refusal::of(reply).into());
        }
        let mut commit = doc! { "commitTransaction": 1, "writeConcern": { "w": "majority" }, "$db": "admin" };
        commit.extend(session);
        self.connections.send_ok(shard, &commit).map(drop)
    }
}
