//! The targets of the suite: a server, and the proxy's presentation of it.

use anyhow::Result;
use clap::ValueEnum;
use proto_tests::mongod::Options;
use proto_tests::{Mongod, ProxyOptions};
use serde::Deserialize;

/// The suite stores the longest documents there are, many in one transaction: too much for a small cache.
const CACHE_GB: f32 = 1.0;

/// What mongod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Topology {
    Standalone,
    ReplicaSet,
}

impl Topology {
    pub(super) const ALL: [Self; 2] = [Self::Standalone, Self::ReplicaSet];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::ReplicaSet => "replica set",
        }
    }

    /// A fresh one, with fail points.
    pub(super) fn start(self, members: usize) -> Result<Mongod> {
        let mut options = Options::default().parameter("enableTestCommands=1");
        options.cache_gb = CACHE_GB;
        match self {
            Self::Standalone => options.standalone(),
            Self::ReplicaSet => options.replica_set(members),
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
}

impl Presentation {
    pub(super) const ALL: [Self; 4] = [Self::Standalone, Self::Members, Self::ReplicaSet, Self::Mongos];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Members => "members",
            Self::ReplicaSet => "replica-set",
            Self::Mongos => "mongos",
        }
    }

    pub(super) fn topology(self) -> Topology {
        match self {
            Self::Standalone => Topology::Standalone,
            Self::Members | Self::ReplicaSet | Self::Mongos => Topology::ReplicaSet,
        }
    }

    /// A proxy without shapes before `mongod`.
    pub(super) fn options(self, mongod: &Mongod) -> ProxyOptions {
        let options = ProxyOptions::new(&mongod.uri());
        match self {
            Self::Standalone => options,
            Self::Members => options.members(&mongod.addresses()),
            Self::ReplicaSet | Self::Mongos => options.listen(&format!("present_as = \"{}\"", self.name())),
        }
    }
}
