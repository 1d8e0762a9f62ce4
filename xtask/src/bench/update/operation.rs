//! The operations on items, by their `_id`.

use anyhow::{Result, anyhow};
use bson::{Document, doc};
use clap::ValueEnum;

use crate::bench::client::Prepared;
use crate::bench::model::Write;
use crate::bench::trades::Trade;

/// An operation of an application, which is the same to a plain and to a shaped collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Operation {
    /// An `update` by `_id`: one field set, another incremented
    UpdateOne,
    /// One item a `findAndModify` that increments a field and answers the new item
    FindOneAndUpdate,
    /// A `delete` by `_id`
    DeleteOne,
}

impl Operation {
    /// In the order in which they are measured: what is deleted leaves pages with less on them.
    pub(super) const ALL: [Self; 3] = [Self::UpdateOne, Self::FindOneAndUpdate, Self::DeleteOne];

    /// What tables call it.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::UpdateOne => "updateOne by _id, $set and $inc",
            Self::FindOneAndUpdate => "findOneAndUpdate by _id, $inc, the new item answered",
            Self::DeleteOne => "deleteOne by _id",
        }
    }

    /// Whether a command can have several statements.
    pub(super) fn has_batches(self) -> bool {
        self != Self::FindOneAndUpdate
    }

    /// The command for these trades.
    pub(super) fn prepared(self, collection: &str, trades: &[Trade]) -> Result<Prepared> {
        let filters = trades.iter().map(|trade| doc! { "_id": trade.id() });
        match self {
            Self::UpdateOne => {
                let update = doc! { "$set": { "ticker": "IBM" }, "$inc": { "quantity": 1 } };
                let statements = filters.map(|filter| doc! { "q": filter, "u": update.clone() });
                Prepared::of(&Write::update(collection, statements.collect()))
            }
            Self::FindOneAndUpdate => {
                let [filter] = filters
                    .collect::<Vec<_>>()
                    .try_into()
                    .map_err(|_| anyhow!("not one trade"))?;
                Prepared::of_one(&find_one_and_update(collection, filter))
            }
            Self::DeleteOne => {
                let statements = filters.map(|filter| doc! { "q": filter, "limit": 1 });
                Prepared::of(&Write::delete(collection, statements.collect()))
            }
        }
    }
}

fn find_one_and_update(collection: &str, filter: Document) -> Document {
    doc! { "findAndModify": collection, "query": filter, "update": { "$inc": { "quantity": 1 } }, "new": true }
}
