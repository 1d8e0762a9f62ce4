//! A client's connections to the shards.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bson::{Bson, Document, Timestamp, doc};

use super::refusal::Refusal;
use super::state::State;
use super::statements::{copy_session, is_ok, number};
use super::transactions::is_in_transaction;
use crate::raw::Connection;

/// The longest time for which mongos waits for a primary.
const ELECTION_LIMIT: Duration = Duration::from_secs(20);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
const LOCK_FAILED: i64 = 107;
/// `NotWritablePrimary` and `NotPrimaryNoSecondaryOk`: the shard has executed nothing.
const NOT_PRIMARY: [i64; 2] = [10107, 13435];

/// One connection to each shard. They are opened when they are needed.
pub(super) struct ShardConnections {
    state: Arc<State>,
    open: Vec<Option<Connection>>,
    /// The greatest `operationTime` of a reply since [`ShardConnections::take_times`].
    operation_time: Option<Timestamp>,
}

impl ShardConnections {
    pub(super) fn new(state: &Arc<State>) -> Self {
        Self {
            state: Arc::clone(state),
            open: state.shards.iter().map(|_| None).collect(),
            operation_time: None,
        }
    }

    pub(super) fn state(&self) -> Arc<State> {
        Arc::clone(&self.state)
    }

    /// The numbers of all shards.
    pub(super) fn all(&self) -> Vec<usize> {
        (0..self.open.len()).collect()
    }

    /// The times to return with a reply of the router. If no shard took part, the operation time is the
    /// cluster time.
    pub(super) fn take_times(&mut self) -> Document {
        let Some(gossip) = self.state.gossip() else {
            return Document::new();
        };
        let operation_time = self.operation_time.take().or_else(|| self.state.cluster_time());
        doc! { "operationTime": operation_time, "$clusterTime": gossip }
    }

    /// Writes a note to a shard's oplog, as a shard without writes does after some seconds. mongod refuses
    /// the note if a command holds the global lock.
    pub(super) fn append_note(&mut self, shard: usize) -> Result<()> {
        let concern = doc! { "w": "majority" };
        let note = doc! { "appendOplogNote": 1, "data": {}, "writeConcern": concern, "$db": "admin" };
        let deadline = Instant::now() + ELECTION_LIMIT;
        loop {
            let reply = self.send(shard, &note)?;
            if is_ok(&reply) {
                return Ok(());
            }
            if number(&reply, "code") != LOCK_FAILED || Instant::now() > deadline {
                return Err(Refusal::of(reply).into());
            }
            thread::sleep(PAUSE);
        }
    }

    /// Runs a command on a shard. A statement of a transaction makes the shard a participant. A reply with
    /// `ok: 0` is a reply.
    pub(super) fn send(&mut self, shard: usize, command: &Document) -> Result<Document> {
        let mut command = command.clone();
        command.remove("$clusterTime");
        if let Some(gossip) = self.state.gossip() {
            command.insert("$clusterTime", gossip);
        }
        command.remove("recoveryToken");
        // A set of one member always reads its own writes.
        if let Ok(concern) = command.get_document_mut("readConcern") {
            concern.remove("afterClusterTime");
        }
        let command = self.state.transactions().join(shard, command);
        let address = self.state.shards.get(shard).context("no such shard")?.address;
        let slot = self.open.get_mut(shard).context("no such shard")?;
        let mut connection = match slot.take() {
            Some(connection) => connection,
            None => Connection::open(address)?,
        };
        // A connection that failed is not used again.
        let mut reply = connection.command(&command)?;
        // mongos waits for the shard's next primary.
        let deadline = Instant::now() + ELECTION_LIMIT;
        while is_not_primary(&reply) && !is_in_transaction(&command) && Instant::now() < deadline {
            thread::sleep(PAUSE);
            reply = connection.command(&command)?;
        }
        // mongos has a topology of its own.
        reply.remove("topologyVersion");
        *slot = Some(connection);
        self.keep_times(&reply);
        Ok(reply)
    }

    /// Runs a command on a shard, and fails with the reply if it is an error.
    pub(super) fn send_ok(&mut self, shard: usize, command: &Document) -> Result<Document> {
        let reply = self.send(shard, command)?;
        if is_ok(&reply) {
            return Ok(reply);
        }
        Err(Refusal::of(reply).into())
    }

    /// Runs a command that opens a cursor on a shard, and reads it to its end.
    pub(super) fn drain(&mut self, shard: usize, command: &Document) -> Result<Vec<Document>> {
        let mut reply = self.send_ok(shard, command)?;
        let mut documents = Vec::new();
        loop {
            let Some(Bson::Document(mut cursor)) = reply.remove("cursor") else {
                return Err(Refusal::of(reply).into());
            };
            let batch = cursor.remove("firstBatch").or_else(|| cursor.remove("nextBatch"));
            if let Some(Bson::Array(batch)) = batch {
                let batch = batch.into_iter().filter_map(|value| match value {
                    Bson::Document(document) => Some(document),
                    _ => None,
                });
                documents.extend(batch);
            }
            let id = number(&cursor, "id");
            if id == 0 {
                return Ok(documents);
            }
            let (_, collection) = cursor.get_str("ns")?.split_once('.').context("no namespace")?;
            let mut more = doc! { "getMore": id, "collection": collection };
            copy_session(command, &mut more);
            reply = self.send_ok(shard, &more)?;
        }
    }

    fn keep_times(&mut self, reply: &Document) {
        self.state.advance_cluster_time(reply);
        self.operation_time = self.operation_time.max(reply.get_timestamp("operationTime").ok());
    }
}

fn is_not_primary(reply: &Document) -> bool {
    NOT_PRIMARY.contains(&number(reply, "code"))
}
