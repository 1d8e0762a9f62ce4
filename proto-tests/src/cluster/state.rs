//! What all routers of a cluster share.

use std::net::SocketAddr;
use std::sync::atomic::AtomicI64;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bson::{Document, Timestamp, doc};

use super::change_streams::Streams;
use super::cursors::Cursors;
use super::retries::Retries;
use super::routing::Routing;
use super::transactions::Transactions;
use crate::mongod::SET_NAME;

/// A shard's name and place.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) name: String,
    pub(super) address: SocketAddr,
}

impl Shard {
    /// The connection string, as `listShards` and the `raw` replies show it.
    pub(super) fn host(&self) -> String {
        format!("{SET_NAME}/{}", self.address)
    }

    /// The document in `config.shards`, and in the reply of `listShards`.
    pub(super) fn entry(&self) -> Document {
        doc! { "_id": &self.name, "host": self.host(), "state": 1 }
    }
}

/// A statement holds the read lock of `routing` until it has its reply. A move of a slot takes the write
/// lock.
#[derive(Debug)]
pub(super) struct State {
    pub(super) shards: Vec<Shard>,
    routing: RwLock<Routing>,
    pub(super) cursors: Cursors,
    pub(super) streams: Streams,
    /// The greatest `$clusterTime` of a reply.
    gossip: Mutex<Option<Document>>,
    transactions: Mutex<Transactions>,
    /// The number of the next transaction that moves documents.
    pub(super) moves: AtomicI64,
    retries: Mutex<Retries>,
}

impl State {
    pub(super) fn new(addresses: Vec<SocketAddr>) -> Self {
        let shards = addresses.into_iter().enumerate().map(|(number, address)| Shard {
            name: format!("shard{number}"),
            address,
        });
        Self {
            shards: shards.collect(),
            routing: RwLock::default(),
            cursors: Cursors::default(),
            streams: Streams::default(),
            gossip: Mutex::default(),
            transactions: Mutex::default(),
            moves: AtomicI64::new(1),
            retries: Mutex::default(),
        }
    }

    pub(super) fn routing(&self) -> RwLockReadGuard<'_, Routing> {
        self.routing.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn routing_mut(&self) -> RwLockWriteGuard<'_, Routing> {
        self.routing.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The `$clusterTime` that each command gets: a shard then gives each write a later time.
    pub(super) fn gossip(&self) -> Option<Document> {
        self.lock_gossip().clone()
    }

    /// The time in [`State::gossip`].
    pub(super) fn cluster_time(&self) -> Option<Timestamp> {
        self.lock_gossip().as_ref().and_then(time_of)
    }

    /// Keeps the `$clusterTime` of a reply if it is the greatest one.
    pub(super) fn advance_cluster_time(&self, reply: &Document) {
        if let Ok(replied) = reply.get_document("$clusterTime") {
            let mut gossip = self.lock_gossip();
            if gossip.as_ref().and_then(time_of) < time_of(replied) {
                *gossip = Some(replied.clone());
            }
        }
    }

    fn lock_gossip(&self) -> MutexGuard<'_, Option<Document>> {
        self.gossip.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn transactions(&self) -> MutexGuard<'_, Transactions> {
        self.transactions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn retries(&self) -> MutexGuard<'_, Retries> {
        self.retries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn time_of(gossip: &Document) -> Option<Timestamp> {
    gossip.get_timestamp("clusterTime").ok()
}
