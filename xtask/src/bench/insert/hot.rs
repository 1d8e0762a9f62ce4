//! One item per command, all of one key: by one connection, and by many through three proxies.

use std::io::Write as _;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, doc};
use proto_tests::{ItemIds, Proxy};

use super::Options;
use super::singles;
use crate::bench::by_hand::MAX_ITEMS;
use crate::bench::concurrent;
use crate::bench::load::{self, Figures};
use crate::bench::model::Model;
use crate::bench::place::{self, Place};
use crate::bench::servers::Servers;
use crate::bench::statistics::median;
use crate::bench::trades::{KEY, Trade, Trades};

/// The key.
const CUSTOMER: i32 = 1;
/// Proxies that the many come through.
const PROXIES: usize = 3;
/// The many.
const CONNECTIONS: usize = 32;

pub(super) fn run(servers: &mut Servers, options: &Options) -> Result<()> {
    println!(
        "\ninsertOne of one key by 1 connection, and by {CONNECTIONS} through {PROXIES} proxies: operations a second of all, \
         latencies in µs"
    );
    println!("connections  variant                ops/s      p50      p99  ops/1 connection");
    let mut variants = servers.variants();
    variants.retain(|variant| {
        matches!(
            variant.model,
            Model::Plain | Model::Shaped(ItemIds::Unique | ItemIds::Stored)
        )
    });
    let terms = options.terms("hot".to_owned(), 1);
    let mut trades = Trades::new();
    for variant in variants {
        let others = if variant.is_ours() { PROXIES - 1 } else { 0 };
        let others: Vec<Proxy> = (0..others).map(|_| servers.another(&variant)).collect::<Result<_>>()?;
        let mut addresses = vec![variant.address];
        addresses.extend(others.iter().map(Proxy::address));
        let mut place = Place::make(variant, &terms)?;
        let [mut alone, mut concurrent] = [Vec::new(), Vec::new()];
        for _ in 0..options.rounds {
            for (connections, addresses, figures) in [
                (1, &addresses[..1], &mut alone),
                (CONNECTIONS, &addresses, &mut concurrent),
            ] {
                let trades = next(&mut trades, options.items, connections);
                let measured = singles::measure(&mut place, &trades, (connections, addresses));
                figures.push(measured.with_context(|| place.variant.name)?);
            }
        }
        place.check()?;
        if place.variant.is_ours() {
            check_pages(servers, &place)?;
        }
        print(&place, &alone, &concurrent);
        std::io::stdout().flush()?;
    }
    place::drop_database(servers.direct(), &terms)
}

fn next(trades: &mut Trades, items: usize, connections: usize) -> Vec<Trade> {
    trades.of(CUSTOMER, concurrent::commands(items, connections))
}

/// Fails unless the key's pages are numbered without a gap and all but the last are full.
fn check_pages(servers: &Servers, place: &Place) -> Result<()> {
    let is_full = doc! { "$cond": [{ "$eq": ["$count", i32::from(MAX_ITEMS)] }, 1, 0] };
    let found = doc! {
        "_id": Bson::Null, "pages": { "$sum": 1 }, "full": { "$sum": is_full }, "highest": { "$max": "$control.page" },
    };
    let pipeline = [doc! { "$match": { KEY: CUSTOMER } }, doc! { "$group": found }];
    let command = doc! { "aggregate": place.variant.collection, "pipeline": pipeline.to_vec(), "cursor": {} };
    let reply = place.run_at(servers.direct(), command)?;
    let groups = reply.get_document("cursor")?.get_array("firstBatch")?;
    let found = groups.first().and_then(Bson::as_document).context("no pages")?;
    let [pages, full, highest] = ["pages", "full", "highest"].map(|field| found.get_i32(field));
    let expected = i32::try_from(place.items.div_ceil(MAX_ITEMS.into()))?;
    ensure!(
        pages? == expected && highest? + 1 == expected && full? + 1 >= expected,
        "{} has {found}, not {expected} pages that are full",
        place.variant.name
    );
    Ok(())
}

fn print(place: &Place, alone: &[Figures], concurrent: &[Figures]) {
    let times = load::ratio(concurrent, alone, |figures| figures.per_second);
    for (connections, rounds, times) in [
        (1, alone, String::new()),
        (CONNECTIONS, concurrent, format!("{times:.2}")),
    ] {
        let of = |figure: fn(&Figures) -> f64| median(rounds.iter().map(figure));
        let row = format!(
            "{connections:>11}  {:<19}{:>9.0}{:>9.0}{:>9.0}{times:>18}",
            place.variant.name,
            of(|figures| figures.per_second),
            of(|figures| figures.p50_us),
            of(|figures| figures.p99_us),
        );
        println!("{}", row.trim_end());
    }
}
