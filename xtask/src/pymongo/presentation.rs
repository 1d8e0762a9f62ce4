//! The targets of the suite: a server, and the proxy's presentation of it.

use std::net::SocketAddr;

use anyhow::Result;
use clap::ValueEnum;
use proto_tests::cluster::Cluster;
use proto_tests::mongod::Options;
use proto_tests::{Mongod, ProxyOptions};
use serde::Deserialize;

/// The suite stores the longest documents there are, many in one transaction: too much for a small cache.
const CACHE_GB: f32 = 1.0;

/// The servers of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Topology {
    Standalone,
    ReplicaSet,
    /// The tests' model of a sharded cluster. No collection is sharded.
    Cluster,
}

impl Topology {
    pub(super) const ALL: [Self; 3] = [Self::Standalone, Self::ReplicaSet, Self::Cluster];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::ReplicaSet => "replica set",
            Self::Cluster => "model of a cluster",
        }
    }

    /// Fresh servers, with fail points.
    pub(super) fn start(self, members: usize) -> Result<Server> {
        let mut options = Options::default().parameter("enableTestCommands=1");
        options.cache_gb = CACHE_GB;
        Ok(match self {
            Self::Standalone => Server::Mongod(options.standalone()?),
            Self::ReplicaSet => Server::Mongod(options.replica_set(members)?),
            Self::Cluster => Server::Cluster(Cluster::with(&options, 2, 1)?),
        })
    }
}

/// Running servers.
#[derive(Debug)]
pub(super) enum Server {
    Mongod(Mongod),
    Cluster(Cluster),
}

impl Server {
    /// The servers that a client may connect to. The first is the suite's.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Self::Mongod(mongod) => mongod.addresses(),
            Self::Cluster(cluster) => cluster.router_addresses().to_vec(),
        }
    }

    fn uri(&self) -> String {
        match self {
            Self::Mongod(mongod) => mongod.uri(),
            Self::Cluster(cluster) => cluster.uri(),
        }
    }
}

/// What the proxy shows to the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Presentation {
    /// A standalone, as what it is
    Standalone,
    /// A replica set as it is, with a listener for each member
    Members,
    /// A replica set of one member, which is the proxy
    ReplicaSet,
    /// A mongos
    Mongos,
    /// A mongos, before a model of a sharded cluster
    Cluster,
}

impl Presentation {
    pub(super) const ALL: [Self; 5] = [
        Self::Standalone,
        Self::Members,
        Self::ReplicaSet,
        Self::Mongos,
        Self::Cluster,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Members => "members",
            Self::ReplicaSet => "replica-set",
            Self::Mongos => "mongos",
            Self::Cluster => "cluster",
        }
    }

    pub(super) fn topology(self) -> Topology {
        match self {
            Self::Standalone => Topology::Standalone,
            Self::Members | Self::ReplicaSet | Self::Mongos => Topology::ReplicaSet,
            Self::Cluster => Topology::Cluster,
        }
    }

    /// Whether an update may move an item to another key outside a transaction.
    pub(super) fn moves_items(self) -> bool {
        self.topology() == Topology::ReplicaSet
    }

    /// A proxy without shapes before the servers.
    pub(super) fn options(self, server: &Server) -> ProxyOptions {
        let options = ProxyOptions::new(&server.uri());
        match self {
            Self::Standalone | Self::Cluster => options,
            Self::Members => options.members(&server.addresses()),
            Self::ReplicaSet | Self::Mongos => options.listen(&format!("present_as = \"{}\"", self.name())),
        }
    }
}
