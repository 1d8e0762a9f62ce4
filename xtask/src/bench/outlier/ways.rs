//! The servers, and the ways to a catalogue.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use proto_tests::{Mongod, Proxy, ProxyOptions, mongod};

use super::books::{BUYERS, THRESHOLD};
use crate::bench::client::Retries;
use crate::bench::process::cpu_time;

pub(super) const DATABASE: &str = "shop";
/// mongod's cache: all collections are to fit.
const CACHE_GB: f32 = 2.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Naive,
    Relayed,
    Merged,
    Base,
}

/// A way to a catalogue.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) collection: &'static str,
    pub(super) address: SocketAddr,
    /// Whether it is in the outlier pattern.
    pub(super) is_ours: bool,
}

/// Running servers. They are stopped when dropped, proxies before their upstreams.
#[derive(Debug)]
pub(super) struct Ways {
    all: Vec<Way>,
    merged: Proxy,
    base: Proxy,
    mongod: Mongod,
    pub(super) retries: Retries,
}

impl Ways {
    pub(super) fn start(binary: &Path, retries: Retries) -> Result<Self> {
        let mut options = mongod::Options::default();
        options.cache_gb = CACHE_GB;
        let mongod = match retries {
            Retries::None => options.standalone()?,
            Retries::Numbered => options.replica_set(1)?,
        };
        let proxy =
            |shapes: &[String]| Proxy::start(&ProxyOptions::new(&mongod.uri()).config(&shapes.concat()).binary(binary));
        // What is stored for the way that reads bases can be read whole by the other proxy.
        let merged = proxy(&[shape("merged", "merged"), shape("base", "merged")])?;
        let base = proxy(&[shape("base", "base")])?;
        let way = |name, kind, collection, address| Way {
            name,
            kind,
            collection,
            address,
            is_ours: matches!(kind, Kind::Merged | Kind::Base),
        };
        let all = vec![
            way("naive", Kind::Naive, "naive", mongod.address()),
            way("naive, relayed", Kind::Relayed, "relayed", merged.address()),
            way("mongoshape merged", Kind::Merged, "merged", merged.address()),
            way("mongoshape base", Kind::Base, "base", base.address()),
        ];
        Ok(Self {
            all,
            merged,
            base,
            mongod,
            retries,
        })
    }

    /// The plain one first.
    pub(super) fn all(&self) -> &[Way] {
        &self.all
    }

    /// Where mongod itself is.
    pub(super) fn direct(&self) -> SocketAddr {
        self.mongod.address()
    }

    /// Where a way's collection is read whole.
    pub(super) fn whole(&self, way: &Way) -> SocketAddr {
        if way.kind == Kind::Base {
            self.merged.address()
        } else {
            way.address
        }
    }

    /// The CPU time that mongod has used, and the proxy that the way leads through.
    pub(super) fn cpu_times(&self, way: &Way) -> Result<[Duration; 2]> {
        let proxy = match way.kind {
            Kind::Naive => None,
            Kind::Relayed | Kind::Merged => Some(self.merged.id()),
            Kind::Base => Some(self.base.id()),
        };
        let proxy = proxy.map(cpu_time).transpose()?.unwrap_or_default();
        let mongod = self.mongod.ids().into_iter().map(cpu_time).sum::<Result<_>>()?;
        Ok([mongod, proxy])
    }
}

fn shape(collection: &str, reads: &str) -> String {
    format!(
        "[[outlier]]\nnamespace = \"{DATABASE}.{collection}\"\narray = \"{BUYERS}\"\nthreshold = {THRESHOLD}\nreads = \"{reads}\"\n\
         extras = {{ collection = \"extra_{collection}\", ref = \"book_id\", max_items = 1000 }}\n"
    )
}
