//! Crashes of proxies, at random.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use rand::RngExt as _;
use rand::rngs::StdRng;

use crate::Proxy;
use crate::balancer::Balancer;

/// What goes before a proxy is killed.
#[derive(Debug, Clone, Copy)]
pub struct Cuts {
    /// Links that are cut.
    pub number: u32,
    /// The longest time before each, in milliseconds.
    pub pause_ms: u64,
    /// How often that is one to mongod, and not one to a proxy.
    pub upstream: f64,
}

/// Cuts links to mongod (the first) and to the proxies (the second), then kills one of the proxies and starts it again.
pub fn crash(
    random: &mut StdRng,
    cuts: Cuts,
    [upstream, downstream]: [&Balancer; 2],
    proxies: &mut [Proxy],
) -> Result<()> {
    for _ in 0..cuts.number {
        thread::sleep(Duration::from_millis(random.random_range(0..cuts.pause_ms)));
        let link = if random.random_bool(cuts.upstream) {
            upstream
        } else {
            downstream
        };
        link.cut(|open| random.random_range(0..open));
    }
    let number = random.random_range(0..proxies.len());
    let proxy = &mut proxies[number];
    proxy.kill()?;
    proxy.restart()
}
