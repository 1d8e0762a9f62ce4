//! The measured servers, and the ways to store trades in them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use proto_tests::{ItemIds, Mongod, Proxy, ProxyOptions, Shape, mongod};

use super::client::Retries;
use super::haproxy::HaProxy;
use super::model::Model;
use super::process::cpu_time;
use super::trades::{KEY, TIME};

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

/// What servers are to be.
#[derive(Debug)]
pub(super) struct Setup<'a> {
    pub(super) retries: Retries,
    /// mongod's, in GB: all that is measured is to fit.
    pub(super) cache_gb: f32,
    /// The settings of `item_ids` that there is a mongoshape for.
    pub(super) item_ids: &'a [ItemIds],
    /// The binary of mongoshape.
    pub(super) binary: &'a Path,
}

/// The collection of a setting, in every database.
fn collection(item_ids: ItemIds) -> &'static str {
    match item_ids {
        ItemIds::Unique => "unique",
        ItemIds::Stored => "stored",
        ItemIds::Dropped => "dropped",
    }
}

/// Running servers. They are stopped when dropped, a proxy before its upstream.
#[derive(Debug)]
pub(super) struct Servers {
    /// One for each setting: what it remembers of keys is of one collection, as if there were no others.
    proxies: Vec<(Way, Proxy)>,
    haproxy: Option<HaProxy>,
    mongod: Mongod,
    binary: PathBuf,
}

impl Servers {
    pub(super) fn start(setup: &Setup<'_>) -> Result<Self> {
        let mut options = mongod::Options::default();
        options.cache_gb = setup.cache_gb;
        let mongod = match setup.retries {
            Retries::None => options.standalone()?,
            Retries::Numbered => options.replica_set(1)?,
        };
        let mut servers = Self {
            proxies: Vec::new(),
            haproxy: None,
            mongod,
            binary: setup.binary.to_owned(),
        };
        for item_ids in setup.item_ids {
            let collection = collection(*item_ids);
            let proxy = servers.proxy(*item_ids, collection)?;
            let way = way(Model::Shaped(*item_ids), collection, proxy.address());
            servers.proxies.push((way, proxy));
        }
        Ok(servers)
    }

    /// Starts HAProxy too, where it is installed.
    pub(super) fn start_haproxy(&mut self) -> Result<()> {
        self.haproxy = HaProxy::start(self.mongod.address())?;
        if self.haproxy.is_none() {
            println!("haproxy is not on PATH: measured without it");
        }
        Ok(())
    }

    fn proxy(&self, item_ids: ItemIds, collection: &str) -> Result<Proxy> {
        let proxy = ProxyOptions::new(&self.mongod.uri()).config(&shape(item_ids, collection));
        Proxy::start(&proxy.binary(&self.binary))
    }

    /// Another proxy for a way of mongoshape's, beside the one that it has.
    pub(super) fn another(&self, way: &Way) -> Result<Proxy> {
        let Model::Shaped(item_ids) = way.model else {
            bail!("{} has no proxy", way.name);
        };
        self.proxy(item_ids, way.collection)
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

    /// The same, and the cost of a proxy that only relays bytes of a plain collection.
    pub(super) fn ways_with_haproxy(&self) -> Vec<Way> {
        let mut ways = self.ways();
        ways.extend(self.haproxy.as_ref().map(|haproxy| Way {
            name: "naive, HAProxy",
            ..way(Model::Naive, "naive_haproxy", haproxy.address)
        }));
        ways.sort_by_key(|way| way.model != Model::Naive);
        ways
    }

    /// The process of the mongoshape that the way leads through.
    pub(super) fn mongoshape(&self, way: &Way) -> Option<u32> {
        let mut proxies = self.proxies.iter().map(|(way, proxy)| (way.address, proxy.id()));
        proxies.find_map(|(address, id)| (address == way.address).then_some(id))
    }

    /// The CPU time that mongod has used, and the proxy that the way leads through.
    pub(super) fn cpu_times(&self, way: &Way) -> Result<[Duration; 2]> {
        let ours = self.mongoshape(way);
        let haproxy = self.haproxy.as_ref();
        let haproxy = haproxy.and_then(|haproxy| (haproxy.address == way.address).then_some(haproxy.id()));
        let proxy = ours.or(haproxy).map(cpu_time).transpose()?.unwrap_or_default();
        let mongod = self.mongod.ids().into_iter().map(cpu_time).sum::<Result<_>>()?;
        Ok([mongod, proxy])
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
