//! Two proxies before one replica set. The first is connected through a relay that breaks connections.

use anyhow::Result;
use proto_tests::breaking_relay::BreakingRelay;
use proto_tests::{Level, Proxy, ProxyOptions, mongod};

pub(super) struct TwoProxies {
    pub(super) relay: BreakingRelay,
    pub(super) first: Proxy,
    pub(super) second: Proxy,
}

impl TwoProxies {
    pub(super) fn start(config: &str) -> Result<Self> {
        let set = mongod::shared_replica_set();
        let relay = BreakingRelay::to(set.address())?;
        let uri = |address| format!("mongodb://{address}/?directConnection=true");
        let first = Proxy::start(&ProxyOptions::new(&uri(relay.address())).config(config))?;
        let second = Proxy::start(&ProxyOptions::new(&uri(set.address())).config(config))?;
        first.expect_log(Level::Warn, "the upstream is not available");
        Ok(Self { relay, first, second })
    }
}
