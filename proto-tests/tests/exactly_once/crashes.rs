//! Proxies are killed and links cut at random moments, or primaries step down, while applications write.
//!
//! A run of the ordinary tests is short. The whole measure, 200 kills and 10 stepdowns, takes some minutes; each run prints
//! its seed, and takes one to run again:
//!
//! ```sh
//! MONGOSHAPE_CRASHES=full MONGOSHAPE_SEED=7 cargo test -p proto-tests --test exactly_once crashes -- --nocapture
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bson::doc;
use proto_tests::balancer::Balancer;
use proto_tests::crash::{Cuts, crash};
use proto_tests::raw::Connection;
use proto_tests::{ItemIds, Level, Mongod, Proxy, ProxyOptions, Shape, database_name, invariants};
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use crate::writers::{Writers, Written};

const CUTS: Cuts = Cuts {
    number: 3,
    pause_ms: 40,
    upstream: 0.5,
};

const COLLECTIONS: [(&str, ItemIds); 3] = [
    ("unique", ItemIds::Unique),
    ("stored", ItemIds::Stored),
    ("dropped", ItemIds::Dropped),
];

/// How much happens.
struct Measure {
    kills: u32,
    stepdowns: u32,
}

impl Measure {
    fn chosen() -> Self {
        match std::env::var("MONGOSHAPE_CRASHES").as_deref() {
            Ok("full") => Self {
                kills: 200,
                stepdowns: 10,
            },
            _ => Self { kills: 8, stepdowns: 2 },
        }
    }
}

/// The seed of a run, which says how to see it again.
fn seed() -> u64 {
    let given = std::env::var("MONGOSHAPE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| rand::random_range(1..1_000_000));
    show(&format!("MONGOSHAPE_SEED={seed}"));
    seed
}

fn shape(item_ids: ItemIds) -> Shape {
    Shape {
        item_ids,
        time: Some("date".to_owned()),
        ..Shape::new(&["k"])
    }
}

fn start(uri: &str, database: &str) -> Result<Proxy> {
    let tables = COLLECTIONS.map(|(name, item_ids)| shape(item_ids).toml(&format!("{database}.{name}")));
    let proxy = Proxy::start(&ProxyOptions::new(uri).config(&tables.join("\n")))?;
    for expected in [
        "the upstream is gone",
        "the upstream's primary is none any more",
        "the upstream has no primary",
    ] {
        proxy.expect_log(Level::Warn, expected);
    }
    Ok(proxy)
}

/// Everything that was acknowledged is stored once, nothing else is, and the buckets are in order.
fn judge(set: &Mongod, database: &str, written: &Written) -> Result<()> {
    let primary = set.addresses()[set.primary()?];
    let mut mongod = Connection::open(primary)?;
    for (collection, item_ids) in COLLECTIONS {
        let shape = shape(item_ids);
        invariants::check(&mut mongod, database, collection, &shape)?;
        let mut stored: HashMap<i64, usize> = HashMap::new();
        for bucket in mongod.find(database, collection, doc! {})? {
            for item in bucket
                .get_array(&shape.items)?
                .iter()
                .filter_map(|item| item.as_document())
            {
                *stored.entry(item.get_i64("n")?).or_default() += 1;
            }
        }
        let acknowledged = written.items.iter().filter(|(name, _)| name == collection);
        for (_, item) in acknowledged {
            ensure!(
                stored.remove(item) == Some(1),
                "{collection}: {item} was acknowledged and is not there once"
            );
        }
        ensure!(stored.is_empty(), "{collection}: nobody was told of {stored:?}");
    }
    Ok(())
}

/// Waits until so many more commands have been answered.
fn wait_for_progress(answered: &AtomicU64) -> Result<()> {
    let before = answered.load(Ordering::Relaxed);
    let deadline = Instant::now() + Duration::from_mins(1);
    while answered.load(Ordering::Relaxed) < before + 4 {
        ensure!(Instant::now() < deadline, "the writers do not get on");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// One line for who runs this by hand; the test runner hides it otherwise.
#[expect(
    clippy::print_stdout,
    reason = "the test's own output, which the test runner captures"
)]
fn show(text: &str) {
    println!("{text}");
}

/// Writes through a balancer before the proxies while `disturb` goes on, and judges what the set holds then.
fn write_while(
    set: &Mongod,
    (downstream, database): (&Balancer, &str),
    (seed, what): (u64, &str),
    disturb: impl FnOnce(&AtomicU64) -> Result<()>,
) -> Result<Written> {
    let writers = Writers {
        address: downstream.address(),
        database,
        collections: &COLLECTIONS.map(|(name, _)| name),
        seed,
    };
    let written = writers.write_while(disturb)?;
    show(&format!(
        "{what}: {} items acknowledged, {} commands sent again",
        written.items.len(),
        written.resent
    ));
    judge(set, database, &written)?;
    Ok(written)
}

fn before(proxies: &[Proxy]) -> Result<Balancer> {
    Balancer::before(proxies.iter().map(Proxy::address).collect())
}

#[test]
fn crashes_of_proxies_lose_and_double_nothing() -> Result<()> {
    let seed = seed();
    let mut random = StdRng::seed_from_u64(seed);
    let set = Mongod::replica_set(1)?;
    let database = database_name();
    // Between the proxies and mongod, so that those links can be cut too.
    let upstream = Balancer::before(vec![set.address()])?;
    let uri = format!("mongodb://{}/?directConnection=true", upstream.address());
    let mut proxies = [start(&uri, &database)?, start(&uri, &database)?];
    let downstream = before(&proxies)?;
    let kills = Measure::chosen().kills;
    let what = format!("{kills} kills");
    let written = write_while(&set, (&downstream, &database), (seed, &what), |answered| {
        for _ in 0..kills {
            crash(&mut random, CUTS, [&upstream, &downstream], &mut proxies)?;
            wait_for_progress(answered)?;
        }
        Ok(())
    })?;
    ensure!(written.resent > 0, "nothing was disturbed");
    Ok(())
}

#[test]
fn crashes_of_primaries_lose_and_double_nothing() -> Result<()> {
    let seed = seed();
    let set = Mongod::replica_set(3)?;
    let database = database_name();
    let proxies = [start(&set.uri(), &database)?, start(&set.uri(), &database)?];
    let downstream = before(&proxies)?;
    let stepdowns = Measure::chosen().stepdowns;
    let what = format!("{stepdowns} stepdowns");
    write_while(&set, (&downstream, &database), (seed, &what), |answered| {
        for _ in 0..stepdowns {
            wait_for_progress(answered)?;
            set.step_down(5)?;
            set.primary()?;
            wait_for_progress(answered)?;
        }
        Ok(())
    })?;
    Ok(())
}
