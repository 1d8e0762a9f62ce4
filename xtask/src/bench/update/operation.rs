//! The operation on one item, by its `_id`.

use anyhow::Result;
use bson::{Document, doc};
use clap::ValueEnum;

use crate::bench::client::Prepared;
use crate::bench::model::Write;
use crate::bench::trades::Trade;

/// An operation of an application, which is the same to a plain and to a shaped collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Operation {
    /// One item an `update`: one field set, another incremented
    UpdateOne,
    /// One item a `findAndModify` that increments a field and answers the new item
    FindOneAndUpdate,
    /// One item a `delete`
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

    /// The command for this trade.
    pub(super) fn prepared(self, collection: &str, trade: &Trade) -> Result<Prepared> {
        let filter = doc! { "_id": trade.id() };
        match self {
            Self::UpdateOne => {
                let update = doc! { "$set": { "ticker": "IBM" }, "$inc": { "quantity": 1 } };
                Prepared::of(&Write::update(collection, vec![doc! { "q": filter, "u": update }]))
            }
            Self::FindOneAndUpdate => Prepared::of_one(&find_one_and_update(collection, filter)),
            Self::DeleteOne => Prepared::of(&Write::delete(collection, vec![doc! { "q": filter, "limit": 1 }])),
        }
    }
}

fn find_one_and_update(collection: &str, filter: Document) -> Document {
    doc! { "findAndModify": collection, "query": filter, "update": { "$inc": { "quantity": 1 } }, "new": true }
}
