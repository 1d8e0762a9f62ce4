//! A query of an application, as a command for each data model.

use bson::{Document, doc};

use super::by_hand;
use super::data::{Data, LARGEST, SECOND};
use crate::bench::by_hand::MAX_ITEMS;
use crate::bench::model::Model;
use crate::bench::trades::{KEY, TIME};

/// Above it are quantities of one trade in a hundred.
pub(super) const LARGE_QUANTITY: i32 = 990;

/// A read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadQuery {
    /// This page of ten of the largest key, from 1.
    Page(usize, Order),
    /// The largest key's trades of a week.
    Week,
    /// All trades of the second key, by date.
    WholeKey,
    /// How many this key has.
    Count(i32),
    /// One trade.
    ById,
    /// The second key's trades of large quantities.
    ByQuantity,
}

/// In which order pages are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    OldestFirst,
    NewestFirst,
    /// No sort.
    Any,
}

impl ReadQuery {
    /// How tables name it, in twelve characters.
    pub(super) fn label(self) -> String {
        match self {
            Self::Page(number, Order::OldestFirst) => number.to_string(),
            Self::Page(number, Order::NewestFirst) => format!("{number} newest"),
            Self::Page(number, Order::Any) => format!("{number} no sort"),
            Self::Week => "week".to_owned(),
            Self::WholeKey => "whole key".to_owned(),
            Self::Count(LARGEST) => "count large".to_owned(),
            Self::Count(_) => "count".to_owned(),
            Self::ById => "by _id".to_owned(),
            Self::ByQuantity => "by quantity".to_owned(),
        }
    }

    /// Whether there is something to find.
    pub(super) fn has_answer(self, data: &Data) -> bool {
        match self {
            Self::Page(number, _) => items_before(number) < data.largest,
            _ => true,
        }
    }

    /// The command that an application sends. `None`: it would look at every document that there is.
    pub(super) fn command(self, model: Model, collection: &str, data: &Data) -> Option<Document> {
        match model {
            Model::ByHand => by_hand::command(self, collection, data),
            // Its documents have an `_id`, but it cannot have an index on that.
            Model::TimeSeries if self == Self::ById => None,
            _ => Some(self.plain(collection, data)),
        }
    }

    /// The command to a collection of one document a trade.
    fn plain(self, collection: &str, data: &Data) -> Document {
        let find = |filter: Document| doc! { "find": collection, "filter": filter };
        let by_date = doc! { TIME: 1 };
        match self {
            Self::Page(number, order) => {
                let mut command = find(doc! { KEY: LARGEST });
                let direction = match order {
                    Order::OldestFirst => Some(1),
                    Order::NewestFirst => Some(-1),
                    Order::Any => None,
                };
                if let Some(direction) = direction {
                    command.insert("sort", doc! { TIME: direction });
                }
                command.insert("skip", number_of(items_before(number)));
                command.insert("limit", i32::from(MAX_ITEMS));
                command
            }
            Self::Week => {
                let week = data.week();
                let mut command = find(doc! { KEY: LARGEST, TIME: { "$gte": week.start, "$lt": week.end } });
                command.insert("sort", by_date);
                command
            }
            Self::WholeKey => {
                let mut command = find(doc! { KEY: SECOND });
                command.insert("sort", by_date);
                command
            }
            Self::Count(customer) => doc! { "count": collection, "query": { KEY: customer } },
            Self::ById => find(doc! { "_id": data.sample_id() }),
            Self::ByQuantity => find(doc! { KEY: SECOND, "quantity": { "$gt": LARGE_QUANTITY } }),
        }
    }
}

/// Items on the pages before this one.
pub(super) fn items_before(page: usize) -> usize {
    (page - 1) * usize::from(MAX_ITEMS)
}

/// A count in a command.
pub(super) fn number_of(items: usize) -> i64 {
    i64::try_from(items).unwrap_or(i64::MAX)
}
