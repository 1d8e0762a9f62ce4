//! A `find` that pages can answer.

use bson::raw::{RawBson, RawDocument, RawDocumentBuf};

use super::range::TimeRange;
use crate::command::document::{as_flag, as_whole_number};
use crate::command::find::Find;
use crate::pattern::bucket::key;
use crate::pattern::bucket::predicate_pushdown::BucketPredicate;
use crate::pattern::bucket::projection::Projection;
use crate::pattern::shapes::{BucketShape, ItemIds};

/// Which items are asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Keys {
    /// Those of one key: the condition on buckets that names it.
    One(RawDocumentBuf),
    /// Those of the keys whose buckets meet a condition.
    Several(RawDocumentBuf),
    /// The one item with an `_id`: the condition on buckets, of which one holds it, and the `_id`.
    Item(RawDocumentBuf, RawBson),
    /// All.
    All,
}

/// In which order items are asked for. A range of time is applied in any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As inserted: what a key's items come in when no order is asked for, or one by key fields alone, in
    /// which all of them are equal.
    Insertion,
    /// By time, oldest first; that is as inserted where no page is late.
    TimeAscending,
    /// By time, newest first.
    TimeDescending,
}

/// A question that buckets answer without a pipeline.
#[derive(Clone, Debug)]
pub struct BucketQuery {
    /// Of which keys.
    pub keys: Keys,
    /// In which order.
    pub order: Order,
    /// In which range of time; open, or of one key.
    pub range: TimeRange,
    /// How many items to pass over.
    pub skip: u64,
    /// How many to answer.
    pub limit: Option<u64>,
    /// Which of their fields.
    pub projection: Projection,
}

impl BucketQuery {
    /// Recognises one. `None` where mongod has to look at the items.
    #[must_use]
    pub fn of(shape: &BucketShape, find: &Find<'_>) -> Option<Self> {
        // A collation may make several keys out of one.
        if find.collation.is_some() || find.let_variables.is_some() {
            return None;
        }
        let narrowing = BucketPredicate::of(shape, find.filter);
        let projection = Projection::parse(find.projection)?;
        if shape.item_ids() == ItemIds::Unique
            && find.sort.is_none()
            && let Some(id) = narrowing.only_one_id()
        {
            return Some(Self {
                keys: Keys::Item(narrowing.on_buckets(), key::canonical(id.as_raw_bson_ref())),
                order: Order::Insertion,
                range: TimeRange::default(),
                skip: find.skip,
                limit: Some(1),
                projection,
            });
        }
        let (keys, range) = if let Some((key, range)) = narrowing.one_key_and_range() {
            (Keys::One(key), range)
        } else {
            let condition = narrowing.only_keys()?;
            let keys = if condition.is_empty() {
                Keys::All
            } else {
                Keys::Several(condition)
            };
            (keys, TimeRange::default())
        };
        let order = match find.sort {
            None => Order::Insertion,
            Some(sort) if matches!(keys, Keys::One(_)) => by_time(shape, sort)?,
            Some(_) => return None,
        };
        Some(Self {
            keys,
            order,
            range,
            skip: find.skip,
            limit: (find.limit > 0).then_some(find.limit),
            projection,
        })
    }

    /// Whether there is no more than one item to answer.
    #[must_use]
    pub fn is_of_one_item(&self) -> bool {
        matches!(self.keys, Keys::Item(..))
    }

    /// Whether items are found by their time: in its order, or in a range of it. Items of a range are read in
    /// the order of their time, which is as inserted where no page is late.
    #[must_use]
    pub fn is_by_time(&self) -> bool {
        self.order != Order::Insertion || !self.range.is_open()
    }
}

/// Reads a sort of one key's items by their time. Among those, a key field says nothing.
fn by_time(shape: &BucketShape, sort: &RawDocument) -> Option<Order> {
    let mut order = None;
    for field in sort {
        let (name, value) = field.ok()?;
        as_flag(value)?;
        let ascending = match as_whole_number(value)? {
            1 => true,
            -1 => false,
            _ => return None,
        };
        let name = name.as_str();
        if order.is_none() && shape.time() == Some(name) {
            order = Some(if ascending {
                Order::TimeAscending
            } else {
                Order::TimeDescending
            });
        } else if !shape.key().iter().any(|field| field == name) {
            return None;
        }
    }
    Some(order.unwrap_or(Order::Insertion))
}
