//! Applications on two proxies that insert, change, move and delete items of the same keys at once.
//!
//! Each acknowledged write is recorded, and the collection must contain it afterwards: see [`ledger`]. The second test
//! kills proxies and cuts connections, and the applications resend commands without a reply. The third test does the
//! same on a sharded collection of the model of a cluster. It also moves ranges and makes shards step down.
//!
//! A run of the ordinary tests is short. The whole measure takes a minute each; each run prints its seed, and
//! takes one to run again:
//!
//! ```sh
//! MONGOSHAPE_CHURN=full MONGOSHAPE_SEED=7 cargo test -p proto-tests --test soak buckets -- --nocapture
//! ```

mod application;
mod fixture;
mod ledger;
mod own;
mod queue;
mod shared;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use proto_tests::balancer::Balancer;
use proto_tests::crash::{Crashing, Cuts};
use proto_tests::measure::{is_full, seed, show};
use proto_tests::{Proxy, cluster, mongod};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};

use crate::buckets::fixture::Fixture;

const CUTS: Cuts = Cuts {
    number: 6,
    pause_ms: 60,
    upstream: 0.4,
};

/// For how long. `ordinary`: the seconds of an ordinary run.
fn time(ordinary: u64) -> Duration {
    Duration::from_secs(if is_full("MONGOSHAPE_CHURN") { 60 } else { ordinary })
}

#[test]
fn nothing_is_lost_or_doubled_between_sixteen_applications_on_two_proxies() -> Result<()> {
    let seed = seed();
    let fixture = Fixture::new(mongod::shared_replica_set().address());
    let proxies = fixture.proxies()?;
    let addresses = proxies.each_ref().map(Proxy::address);
    let until = Instant::now() + time(3);
    let ledger = fixture.run(seed, &addresses, |_| {
        thread::sleep(until.saturating_duration_since(Instant::now()));
        Ok(())
    })?;
    show(&ledger.summary());
    ensure!(ledger.resent == 0, "connections broke");
    fixture.judge(&ledger, &[])
}

#[test]
fn nothing_is_lost_or_doubled_when_proxies_are_killed() -> Result<()> {
    let seed = seed();
    // Between the proxies and mongod, so that those links can be cut too.
    let upstream = Balancer::before(vec![mongod::shared_replica_set().address()])?;
    let fixture = Fixture::retrying(upstream.address());
    let mut crashing = Crashing::new((seed, CUTS), upstream, fixture.proxies()?)?;
    let until = Instant::now() + time(3);
    let ledger = fixture.run(seed, &[crashing.address()], |answered| {
        while Instant::now() < until {
            crashing.crash()?;
            answered.wait_for(8, || true)?;
        }
        Ok(())
    })?;
    show(&ledger.summary());
    ensure!(ledger.resent > 0, "nothing was disturbed");
    // Remains of a crash: the page is valid, and the next delete removes it.
    fixture.judge(&ledger, &["the highest page is empty"])
}

#[test]
fn nothing_is_lost_or_doubled_on_a_sharded_cluster() -> Result<()> {
    let seed = seed();
    let cluster = cluster::shared();
    let upstream = Balancer::before(cluster.router_addresses().to_vec())?;
    let fixture = Fixture::sharded(cluster, upstream.address())?;
    let mut crashing = Crashing::new((seed, CUTS), upstream, fixture.proxies()?)?;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let until = Instant::now() + time(5);
    let ledger = fixture.run(seed, &[crashing.address()], |answered| {
        while Instant::now() < until {
            crashing.crash()?;
            for _ in 0..4 {
                cluster.move_any(&fixture.namespace(), &mut random)?;
            }
            if random.random_bool(0.3) {
                cluster.step_down(random.random_range(0..cluster.shards().len()))?;
            }
            answered.wait_for(40, || true)?;
        }
        Ok(())
    })?;
    show(&ledger.summary());
    ensure!(ledger.resent > 0, "nothing was disturbed");
    fixture.judge(&ledger, &["the highest page is empty"])
}
