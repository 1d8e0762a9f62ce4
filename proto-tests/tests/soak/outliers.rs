//! Applications on two proxies that push buyers to the same few books while others read them, and what is
//! there in the end.
//!
//! In the second kind of test proxies are killed and links cut meanwhile, and what was not answered is sent
//! again. A run of the ordinary tests is short; the whole measure pushes 50,000 buyers. Each run prints its
//! seed, and takes one to run again, as far as threads allow:
//!
//! ```sh
//! MONGOSHAPE_CHURN=full MONGOSHAPE_SEED=7 cargo test -p proto-tests --test soak outliers -- --nocapture
//! ```

mod fixture;
mod ledger;
mod measure;
mod mix;
mod reader;
mod writer;

use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};
use proto_tests::balancer::Balancer;
use proto_tests::crash::{Crashing, Cuts};
use proto_tests::measure::{seed, show};
use proto_tests::retrying::Retries;
use proto_tests::{Proxy, mongod};

use crate::outliers::fixture::Fixture;
use crate::outliers::measure::Measure;

const CUTS: Cuts = Cuts {
    number: 6,
    pause_ms: 60,
    upstream: 0.4,
};

/// Buyers are pushed while others read, and each is there once.
fn every_buyer_is_there_once(threshold: usize, max_items: usize) -> Result<()> {
    let seed = seed();
    let fixture = Fixture::new(
        (threshold, max_items),
        (mongod::shared_replica_set().address(), Retries::None),
    );
    let proxies = fixture.proxies()?;
    let addresses = proxies.each_ref().map(Proxy::address);
    let measure = Measure::chosen();
    let summary = fixture.run((seed, measure), &addresses, |_| Ok(()))?;
    show(&summary);
    fixture.judge()
}

#[test]
fn each_pushed_element_is_stored_once_in_pages_of_1000() -> Result<()> {
    every_buyer_is_there_once(50, 1000)
}

#[test]
fn each_pushed_element_is_stored_once_in_small_pages() -> Result<()> {
    every_buyer_is_there_once(5, 7)
}

#[test]
fn each_pushed_element_is_stored_once_when_proxies_are_killed() -> Result<()> {
    let seed = seed();
    // Between the proxies and mongod, so that those links can be cut too.
    let upstream = Balancer::before(vec![mongod::shared_replica_set().address()])?;
    let fixture = Fixture::new((50, 100), (upstream.address(), Retries::Writes));
    let mut crashing = Crashing::new((seed, CUTS), upstream, fixture.proxies()?)?;
    let measure = Measure::chosen();
    let mut kills = 0;
    let summary = fixture.run((seed, measure), &[crashing.address()], |progress| {
        while progress.goes_on() {
            crashing.crash()?;
            kills += 1;
            progress.wait_for_some()?;
        }
        Ok(())
    })?;
    show(&format!("{summary}, {kills} kills"));
    ensure!(fixture.ledger.resent() > 0, "nothing was disturbed");
    fixture.judge()
}

#[test]
fn mixed_updates_have_the_expected_totals() -> Result<()> {
    let seed = seed();
    let fixture = Fixture::new((5, 7), (mongod::shared_replica_set().address(), Retries::None));
    let proxies = fixture.proxies()?;
    let addresses = proxies.each_ref().map(Proxy::address);
    let (done, resent) = mix::run(&fixture, seed, &addresses, |_| {
        thread::sleep(Measure::chosen().time);
        Ok(())
    })?;
    show(&format!("{done} commands"));
    ensure!(resent == 0, "connections broke");
    fixture.judge_layout()
}

#[test]
fn mixed_updates_have_the_expected_totals_when_proxies_are_killed() -> Result<()> {
    let seed = seed();
    let upstream = Balancer::before(vec![mongod::shared_replica_set().address()])?;
    let fixture = Fixture::new((5, 7), (upstream.address(), Retries::Writes));
    let mut crashing = Crashing::new((seed, CUTS), upstream, fixture.proxies()?)?;
    let until = Instant::now() + Measure::chosen().time;
    let (done, resent) = mix::run(&fixture, seed, &[crashing.address()], |wait| {
        while Instant::now() < until {
            crashing.crash()?;
            wait()?;
        }
        Ok(())
    })?;
    show(&format!("{done} commands, {resent} of them sent again"));
    ensure!(resent > 0, "nothing was disturbed");
    fixture.judge_layout()
}
