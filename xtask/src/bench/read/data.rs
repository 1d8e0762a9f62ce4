//! The data: trades of a hundred customers, one of whom has very many.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bson::{DateTime, oid::ObjectId};

use crate::bench::by_hand;
use crate::bench::model::{Model, Write};
use crate::bench::place::Place;
use crate::bench::trades::{Trade, Trades};

/// The customer with the most trades.
pub(super) const LARGEST: i32 = 1;
/// The one with the next most.
pub(super) const SECOND: i32 = 2;
/// How many the second has: ten thousand and an open page.
const SECOND_ITEMS: usize = 10_003;
const CUSTOMERS: usize = 100;

/// Between two trades of a customer: 300 a week. A month of as many would take more centuries for the largest
/// customer than time-series collections are made for, which is from 1970 to 2038.
pub(super) const SPACING: Duration = Duration::from_secs(2016);
pub(super) const SPACING_MS: i64 = 2_016_000;
/// The first of January, 1973. A million trades later it is 2036.
const BEGIN_MS: i64 = 94_694_400_000;
/// The most that the largest customer may have before 2038.
pub(super) const MAX_ITEMS: u64 = 1_000_000;

const WEEK_MS: i64 = 7 * 86_400_000;
/// Trades in a command of about 1 MB.
const BATCH: usize = 10_000;

/// The trades that every collection has.
#[derive(Debug)]
pub(super) struct Data {
    /// In the order of their dates.
    trades: Vec<Trade>,
    /// How many the largest customer has.
    pub(super) largest: usize,
    /// A trade in the midst of that customer's.
    pub(super) sample: Trade,
}

impl Data {
    /// All customers begin at once and trade as often, so those with few end soon.
    pub(super) fn new(items: usize) -> Result<Self> {
        let sizes = sizes(items);
        let largest = sizes[0];
        let mut random = Trades::new();
        let mut trades = Vec::with_capacity(sizes.iter().sum());
        for (step, customers) in (0..largest).map(|step| (step, sizes.iter().take_while(move |size| **size > step))) {
            for (customer, _) in (LARGEST..).zip(customers) {
                trades.push(random.at(customer, millis(step) + i64::from(customer)));
            }
        }
        let mut of_largest = trades.iter().filter(|trade| trade.customer == LARGEST);
        let sample = *of_largest.nth(largest / 2).context("no trades")?;
        Ok(Self {
            trades,
            largest,
            sample,
        })
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.trades.len()
    }

    /// A week in the midst of the largest customer's trades that begins and ends within a page.
    pub(super) fn week(&self) -> Range<DateTime> {
        let from = millis(self.largest / 20 * 10 + 4);
        DateTime::from_millis(from)..DateTime::from_millis(from + WEEK_MS)
    }

    /// The `_id` of the sample.
    pub(super) fn sample_id(&self) -> ObjectId {
        self.sample.id()
    }

    /// Puts the trades into a collection that is empty, as they come.
    pub(super) fn store(&self, place: &mut Place) -> Result<()> {
        let (model, collection) = (place.variant.model, place.variant.collection);
        if model == Model::ByHand {
            let mut pages = by_hand::pages(&self.trades);
            pages.sort_by_key(|page| page.first().map(Trade::date));
            let commands = pages.chunks(BATCH / usize::from(by_hand::MAX_ITEMS));
            let commands = commands.map(|pages| by_hand::insert(collection, pages));
            return place.store(commands, self.len());
        }
        let commands = self.trades.chunks(BATCH);
        let commands = commands.map(|trades| -> Write { model.write(collection, trades) });
        place.store(commands, self.len())
    }
}

fn millis(step: usize) -> i64 {
    BEGIN_MS + SPACING_MS * i64::try_from(step).unwrap_or(i64::MAX / SPACING_MS)
}

/// The customers' numbers of trades, the largest first: from the second on the nth has an nth of the first of
/// them. None is a multiple of ten, as the last page is rarely full.
fn sizes(items: usize) -> Vec<usize> {
    let others = (1..CUSTOMERS).map(|nth| SECOND_ITEMS / nth);
    let all = std::iter::once(items).chain(others);
    all.map(|size| if size % 10 == 0 { size + 3 } else { size }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_hundred_customers_have_open_pages_and_dates_that_ascend() {
        let data = Data::new(20_000).expect("trades");
        assert!(data.trades.is_sorted_by_key(Trade::date));
        let mut counts: BTreeMap<i32, usize> = BTreeMap::new();
        for trade in &data.trades {
            *counts.entry(trade.customer).or_default() += 1;
        }
        assert_eq!((counts.len(), counts[&LARGEST], counts[&SECOND]), (100, 20_003, 10_003));
        assert!(counts.values().all(|count| count % 10 != 0));
    }

    #[test]
    fn a_week_has_300_trades_of_the_largest_customer() {
        let data = Data::new(20_000).expect("trades");
        let week = data.week();
        let within = |trade: &&Trade| trade.customer == LARGEST && week.contains(&trade.date());
        assert_eq!(data.trades.iter().filter(within).count(), 300);
    }

    #[test]
    fn the_last_date_is_before_2038() {
        let items = usize::try_from(MAX_ITEMS).expect("a number");
        assert!(millis(items + 3) / 1000 < i64::from(i32::MAX));
    }
}
