//! A MODEL of a sharded cluster: a small router before real mongods, each a replica set of one.
//!
//! No binary of mongos is available to the tests. The router is written from the published behaviour of
//! mongos 6.0 and runs as threads in the test process. A result with it is a result against a model.
//!
//! What differs from a real cluster:
//!
//! * The shards do not know that they are shards. Only the router routes, so no test may write to a shard
//!   directly.
//! * A collection has 64 slots by a hash of the shard key, for ranged keys too. A range of the key concerns
//!   all shards.
//! * A read of a sharded collection is read to its end before the first batch is returned.
//! * A slot moves while no statement is in flight. Open transactions are aborted before. The router itself
//!   remembers which shard executed a retryable statement, where mongos copies the retry records with the
//!   chunk.
//! * `commitTransaction` is sent to each participant in turn. There is no two-phase commit.
//! * `afterClusterTime` is not passed on, and a snapshot is one of each shard.
//! * A change stream has the shard keys of its beginning, and of documents with images only.
//! * Messages are decoded, so a repeated field is lost.

mod aggregate;
mod change_streams;
mod config_database;
mod cursors;
mod ddl;
mod dispatch;
mod disturbances;
mod explain;
mod hello;
mod message;
mod moves;
mod reads;
mod refusal;
mod retries;
mod router;
mod routing;
mod shard_connections;
mod shard_key_change;
mod sharding;
mod state;
mod statements;
mod statistics;
mod targeting;
mod transactions;
mod value_order;
mod writes;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result, ensure};
use bson::Document;

use crate::Mongod;
use crate::mongod::Options;
pub use disturbances::Moves;
pub use routing::{Kind, SLOTS};
use shard_connections::ShardConnections;
use state::State;

/// A statement of a transaction waits for a lock at most 5 ms by default. Creating a collection with a given UUID
/// locks the whole shard for longer.
const TRANSACTION_LOCK_LIMIT: &str = "maxTransactionLockRequestTimeoutMillis=5000";

/// A running cluster. Dropping it ends the mongods. The router's threads end with the process.
#[derive(Debug)]
pub struct Cluster {
    shards: Vec<Mongod>,
    state: Arc<State>,
    routers: Vec<SocketAddr>,
}

impl Cluster {
    /// Starts one to three shards, and the routers before them.
    pub fn start(shards: usize, routers: usize) -> Result<Self> {
        Self::with(&Options::default(), shards, routers)
    }

    /// As [`Cluster::start`], with options for each mongod.
    pub fn with(options: &Options, shards: usize, routers: usize) -> Result<Self> {
        ensure!((1..=3).contains(&shards), "one to three shards, not {shards}");
        let options = options.clone().parameter(TRANSACTION_LOCK_LIMIT);
        let shards = (0..shards)
            .map(|_| options.replica_set(1))
            .collect::<Result<Vec<_>>>()?;
        let state = Arc::new(State::new(shards.iter().map(Mongod::address).collect()));
        let routers = (0..routers)
            .map(|_| router::start(&state))
            .collect::<Result<Vec<_>>>()?;
        Ok(Self { shards, state, routers })
    }

    /// The routers' addresses.
    #[must_use]
    pub fn router_addresses(&self) -> &[SocketAddr] {
        &self.routers
    }

    /// The connection string of all routers, as of a cluster of several mongos.
    #[must_use]
    pub fn uri(&self) -> String {
        let hosts: Vec<String> = self.routers.iter().map(ToString::to_string).collect();
        format!("mongodb://{}/", hosts.join(","))
    }

    /// The mongods of the shards. A test reads stored documents from them.
    #[must_use]
    pub fn shards(&self) -> &[Mongod] {
        &self.shards
    }

    /// Shards a collection as the command `shardCollection` does. Its documents are distributed at once.
    /// `key` has the fields, each with any value.
    pub fn shard_collection(&self, namespace: &str, key: &Document, kind: Kind) -> Result<()> {
        let mut connections = ShardConnections::new(&self.state);
        sharding::shard_collection(&mut connections, namespace, &kind.pattern(key))
    }

    /// Moves all documents of a slot to a shard, and makes the shard the owner. Waits for statements in
    /// flight.
    pub fn move_slot(&self, namespace: &str, slot: usize, shard: usize) -> Result<()> {
        moves::move_slot(&self.state, namespace, slot, shard)?;
        Ok(())
    }

    /// The slot of a document.
    pub fn slot_of(&self, namespace: &str, document: &Document) -> Result<usize> {
        let routing = self.state.routing();
        let sharded = routing.collection(namespace).context("not sharded")?;
        Ok(sharded.slot_of_document(document)?)
    }

    /// The shard that owns a slot.
    pub fn owner_of(&self, namespace: &str, slot: usize) -> Result<usize> {
        let routing = self.state.routing();
        let sharded = routing.collection(namespace).context("not sharded")?;
        sharded.owners.get(slot).copied().context("no such slot")
    }

    /// A number that changes with each move of a slot and with each sharded or dropped collection.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.state.routing().version
    }
}

/// The cluster of two shards and two routers that all tests of this process share.
///
/// # Panics
/// Fails with one line with what to install if there is no mongod.
#[must_use]
pub fn shared() -> &'static Cluster {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    SHARED.get_or_init(|| Cluster::start(2, 2).unwrap_or_else(|error| panic!("{error:#}")))
}
