//! The items: trades like those in the pattern's documentation, the same for every variant.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};

/// The field that pages are grouped by.
pub(super) const KEY: &str = "customerId";
/// The field that items are ordered by.
pub(super) const TIME: &str = "date";

const BEGIN_MS: i64 = 1_698_335_223_434;
/// The time between two trades of any customer. Ten trades take a second, the resolution of page names.
pub(super) const STEP: Duration = Duration::from_millis(100);
const TICKERS: [&str; 4] = ["MDB", "GOOG", "MSFT", "AAPL"];

/// One trade, of about 100 bytes as a document.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trade {
    number: u32,
    millis: i64,
    pub(super) customer: i32,
    ticker: &'static str,
    kind: &'static str,
    pub(super) quantity: i32,
}

impl Trade {
    /// As an application sends it. Drivers give an `_id` to what has none.
    pub(super) fn document(&self) -> Document {
        doc! {
            "_id": self.id(), "ticker": self.ticker, KEY: self.customer, "type": self.kind, "quantity": self.quantity,
            TIME: self.date(),
        }
    }

    /// As the pattern keeps it on a page: without its key, and under the shorter name that mongoshape is
    /// given too.
    pub(super) fn element(&self) -> Document {
        doc! { "type": self.kind, "ticker": self.ticker, "qty": self.quantity, TIME: self.date() }
    }

    /// The `_id` of a page that begins with this trade: the pattern's, and a number, as two may begin in one
    /// second. They sort by time for any number of digits.
    pub(super) fn page_id(&self) -> String {
        format!("{}_{:010}_{}", self.customer, self.millis / 1000, self.number)
    }

    /// As a driver makes them: seconds, the process, a counter.
    pub(super) fn id(&self) -> ObjectId {
        let seconds = u32::try_from(self.millis / 1000).unwrap_or(u32::MAX).to_be_bytes();
        let counter = self.number.to_be_bytes();
        let mut bytes = *b"....bench...";
        bytes[..4].copy_from_slice(&seconds);
        bytes[9..].copy_from_slice(&counter[1..]);
        ObjectId::from_bytes(bytes)
    }

    pub(super) fn date(&self) -> DateTime {
        DateTime::from_millis(self.millis)
    }
}

/// Trades in the order in which they happen, each of a customer at random.
#[derive(Debug)]
pub(super) struct Trades {
    random: SplitMix64,
    next: u32,
}

impl Trades {
    /// From the first; the seed is always the same.
    pub(super) fn new() -> Self {
        Self {
            random: SplitMix64(0x6d6f_6e67_6f73_6861),
            next: 0,
        }
    }

    /// The next `count` trades, among so many customers.
    pub(super) fn among(&mut self, customers: u32, count: usize) -> Vec<Trade> {
        (0..count)
            .map(|_| {
                let customer = 1 + self.random.below(customers);
                self.trade(i32::try_from(customer).unwrap_or(i32::MAX))
            })
            .collect()
    }

    /// The next `count` trades, all of this customer.
    pub(super) fn of(&mut self, customer: i32, count: usize) -> Vec<Trade> {
        (0..count).map(|_| self.trade(customer)).collect()
    }

    fn trade(&mut self, customer: i32) -> Trade {
        let millis = (STEP * self.next).as_millis();
        self.at(customer, BEGIN_MS + i64::try_from(millis).unwrap_or(i64::MAX))
    }

    /// Moves so many of these, each as likely as any other, to the front.
    pub(super) fn pick<'a>(&mut self, trades: &'a mut [Trade], count: usize) -> &'a [Trade] {
        let count = count.min(trades.len());
        for at in 0..count {
            let rest = u32::try_from(trades.len() - at).unwrap_or(u32::MAX);
            trades.swap(at, at + self.random.below(rest) as usize);
        }
        &trades[..count]
    }

    /// The next trade, of this customer and this time, in milliseconds since the epoch.
    pub(super) fn at(&mut self, customer: i32, millis: i64) -> Trade {
        let number = self.next;
        self.next += 1;
        Trade {
            number,
            millis,
            customer,
            ticker: TICKERS[number as usize % TICKERS.len()],
            kind: if self.random.below(2) == 0 { "buy" } else { "sell" },
            quantity: i32::try_from(1 + self.random.below(1000)).unwrap_or(1),
        }
    }
}

/// Steele, Lea and Flood's generator: the same numbers everywhere, for ever.
#[derive(Debug)]
pub(super) struct SplitMix64(u64);

impl SplitMix64 {
    /// With this seed.
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number from 0 to `bound`, exclusive.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let high = (mixed ^ (mixed >> 31)) >> 32;
        // The high half of a product of two numbers below 2^32 is below the second.
        u32::try_from((high * u64::from(bound)) >> 32).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn trades_are_the_same_each_time_and_differ_from_each_other() {
        let shown = |trades: &[Trade]| format!("{trades:?}");
        let trades = Trades::new().among(50, 1000);
        assert_eq!(shown(&trades), shown(&Trades::new().among(50, 1000)));
        let ids: HashSet<_> = trades.iter().map(Trade::id).collect();
        let pages: HashSet<_> = trades.iter().map(Trade::page_id).collect();
        assert_eq!((ids.len(), pages.len()), (1000, 1000));
        assert!(trades.is_sorted_by_key(Trade::date));
        let customers: HashSet<_> = trades.iter().map(|trade| trade.customer).collect();
        assert_eq!(customers, (1..=50).collect());
    }

    #[test]
    fn random_picks_are_distinct() {
        let mut trades = Trades::new();
        let mut all = trades.among(50, 1000);
        let ids: HashSet<_> = all.iter().map(Trade::id).collect();
        let picked: HashSet<_> = trades.pick(&mut all, 400).iter().map(Trade::id).collect();
        assert_eq!(picked.len(), 400);
        assert!(!all[..400].is_sorted_by_key(Trade::id));
        assert_eq!(ids, all.iter().map(Trade::id).collect());
    }

    #[test]
    fn a_trade_is_about_100_bytes() {
        let lengths = Trades::new().among(1000, 100).into_iter();
        let lengths = lengths.map(|trade| trade.document().to_vec().expect("a document").len());
        assert!(
            lengths.clone().all(|length| (95..=105).contains(&length)),
            "{lengths:?}"
        );
    }
}
