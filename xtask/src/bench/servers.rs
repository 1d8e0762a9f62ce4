//! The measured servers, and the variants to store trades.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use proto_tests::{ItemIds, Mongod, Proxy, ProxyOptions, Shape, mongod};

use super::haproxy::HaProxy;
use super::model::Model;
use super::process::cpu_time;
use super::trades::{KEY, TIME};

/// A measured variant: a data model in a collection, at an address.
#[derive(Debug, Clone)]
pub(super) struct Variant {
    pub(super) name: &'static str,
    pub(super) model: Model,
    /// Of a collection of its own in every database.
    pub(super) collection: &'static str,
    pub(super) address: SocketAddr,
}

impl Variant {
    /// Whether it is mongoshape's.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self.model, Model::Shaped(_))
    }
}

/// What servers are to be.
#[derive(Debug)]
pub(super) struct Setup<'a> {
    /// A replica set of one instead of a standalone.
    pub(super) replica_set: bool,
    /// mongod's, in GB: all that is measured is to fit.
    pub(super) cache_gb: f32,
    /// The settings of `item_ids` that there is a mongoshape for.
    pub(super) item_ids: &'a [ItemIds],
    /// The binary of mongoshape.
    pub(super) binary: &'a Path,
}

/// Running servers. They are stopped when dropped, a proxy before its upstream.
#[derive(Debug)]
pub(super) struct Servers {
    /// One for each setting: what it remembers of keys is of one collection, as if there were no others.
    proxies: Vec<(Variant, Proxy)>,
    haproxy: Option<HaProxy>,
    mongod: Mongod,
    binary: PathBuf,
}

impl Servers {
    pub(super) fn start(setup: &Setup<'_>) -> Result<Self> {
        let options = mongod::Options::for_measurements(setup.cache_gb);
        let mongod = if setup.replica_set {
            options.replica_set(1)?
        } else {
            options.standalone()?
        };
        let mut servers = Self {
            proxies: Vec::new(),
            haproxy: None,
            mongod,
            binary: setup.binary.to_owned(),
        };
        for item_ids in setup.item_ids {
            // The collection of a setting, in every database.
            let collection = item_ids.name();
            let proxy = servers.proxy(*item_ids, collection)?;
            let variant = variant(Model::Shaped(*item_ids), collection, proxy.address());
            servers.proxies.push((variant, proxy));
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

    /// A second proxy for a variant of mongoshape's.
    pub(super) fn another(&self, variant: &Variant) -> Result<Proxy> {
        let Model::Shaped(item_ids) = variant.model else {
            bail!("{} has no proxy", variant.name);
        };
        self.proxy(item_ids, variant.collection)
    }

    /// Where mongod itself is.
    pub(super) fn direct(&self) -> SocketAddr {
        self.mongod.address()
    }

    /// Every model, without HAProxy.
    pub(super) fn variants(&self) -> Vec<Variant> {
        let direct = |model, collection| variant(model, collection, self.direct());
        let mut variants = vec![
            direct(Model::Plain, "plain"),
            direct(Model::TimeSeries, "time_series"),
            direct(Model::ByHand, "by_hand"),
        ];
        variants.extend(self.proxies.iter().map(|(variant, _)| variant.clone()));
        variants
    }

    /// The same, and the cost of a proxy that only relays bytes of a plain collection.
    pub(super) fn variants_with_haproxy(&self) -> Vec<Variant> {
        let mut variants = self.variants();
        variants.extend(self.haproxy.as_ref().map(|haproxy| Variant {
            name: "plain, HAProxy",
            ..variant(Model::Plain, "plain_haproxy", haproxy.address)
        }));
        variants.sort_by_key(|variant| variant.model != Model::Plain);
        variants
    }

    /// The process of the variant's mongoshape.
    pub(super) fn mongoshape(&self, variant: &Variant) -> Option<u32> {
        let mut proxies = self
            .proxies
            .iter()
            .map(|(variant, proxy)| (variant.address, proxy.id()));
        proxies.find_map(|(address, id)| (address == variant.address).then_some(id))
    }

    /// The CPU time that mongod and the variant's proxy have used.
    pub(super) fn cpu_times(&self, variant: &Variant) -> Result<[Duration; 2]> {
        let ours = self.mongoshape(variant);
        let haproxy = self.haproxy.as_ref();
        let haproxy = haproxy.and_then(|haproxy| (haproxy.address == variant.address).then_some(haproxy.id()));
        let proxy = ours.or(haproxy).map(cpu_time).transpose()?.unwrap_or_default();
        let mongod = self.mongod.ids().into_iter().map(cpu_time).sum::<Result<_>>()?;
        Ok([mongod, proxy])
    }

    /// Restarts the proxies, so that their head page caches are empty.
    pub(super) fn forget(&mut self) -> Result<()> {
        for (_, proxy) in &mut self.proxies {
            proxy.stop()?;
            proxy.restart()?;
        }
        Ok(())
    }
}

fn variant(model: Model, collection: &'static str, address: SocketAddr) -> Variant {
    Variant {
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
