//! Many items in a command, and their memory and disk usage.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::Options;
use crate::bench::client::{Client, Retries};
use crate::bench::model::Model;
use crate::bench::place::{self, Place, Terms, as_f64};
use crate::bench::servers::Servers;
use crate::bench::statistics::{median, ratio};
use crate::bench::table::{Quantity, Row, print_group, print_heading};
use crate::bench::trades::{Trade, Trades};

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
    println!("\ninsertMany, ordered, over 1 connection: time and CPU time of an item; µs");
    let variants = servers.variants();
    let mut columns = vec!["µs/item", "mongod", "proxy"];
    if options.retries() == Retries::Numbered {
        println!("without: without retry numbers; times: what retry numbers cost");
        columns.extend(["without", "times"]);
    }
    print_heading("keys / batch", &columns, &variants);
    let mut sizes = Vec::new();
    for keys in &options.keys {
        let mut comparison = Comparison::prepare(servers, options, *keys)?;
        for batch in &options.batches {
            let rows = comparison.measure(servers, options, *batch)?;
            print_group(&format!("{keys} / {batch}"), &rows, Quantity::Time);
            std::io::stdout().flush()?;
        }
        comparison.places.iter().try_for_each(Place::check)?;
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

/// The measurements of a variant, in µs an item.
#[derive(Default)]
struct Measured {
    times: Vec<f64>,
    /// CPU times of mongod and of the proxy.
    cpu: [Vec<f64>; 2],
    /// Times of commands without retry numbers, if those of `times` have them.
    without_numbers: Vec<f64>,
}

impl Measured {
    fn row(self, place: &Place) -> Row {
        let [mongod, proxy] = self.cpu.map(median);
        let mut figures = vec![median(self.times.iter().copied()), mongod, proxy];
        if !self.without_numbers.is_empty() {
            figures.push(median(self.without_numbers.iter().copied()));
            figures.push(ratio(&self.times, &self.without_numbers));
        }
        Row::of(&place.variant, figures, self.times)
    }
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

    fn measure(&mut self, servers: &Servers, options: &Options, batch: usize) -> Result<Vec<Row>> {
        let mut measured: Vec<Measured> = self.places.iter().map(|_| Measured::default()).collect();
        for _ in 0..options.rounds {
            let items = options.items.div_ceil(batch) * batch;
            let with_numbers = self.trades.among(self.keys, items);
            let without_numbers = self.trades.among(self.keys, items);
            for (place, measured) in self.places.iter_mut().zip(&mut measured) {
                // It takes the longer the more pages there are: each round finds the same.
                if place.variant.model == Model::ByHand && place.items > self.filling.len() {
                    place.empty()?;
                    place.fill(&self.filling)?;
                    place::checkpoint(servers.direct())?;
                }
                let before = servers.cpu_times(&place.variant)?;
                let mut client = place.client()?;
                let time = insert(place, &mut client, with_numbers.chunks(batch))?;
                let after = servers.cpu_times(&place.variant)?;
                measured.times.push(of_item(time, items));
                for ((all, before), after) in measured.cpu.iter_mut().zip(before).zip(after) {
                    all.push(of_item(after.saturating_sub(before), items));
                }
                if options.retries() == Retries::Numbered {
                    let mut client = place.client_without_numbers()?;
                    let time = insert(place, &mut client, without_numbers.chunks(batch))?;
                    measured.without_numbers.push(of_item(time, items));
                }
            }
        }
        let rows = self.places.iter().zip(measured);
        Ok(rows.map(|(place, measured)| measured.row(place)).collect())
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

/// The time that an item of `items` takes, in µs.
fn of_item(time: Duration, items: usize) -> f64 {
    time.as_secs_f64() * 1e6 / as_f64(items)
}

fn insert<'t>(place: &mut Place, client: &mut Client, commands: impl Iterator<Item = &'t [Trade]>) -> Result<Duration> {
    let mut stored = 0;
    let requests = commands.map(|trades| {
        stored += trades.len();
        client.request(&place.write(trades))
    });
    let requests = requests.collect::<Result<Vec<_>>>()?;
    let time = client.exchange_all(&requests).with_context(|| place.variant.name)?;
    place.items += stored;
    Ok(time)
}
