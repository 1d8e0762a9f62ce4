//! One item per command, of a key with few pages or very many.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use proto_tests::ItemIds;

use super::Options;
use crate::bench::by_hand::MAX_ITEMS;
use crate::bench::model::Model;
use crate::bench::place::{self, Place, as_f64};
use crate::bench::servers::Servers;
use crate::bench::table::{Quantity, Row, print_group, print_heading};
use crate::bench::trades::Trades;

/// Commands in a round: few, so that the number of pages stays near the configured one.
const COMMANDS: usize = 100;

pub(super) fn run(servers: &mut Servers, options: &Options) -> Result<()> {
    println!("\ninsertOne of a key that has pages already, over 1 connection, {COMMANDS} in a row: µs each");
    let mut variants = servers.variants();
    variants.retain(|variant| !matches!(variant.model, Model::TimeSeries | Model::Shaped(ItemIds::Dropped)));
    print_heading("pages", &["µs each"], &variants);
    let terms = options.terms("pages".to_owned(), 1);
    let mut places = variants
        .into_iter()
        .map(|variant| Place::make(variant, &terms))
        .collect::<Result<Vec<_>>>()?;
    let mut trades = Trades::new();
    // Each round has a customer to itself, as the one before has more pages now.
    let mut customers = 1..;
    for pages in &options.pages {
        let mut measured = vec![Vec::new(); places.len()];
        for customer in customers.by_ref().take(options.rounds) {
            let filling = trades.of(customer, pages * usize::from(MAX_ITEMS));
            for place in &mut places {
                place.fill(&filling).with_context(|| place.variant.name)?;
            }
            options.settle(servers)?;
            let trades = trades.of(customer, COMMANDS);
            for (place, times) in places.iter_mut().zip(&mut measured) {
                let mut client = place.client()?;
                let requests = trades.chunks(1).map(|trade| client.request(&place.write(trade)));
                let requests = requests.collect::<Result<Vec<_>>>()?;
                let time = client.exchange_all(&requests).with_context(|| place.variant.name)?;
                place.items += COMMANDS;
                times.push(time.as_secs_f64() * 1e6 / as_f64(COMMANDS));
            }
        }
        let rows: Vec<_> = places
            .iter()
            .zip(measured)
            .map(|(place, times)| Row::of_costs(&place.variant, times))
            .collect();
        print_group(&pages.to_string(), &rows, Quantity::Time);
        std::io::stdout().flush()?;
    }
    places.iter().try_for_each(Place::check)?;
    place::drop_database(servers.direct(), &terms)
}
