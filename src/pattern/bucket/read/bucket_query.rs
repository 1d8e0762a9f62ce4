//! A `find` that pages answer without a pipeline.

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::page_scan::ScanDirection;
use super::range::TimeRange;
use crate::command::document::{as_flag, as_whole_number, put, single};
use crate::command::find::Find;
use crate::pattern::bucket::layout::{VERSION, path};
use crate::pattern::bucket::predicate_pushdown::BucketPredicate;
use crate::pattern::bucket::projection::Projection;
use crate::pattern::bucket::{index, key};
use crate::pattern::shapes::{BucketShape, ItemIds};

/// The keys whose items a query selects.
#[derive(Clone, Debug, PartialEq)]
pub enum Keys {
    /// One key. Has the filter for its buckets.
    One(RawDocumentBuf),
    /// Several keys. Has the filter for their buckets.
    Several(RawDocumentBuf),
    /// One item by its `_id`.
    Item(ItemById),
    /// All keys.
    All,
}

/// The buckets that may contain an item.
#[derive(Clone, Debug, PartialEq)]
pub struct ItemById {
    /// The item's `_id`, canonical.
    pub id: RawBson,
    /// The stored path of the items' `_id`.
    pub path: String,
    /// The filter for the item's bucket.
    pub filter: RawDocumentBuf,
    /// Whether the filter has conditions beside the one on the `_id`.
    pub has_other_conditions: bool,
}

impl ItemById {
    /// A bound of the index on the items' `_id`.
    #[must_use]
    pub fn bound(&self, id: RawBsonRef<'_>) -> RawDocumentBuf {
        let mut bound = single(path::VERSION, VERSION);
        put(&mut bound, &self.path, id);
        bound
    }
}

/// The order of the items. A time range applies in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The order of insertion: of a key's items without a sort, or with a sort by key fields only,
    /// because all items of the key are equal in such a sort.
    Insertion,
    /// By time, oldest first. The same as the order of insertion if no page is late.
    TimeAscending,
    /// By time, newest first.
    TimeDescending,
}

impl Order {
    /// The direction of a page scan that returns items in this order.
    #[must_use]
    pub fn direction(self) -> ScanDirection {
        match self {
            Self::TimeDescending => ScanDirection::Backward,
            Self::Insertion | Self::TimeAscending => ScanDirection::Forward,
        }
    }
}

/// A query that buckets answer without a pipeline.
#[derive(Clone, Debug)]
pub struct BucketQuery {
    /// The selected keys.
    pub keys: Keys,
    /// The order of the items.
    pub order: Order,
    /// The time range. Not open only if one key is selected.
    pub range: TimeRange,
    /// The number of items to skip.
    pub skip: u64,
    /// The number of items to return. `None`: all.
    pub limit: Option<u64>,
    /// The projection of their fields.
    pub projection: Projection,
}

/// Whether at most one item has the `_id` that a filter demands.
fn is_unique(shape: &BucketShape, narrowing: &BucketPredicate) -> bool {
    match shape.item_ids() {
        ItemIds::Unique => true,
        ItemIds::UniqueInKey => narrowing.one_key().is_some(),
        ItemIds::Stored | ItemIds::Dropped => false,
    }
}

impl BucketQuery {
    /// Recognises such a query. `None` if mongod must evaluate the items.
    #[must_use]
    pub fn of(shape: &BucketShape, find: &Find<'_>) -> Option<Self> {
        // Under a collation, several keys may be equal.
        if find.collation.is_some() || find.let_variables.is_some() {
            return None;
        }
        let narrowing = BucketPredicate::of(shape, find.filter);
        let projection = Projection::parse(find.projection)?;
        if find.sort.is_none()
            && let Some(id) = narrowing.only_one_id()
            && is_unique(shape, &narrowing)
        {
            return Some(Self {
                keys: Keys::Item(ItemById {
                    id: key::canonical(id.as_raw_bson_ref()),
                    path: index::item_id_path(shape),
                    filter: narrowing.on_buckets(),
                    has_other_conditions: narrowing.has_key_conditions(),
                }),
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

    /// Whether the result has at most one item.
    #[must_use]
    pub fn is_of_one_item(&self) -> bool {
        matches!(self.keys, Keys::Item(..))
    }

    /// Whether the query sorts or filters by time. Items of a range are read in the order of their
    /// time, which is the order of insertion if no page is late.
    #[must_use]
    pub fn is_by_time(&self) -> bool {
        self.order != Order::Insertion || !self.range.is_open()
    }
}

/// Parses a sort of one key's items by their time. Key fields are ignored, because all these items
/// are equal in them.
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

#[cfg(test)]
mod tests;
