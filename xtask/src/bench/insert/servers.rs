//! The servers that are measured, and the ways to store trades in them.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;
use proto_tests::{ItemIds, Mongod, Proxy, ProxyOptions, Shape, mongod};

use super::client::Retries;
use super::model::Model;
use super::trades::{KEY, TIME};
use crate::bench::haproxy::HaProxy;

/// A way to store trades.
#[derive(Debug, Clone)]
pub(super) struct Way {
    pub(super) name: &'static str,
    pub(super) model: Model,
    /// Of a collection of its own in every database.
    pub(super) collection: &'static str,
    pub(super) address: SocketAddr,
}

impl Way {
    /// Whether it is mongoshape's.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self.model, Model::Shaped(_))
    }
}

/// The settings of `item_ids`, and the collections that have them.
const SHAPES: [(ItemIds, &str); 3] = [
    (ItemIds::Unique, "unique"),
    (ItemIds::Stored, "stored"),
    (ItemIds::Dropped, "dropped"),
];

/// Running servers; they end when dropped, a proxy before what it stands before.
#[derive(Debug)]
pub(super) struct Servers {
    /// One for each setting: what it remembers of keys is of one collection, as if there were no others.
    proxies: Vec<(Way, Proxy)>,
    haproxy: Option<HaProxy>,
    mongod: Mongod,
}

impl Servers {
    pub(super) fn start(retries: Retries, binary: &Path) -> Result<Self> {
        let mut options = mongod::Options::default();
        // All that is measured fits.
        options.cache_gb = 1.0;
        let mongod = match retries {
            Retries::None => options.standalone()?,
            Retries::Numbered => options.replica_set(1)?,
        };
        let haproxy = HaProxy::start(mongod.address())?;
        if haproxy.is_none() {
            println!("haproxy is not on PATH: measured without it");
        }
        let start = |(item_ids, collection)| {
            let proxy = ProxyOptions::new(&mongod.uri()).config(&shape(item_ids, collection));
            let proxy = Proxy::start(&proxy.binary(binary))?;
            Ok((way(Model::Shaped(item_ids), collection, proxy.address()), proxy))
        };
        Ok(Self {
            proxies: SHAPES.into_iter().map(start).collect::<Result<_>>()?,
            haproxy,
            mongod,
        })
    }

    /// Where mongod itself is.
    pub(super) fn direct(&self) -> SocketAddr {
        self.mongod.address()
    }

    /// Every model by the shortest way.
    pub(super) fn ways(&self) -> Vec<Way> {
        let direct = |model, collection| way(model, collection, self.direct());
        let mut ways = vec![
            direct(Model::Naive, "naive"),
            direct(Model::TimeSeries, "time_series"),
            direct(Model::ByHand, "by_hand"),
        ];
        ways.extend(self.proxies.iter().map(|(way, _)| way.clone()));
        ways
    }

    /// The same, and what a proxy in the naive way costs that only passes bytes on.
    pub(super) fn ways_with_haproxy(&self) -> Vec<Way> {
        let mut ways = self.ways();
        ways.extend(self.haproxy.as_ref().map(|haproxy| Way {
            name: "naive, HAProxy",
            ..way(Model::Naive, "naive_haproxy", haproxy.address)
        }));
        ways.sort_by_key(|way| way.model != Model::Naive);
        ways
    }

    /// Starts the proxies again, so that they know of no key which page is its highest.
    pub(super) fn forget(&mut self) -> Result<()> {
        for (_, proxy) in &mut self.proxies {
            proxy.stop()?;
            proxy.restart()?;
        }
        Ok(())
    }
}

fn way(model: Model, collection: &'static str, address: SocketAddr) -> Way {
    Way {
        name: model.name(),
        model,
        collection,
        address,
    }
}

/// The pattern as it is done by hand: the same key, the same renamed field, ten items a page.
fn shape(item_ids: ItemIds, collection: &str) -> String {
    let shape = Shape {
        time: Some(TIME.to_owned()),
        rename: vec![("quantity".to_owned(), "qty".to_owned())],
        item_ids,
        ..Shape::new(&[KEY])
    };
    shape.toml(&format!("*.{collection}"))
}
