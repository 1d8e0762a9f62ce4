//! Proxies are killed and links cut at random moments, or primaries step down, while applications write.
//!
//! A run of the ordinary tests is short. The whole measure, 200 kills and 10 stepdowns, takes some minutes;
//! each run prints its seed, and takes one to run again:
//!
//! ```sh
//! MONGOSHAPE_CRASHES=full MONGOSHAPE_SEED=7 cargo test -p proto-tests --test writes exactly_once::crashes -- --nocapture
//! ```

use std::collections::HashMap;
use std::net::SocketAddr;

use anyhow::{Result, ensure};
use bson::doc;
use proto_tests::balancer::Balancer;
use proto_tests::crash::{Crashing, Cuts, expect_cuts};
use proto_tests::measure::{is_full, seed, show};
use proto_tests::raw::Connection;
use proto_tests::threads::Answered;
use proto_tests::{ItemIds, Mongod, Proxy, ProxyOptions, Shape, database_name, invariants};

use crate::exactly_once::writers::{Writers, Written};

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
        let (kills, stepdowns) = if is_full("MONGOSHAPE_CRASHES") {
            (200, 10)
        } else {
            (8, 1)
        };
        Self { kills, stepdowns }
    }
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
    expect_cuts(&proxy);
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
        ensure!(stored.is_empty(), "{collection}: {stored:?} were not acknowledged");
    }
    Ok(())
}

/// How many commands are answered between two disturbances.
const BETWEEN: u64 = 4;

/// Writes through a balancer before the proxies while `disturb` runs, and checks the stored documents then.
fn write_while(
    set: &Mongod,
    (address, database): (SocketAddr, &str),
    (seed, what): (u64, &str),
    disturb: impl FnOnce(&Answered) -> Result<()>,
) -> Result<Written> {
    let writers = Writers {
        address,
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

#[test]
fn crashes_of_proxies_lose_and_double_nothing() -> Result<()> {
    let seed = seed();
    let set = Mongod::replica_set(1)?;
    let database = database_name();
    // Between the proxies and mongod, so that those links can be cut too.
    let upstream = Balancer::before(vec![set.address()])?;
    let uri = format!("mongodb://{}/?directConnection=true", upstream.address());
    let proxies = [start(&uri, &database)?, start(&uri, &database)?];
    let mut crashing = Crashing::new((seed, Cuts::FREQUENT), upstream, proxies)?;
    let kills = Measure::chosen().kills;
    let what = format!("{kills} kills");
    let written = write_while(&set, (crashing.address(), &database), (seed, &what), |answered| {
        for _ in 0..kills {
            crashing.crash()?;
            answered.wait_for(BETWEEN, || true)?;
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
    let downstream = Balancer::before(proxies.iter().map(Proxy::address).collect())?;
    let stepdowns = Measure::chosen().stepdowns;
    let what = format!("{stepdowns} stepdowns");
    write_while(&set, (downstream.address(), &database), (seed, &what), |answered| {
        for _ in 0..stepdowns {
            answered.wait_for(BETWEEN, || true)?;
            set.step_down(5)?;
            set.primary()?;
            answered.wait_for(BETWEEN, || true)?;
        }
        Ok(())
    })?;
    Ok(())
}
