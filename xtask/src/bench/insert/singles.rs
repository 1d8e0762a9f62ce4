//! One item per command, over one connection and over many.

use std::io::Write as _;
use std::net::SocketAddr;

use anyhow::{Context as _, Result};

use super::Options;
use crate::bench::client::Prepared;
use crate::bench::load::Figures;
use crate::bench::measured::Measured;
use crate::bench::place::Place;
use crate::bench::servers::Servers;
use crate::bench::table::{Quantity, print_group, print_heading};
use crate::bench::trades::{Trade, Trades};
use crate::bench::{concurrent, place};

/// Customers that trades are spread among.
const KEYS: u32 = 1000;

pub(super) fn run(servers: &mut Servers, options: &Options) -> Result<()> {
    println!(
        "\ninsertOne over {KEYS} keys: operations a second of all connections, latencies, CPU time an operation; µs"
    );
    let variants = servers.variants_with_haproxy();
    print_heading("connections", &["ops/s", "p50", "p99", "mongod", "proxy"], &variants);
    for connections in &options.connections {
        let terms = options.terms(format!("singles_{connections}"), KEYS);
        let mut trades = Trades::new();
        let filling = trades.among(KEYS, options.filling(KEYS));
        let mut places = Vec::new();
        for variant in &variants {
            let mut place = Place::make(variant.clone(), &terms)?;
            place.fill(&filling).with_context(|| variant.name)?;
            places.push(place);
        }
        options.settle(servers)?;
        let mut measured: Vec<_> = places.iter().map(|_| Measured::default()).collect();
        for _ in 0..options.rounds {
            let trades = trades.among(KEYS, concurrent::commands(options.items, *connections));
            for (place, measured) in places.iter_mut().zip(&mut measured) {
                let before = servers.cpu_times(&place.variant)?;
                let addresses = [place.variant.address];
                let figures =
                    measure(place, &trades, (*connections, &addresses)).with_context(|| place.variant.name)?;
                measured.add(figures, before, servers.cpu_times(&place.variant)?, trades.len());
            }
        }
        places.iter().try_for_each(Place::check)?;
        let rows = places.iter().zip(&measured);
        let rows: Vec<_> = rows.map(|(place, measured)| measured.row(&place.variant)).collect();
        print_group(&connections.to_string(), &rows, Quantity::Time);
        std::io::stdout().flush()?;
        place::drop_database(servers.direct(), &terms)?;
    }
    Ok(())
}

/// Stores the trades over so many connections, to these addresses in turn, each of which takes the next that
/// there is: so dates ascend, but for those that overtake each other in transit.
pub(super) fn measure(place: &mut Place, trades: &[Trade], through: (usize, &[SocketAddr])) -> Result<Figures> {
    let writes = trades.chunks(1).map(|trade| Prepared::of(&place.write(trade)));
    let writes = writes.collect::<Result<Vec<_>>>()?;
    let figures = concurrent::measure(place, writes, through)?;
    place.items += trades.len();
    Ok(figures)
}
