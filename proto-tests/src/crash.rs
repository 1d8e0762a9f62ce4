//! Kills proxies at random times.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::balancer::Balancer;
use crate::{Level, Mongod, Proxy, ProxyOptions};

/// The broken connections before a proxy is killed.
#[derive(Debug, Clone, Copy)]
pub struct Cuts {
    /// Links that are cut.
    pub number: u32,
    /// The longest time before each, in milliseconds.
    pub pause_ms: u64,
    /// How often that is one to mongod, and not one to a proxy.
    pub upstream: f64,
}

impl Cuts {
    /// Three links in about 60 ms, half of them to mongod.
    pub const FREQUENT: Self = Self {
        number: 3,
        pause_ms: 40,
        upstream: 0.5,
    };
}

/// Two proxies that crash at random: behind one address, and before mongod by links that can be cut too.
#[derive(Debug)]
pub struct Crashing {
    random: StdRng,
    cuts: Cuts,
    upstream: Balancer,
    downstream: Balancer,
    proxies: [Proxy; 2],
}

impl Crashing {
    /// The proxies have this balancer as their upstream.
    pub fn new((seed, cuts): (u64, Cuts), upstream: Balancer, proxies: [Proxy; 2]) -> Result<Self> {
        Ok(Self {
            random: StdRng::seed_from_u64(seed),
            cuts,
            upstream,
            downstream: Balancer::before(proxies.iter().map(Proxy::address).collect())?,
            proxies,
        })
    }

    /// Starts two proxies with this configuration before a replica set of one.
    pub fn start(seed: u64, set: &Mongod, config: &str) -> Result<Self> {
        // Between the proxies and mongod, so that those links can be cut too.
        let upstream = Balancer::before(vec![set.address()])?;
        let uri = format!("mongodb://{}/?directConnection=true", upstream.address());
        let start = || -> Result<Proxy> {
            let proxy = Proxy::start(&ProxyOptions::new(&uri).config(config))?;
            expect_cuts(&proxy);
            Ok(proxy)
        };
        let proxies = [start()?, start()?];
        Self::new((seed, Cuts::FREQUENT), upstream, proxies)
    }

    /// The address before the proxies.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.downstream.address()
    }

    /// Cuts links to mongod and to the proxies, then kills one of the proxies and starts it again.
    pub fn crash(&mut self) -> Result<()> {
        for _ in 0..self.cuts.number {
            thread::sleep(Duration::from_millis(self.random.random_range(0..self.cuts.pause_ms)));
            let link = if self.random.random_bool(self.cuts.upstream) {
                &self.upstream
            } else {
                &self.downstream
            };
            link.cut(|open| self.random.random_range(0..open));
        }
        let number = self.random.random_range(0..self.proxies.len());
        let proxy = &mut self.proxies[number];
        proxy.kill()?;
        proxy.restart()
    }
}

/// Expects a proxy's warnings about broken connections to mongod and about a lost primary.
pub fn expect_cuts(proxy: &Proxy) {
    for expected in [
        "the upstream is not available",
        "the upstream's primary has stepped down",
        "the upstream has no primary",
    ] {
        proxy.expect_log(Level::Warn, expected);
    }
}
