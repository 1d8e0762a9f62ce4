//! The servers of a run.

use std::net::SocketAddr;

use anyhow::Result;

use super::Generator;
use crate::cluster::Cluster;
use crate::{Mongod, mongod};

/// The kind of the server before which the proxies are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// A standalone mongod.
    Standalone,
    /// A replica set.
    ReplicaSet,
    /// A router of a cluster. The collections are not sharded.
    Mongos,
    /// A router of a cluster. The shaped collections are sharded by the key of their shape, and the plain ones are
    /// not.
    Sharded,
}

impl Topology {
    /// Whether there are retryable writes and transactions.
    pub(in crate::differential) fn has_transactions(self) -> bool {
        self != Self::Standalone
    }

    pub(in crate::differential) fn is_behind_mongos(self) -> bool {
        matches!(self, Self::Mongos | Self::Sharded)
    }
}

/// Servers with the plain and the shaped collection.
#[derive(Debug, Clone)]
pub struct Deployment {
    /// The connection string for the proxies.
    pub(super) uri: String,
    /// The server to which commands on the plain collection are sent.
    pub(super) direct: SocketAddr,
    /// The server with the pages: a mongod, or the router if they are on several shards.
    pub(super) stored: SocketAddr,
    pub(super) topology: Topology,
}

impl Deployment {
    /// A cluster on which the shaped collections are sharded.
    #[must_use]
    pub fn sharded(cluster: &Cluster) -> Self {
        Self {
            stored: cluster.router_addresses()[0],
            topology: Topology::Sharded,
            ..Self::from(cluster)
        }
    }

    /// Makes a generator generate for these servers.
    pub(super) fn prepare(&self, generator: &mut Generator) -> Result<()> {
        generator.names_keys = self.topology == Topology::Sharded;
        let is_before_7 = mongod::find_program()?.version.major < 7;
        generator.upserts_keep_order = is_before_7;
        generator.excludes_repeated_fields = is_before_7;
        Ok(())
    }
}

impl From<&Mongod> for Deployment {
    fn from(mongod: &Mongod) -> Self {
        let topology = if mongod.is_replica_set() {
            Topology::ReplicaSet
        } else {
            Topology::Standalone
        };
        Self {
            uri: mongod.uri(),
            direct: mongod.address(),
            stored: mongod.address(),
            topology,
        }
    }
}

impl From<&Cluster> for Deployment {
    fn from(cluster: &Cluster) -> Self {
        Self {
            uri: cluster.uri(),
            direct: cluster.router_addresses()[0],
            // The shard of all collections that are not sharded.
            stored: cluster.shards()[0].address(),
            topology: Topology::Mongos,
        }
    }
}
