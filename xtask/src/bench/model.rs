//! The data models for trades: how each creates its collection, and the commands of an application.

use std::time::Duration;

use bson::{Bson, Document, doc};
use proto_tests::ItemIds;

use super::by_hand;
use super::trades::{KEY, TIME, Trade};

/// The data model of trades.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Model {
    /// A document each.
    Plain,
    /// MongoDB's time-series collections.
    TimeSeries,
    /// The bucket pattern, by the application itself.
    ByHand,
    /// The bucket pattern through mongoshape. The application sends the commands for a plain collection.
    Shaped(ItemIds),
}

/// A command that writes: its body, and the documents that follow it, as drivers send them.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) body: Document,
    pub(super) field: &'static str,
    pub(super) documents: Vec<Document>,
}

impl Write {
    pub(super) fn insert(collection: &str, documents: Vec<Document>) -> Self {
        Self {
            body: doc! { "insert": collection, "ordered": true },
            field: "documents",
            documents,
        }
    }

    pub(super) fn update(collection: &str, documents: Vec<Document>) -> Self {
        Self {
            body: doc! { "update": collection, "ordered": true },
            field: "updates",
            documents,
        }
    }

    pub(super) fn delete(collection: &str, documents: Vec<Document>) -> Self {
        Self {
            body: doc! { "delete": collection, "ordered": true },
            field: "deletes",
            documents,
        }
    }
}

impl Model {
    /// The name that tables have for it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::TimeSeries => "time-series",
            Self::ByHand => "by hand",
            Self::Shaped(ItemIds::Unique) => "mongoshape unique",
            Self::Shaped(ItemIds::UniqueInKey) => "mongoshape unique in key",
            Self::Shaped(ItemIds::Stored) => "mongoshape stored",
            Self::Shaped(ItemIds::Dropped) => "mongoshape dropped",
        }
    }

    /// The command that an application stores these trades with.
    pub(super) fn write(self, collection: &str, trades: &[Trade]) -> Write {
        match self {
            Self::ByHand => Write::update(collection, trades.iter().map(by_hand::upsert).collect()),
            _ => Write::insert(collection, trades.iter().map(Trade::document).collect()),
        }
    }

    /// Commands that leave these trades in an empty collection, by the fastest commands: where
    /// there are pages, whole ones. Each customer's trades stay in their order.
    pub(super) fn fill(self, collection: &str, trades: &[Trade]) -> Vec<Write> {
        /// Trades in a command of about 1 MB.
        const TRADES: usize = 10_000;
        if self == Self::ByHand {
            let pages = by_hand::pages(trades);
            let commands = pages.chunks(TRADES / usize::from(by_hand::MAX_ITEMS));
            return commands.map(|pages| by_hand::insert(collection, pages)).collect();
        }
        let mut trades = trades.to_vec();
        if matches!(self, Self::Shaped(_)) {
            trades.sort_by_key(|trade| trade.customer);
        }
        let commands = trades.chunks(TRADES);
        commands.map(|trades| self.write(collection, trades)).collect()
    }

    /// Commands that make the collection, for trades of which a customer's come at such intervals: with all
    /// that reading one customer's trades in the order of their dates needs, unless it is to be
    /// `Indexes::Own`.
    pub(super) fn create(self, collection: &str, spacing: Duration, indexes: Indexes) -> Vec<Document> {
        let mut create = doc! { "create": collection };
        if self == Self::TimeSeries {
            let granularity = granularity(spacing);
            create.insert(
                "timeseries",
                doc! { "timeField": TIME, "metaField": KEY, "granularity": granularity },
            );
        }
        let mut commands = vec![create];
        if indexes == Indexes::ForReading && matches!(self, Self::Plain | Self::TimeSeries) {
            let index = doc! { "key": { KEY: 1, TIME: 1 }, "name": "reading" };
            commands.push(doc! { "createIndexes": collection, "indexes": [index] });
        }
        commands
    }

    /// The aggregation that counts the trades, as `n` of its one document.
    pub(super) fn count(self, collection: &str) -> Document {
        let each = if self == Self::ByHand {
            Bson::from("$count")
        } else {
            Bson::from(1)
        };
        let group = doc! { "$group": { "_id": null, "n": { "$sum": each } } };
        doc! { "aggregate": collection, "pipeline": [group], "cursor": {} }
    }
}

/// Which indexes plain and time-series collections have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Indexes {
    /// Those that mongod makes by itself.
    Own,
    /// One on key and time besides.
    ForReading,
}

/// What MongoDB's manual advises: the unit that is the closest to the time between two measurements of one
/// source.
fn granularity(spacing: Duration) -> &'static str {
    match spacing.as_secs() {
        0..30 => "seconds",
        30..1830 => "minutes",
        _ => "hours",
    }
}
