//! What all routers of a cluster share.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bson::{Document, doc};

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
    transactions: Mutex<Transactions>,
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
            transactions: Mutex::default(),
            retries: Mutex::default(),
        }
    }

    pub(super) fn routing(&self) -> RwLockReadGuard<'_, Routing> {
        self.routing.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn routing_mut(&self) -> RwLockWriteGuard<'_, Routing> {
        self.routing.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn transactions(&self) -> MutexGuard<'_, Transactions> {
        self.transactions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn retries(&self) -> MutexGuard<'_, Retries> {
        self.retries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
