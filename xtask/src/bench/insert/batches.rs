//! Many items in a command, and their memory and disk usage.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::Options;
use crate::bench::client::Client;
use crate::bench::model::Model;
use crate::bench::place::{self, Place, Terms, as_f64};
use crate::bench::servers::Servers;
use crate::bench::table::{Quantity, Row, print_group, print_heading};
use crate::bench::trades::{Trade, Trades};

/// Items in a command.
const BATCH: usize = 1000;

/// The variants over one number of keys.
struct Comparison {
    keys: u32,
    places: Vec<Place>,
    trades: Trades,
    /// What every collection has in it before anything is measured.
    filling: Vec<Trade>,
    terms: Terms,
}

pub(super) fn run(servers: &mut Servers, options: &Options) -> Result<()> {
    println!("\ninsertMany of {BATCH} items, ordered, over 1 connection: µs an item");
    let variants = servers.variants();
    print_heading("keys", &["µs/item"], &variants);
    let mut sizes = Vec::new();
    for keys in &options.keys {
        let mut comparison = Comparison::prepare(servers, options, *keys)?;
        let times = comparison.measure(options, servers.direct())?;
        print_group(&keys.to_string(), &times, Quantity::Time);
        std::io::stdout().flush()?;
        sizes.push((keys, comparison.sizes(servers.direct())?));
        place::drop_database(servers.direct(), &comparison.terms)?;
    }
    println!(
        "\nwhat they take then, in bytes an item: data as it is, as it is stored (compressed), indexes, both on disk"
    );
    print_heading("keys", &["data", "stored", "indexes", "on disk"], &variants);
    for (keys, rows) in sizes {
        print_group(&keys.to_string(), &rows, Quantity::Space);
    }
    Ok(())
}

impl Comparison {
    /// Makes and fills the collections.
    fn prepare(servers: &mut Servers, options: &Options, keys: u32) -> Result<Self> {
        let terms = options.terms(format!("batches_{keys}"), keys);
        let mut trades = Trades::new();
        let filling = trades.among(keys, options.filling(keys));
        let mut places = Vec::new();
        for variant in servers.variants() {
            let mut place = Place::make(variant, &terms)?;
            place.fill(&filling).with_context(|| place.variant.name)?;
            places.push(place);
        }
        options.settle(servers)?;
        Ok(Self {
            keys,
            places,
            trades,
            filling,
            terms,
        })
    }

    fn measure(&mut self, options: &Options, mongod: SocketAddr) -> Result<Vec<Row>> {
        let open = |place: &Place| place.client();
        let mut clients = self.places.iter().map(open).collect::<Result<Vec<_>>>()?;
        let mut measured = vec![Vec::new(); self.places.len()];
        for round in 0..options.rounds {
            let items = options.items.div_ceil(BATCH) * BATCH;
            let trades = self.trades.among(self.keys, items);
            let variants = self.places.iter_mut().zip(&mut clients);
            for ((place, client), times) in variants.zip(&mut measured) {
                // It takes the longer the more pages there are: each round finds the same.
                if place.variant.model == Model::ByHand && round > 0 {
                    place.empty()?;
                    place.fill(&self.filling)?;
                    place::checkpoint(mongod)?;
                }
                let time = insert(place, client, &trades).with_context(|| place.variant.name)?;
                times.push(time.as_secs_f64() * 1e6 / as_f64(items));
            }
        }
        self.places.iter().try_for_each(Place::check)?;
        let rows = self.places.iter().zip(measured);
        Ok(rows
            .map(|(place, times)| Row::of_costs(&place.variant, times))
            .collect())
    }

    fn sizes(&self, mongod: SocketAddr) -> Result<Vec<Row>> {
        place::checkpoint(mongod)?;
        let sizes = self.places.iter().map(|place| {
            let sizes = place.sizes(mongod)?;
            let indexes = sizes.all_indexes();
            let bytes = vec![sizes.data, sizes.stored, indexes, sizes.stored + indexes];
            let each: Vec<_> = bytes.into_iter().map(|bytes| bytes / as_f64(place.items)).collect();
            let on_disk = each.last().copied().into_iter().collect();
            Ok(Row::of(&place.variant, each, on_disk))
        });
        sizes.collect()
    }
}

fn insert(place: &mut Place, client: &mut Client, trades: &[Trade]) -> Result<Duration> {
    let commands = trades.chunks(BATCH);
    let requests = commands
        .map(|trades| client.request(&place.write(trades)))
        .collect::<Result<Vec<_>>>()?;
    let time = client.exchange_all(&requests)?;
    place.items += trades.len();
    Ok(time)
}
