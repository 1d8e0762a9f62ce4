//! The servers, and the measured variants of the catalogue.

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
    Plain,
    Relayed,
    Merged,
    Base,
}

/// A measured variant: a catalogue at an address.
#[derive(Debug)]
pub(super) struct Variant {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) collection: &'static str,
    pub(super) address: SocketAddr,
    /// Whether it is in the outlier pattern.
    pub(super) is_ours: bool,
}

/// Running servers. They are stopped when dropped, proxies before their upstreams.
#[derive(Debug)]
pub(super) struct Variants {
    all: Vec<Variant>,
    merged: Proxy,
    base: Proxy,
    mongod: Mongod,
    pub(super) retries: Retries,
}

impl Variants {
    pub(super) fn start(binary: &Path, retries: Retries) -> Result<Self> {
        let options = mongod::Options::for_measurements(CACHE_GB);
        let mongod = match retries {
            Retries::None => options.standalone()?,
            Retries::Numbered => options.replica_set(1)?,
        };
        let proxy =
            |shapes: &[String]| Proxy::start(&ProxyOptions::new(&mongod.uri()).config(&shapes.concat()).binary(binary));
        // The proxy with merged reads has the collection of the base variant too, to read its whole documents.
        let merged = proxy(&[shape("merged", "merged"), shape("base", "merged")])?;
        let base = proxy(&[shape("base", "base")])?;
        let variant = |name, kind, collection, address| Variant {
            name,
            kind,
            collection,
            address,
            is_ours: matches!(kind, Kind::Merged | Kind::Base),
        };
        let all = vec![
            variant("plain", Kind::Plain, "plain", mongod.address()),
            variant("plain, relayed", Kind::Relayed, "relayed", merged.address()),
            variant("mongoshape merged", Kind::Merged, "merged", merged.address()),
            variant("mongoshape base", Kind::Base, "base", base.address()),
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
    pub(super) fn all(&self) -> &[Variant] {
        &self.all
    }

    /// Where mongod itself is.
    pub(super) fn direct(&self) -> SocketAddr {
        self.mongod.address()
    }

    /// The address that returns a variant's whole documents.
    pub(super) fn whole(&self, variant: &Variant) -> SocketAddr {
        if variant.kind == Kind::Base {
            self.merged.address()
        } else {
            variant.address
        }
    }

    /// The CPU time that mongod and the variant's proxy have used.
    pub(super) fn cpu_times(&self, variant: &Variant) -> Result<[Duration; 2]> {
        let proxy = match variant.kind {
            Kind::Plain => None,
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
