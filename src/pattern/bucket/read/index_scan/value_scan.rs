//! The distinct values of a field in the order of an index, one bucket for each value.
//!
//! mongod skips from value to value in an index (`DISTINCT_SCAN`), but not in a multikey one. The
//! proxy reads the index backward instead: the first bucket before all entries of a value has the
//! next value.

use std::cmp::Ordering;

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::bounds::Place;
use super::plan::{has_number, is_key};
use crate::command::document::{put, single};
use crate::pattern::bucket::item_filter::StoredItem;
use crate::pattern::bucket::item_index::{IndexedField, StoredIndex};
use crate::pattern::bucket::layout::path;
use crate::pattern::bucket::predicate_pushdown::is_page;
use crate::pattern::bucket::read::bucket::Bucket;
use crate::pattern::bucket::value_order::{compare, is_comparable};
use crate::pattern::shapes::BucketShape;

/// How many buckets are read at once behind an emptied page, whose entry is as of an item without fields.
pub const BUCKETS_BEHIND_EMPTIED: i64 = 32;

/// A backward scan of the values of an index's first field.
#[derive(Clone, Copy, Debug)]
pub struct ValueScan<'a> {
    shape: &'a BucketShape,
    index: &'a StoredIndex,
    field: &'a IndexedField,
}

/// The next value in a reply.
#[derive(Debug, PartialEq)]
pub enum NextValue {
    /// The next value.
    Value(RawBson),
    /// There is no other value.
    End,
    /// Only emptied pages were read, and more buckets may follow.
    OnlyEmptied,
    /// An item lacks the field, or the proxy does not order a value as mongod does. A `null` cannot be
    /// told from a missing field by the index.
    NotComparable,
}

impl<'a> ValueScan<'a> {
    /// The scan of the values of a field. `None` if no index begins with it, if it is a key field, and for
    /// `_id`, which has as many values as there are items.
    #[must_use]
    pub fn of(shape: &'a BucketShape, path: &str, indexes: &'a [StoredIndex]) -> Option<Self> {
        if path == "_id" || is_key(shape, path) || has_number(path) {
            return None;
        }
        indexes.iter().find_map(|index| {
            let field = index.fields().first().filter(|field| field.path == path)?;
            index.is_prefixed().then_some(Self { shape, index, field })
        })
    }

    /// Whether the scan returns the values in ascending order.
    #[must_use]
    pub fn is_ascending(&self) -> bool {
        !self.field.is_ascending
    }

    /// The `find` of the first buckets behind a value, or of the whole index.
    #[must_use]
    pub fn query(&self, collection: &str, behind: Option<RawBsonRef<'_>>, buckets: i64) -> RawDocumentBuf {
        let mut find = single("find", collection);
        find.append(cstr!("hint"), self.index.key());
        if let Some(value) = behind {
            let place = Place {
                index: self.index,
                equalities: &[],
                begin: Some(value.into()),
            };
            find.append(cstr!("max"), place.first());
            find.append(cstr!("sort"), self.index.backward());
        } else {
            let direction = if self.is_ascending() { 1 } else { -1 };
            find.append(cstr!("filter"), is_page());
            find.append(cstr!("sort"), single(&self.field.stored, direction));
        }
        let mut projection = RawDocumentBuf::new();
        for name in [path::VERSION, path::PAGE, self.shape.count(), &self.field.stored] {
            put(&mut projection, name, 1);
        }
        find.append(cstr!("projection"), &projection);
        find.append(cstr!("limit"), buckets);
        find.append(cstr!("singleBatch"), true);
        find
    }

    /// The next value from the buckets of a reply. `is_all`: no more buckets follow.
    #[must_use]
    pub fn next<'b>(
        &self,
        buckets: impl Iterator<Item = &'b RawDocument>,
        behind: Option<RawBsonRef<'_>>,
        is_all: bool,
    ) -> NextValue
    where
        'a: 'b,
    {
        for document in buckets {
            let Some(bucket) = Bucket::open(self.shape, document) else {
                return NextValue::NotComparable;
            };
            if bucket.stored().next().is_none() {
                continue;
            }
            let next = self.next_of(&bucket, behind);
            return next.map_or(NextValue::NotComparable, |value| NextValue::Value(value.into()));
        }
        if is_all { NextValue::End } else { NextValue::OnlyEmptied }
    }

    /// The bucket's first value behind another one in the order of the scan. `None` if it has none, or if it
    /// may not be the value of the bucket's entry.
    fn next_of<'b>(&self, bucket: &Bucket<'b>, behind: Option<RawBsonRef<'_>>) -> Option<RawBsonRef<'b>>
    where
        'a: 'b,
    {
        let mut next: Option<RawBsonRef<'b>> = None;
        for stored in bucket.stored() {
            let item = StoredItem {
                shape: self.shape,
                bucket: bucket.document,
                stored,
            };
            let value = item.value(&self.field.path).ok()?.unwrap_or(RawBsonRef::Null);
            if !is_comparable(value) {
                return None;
            }
            let is_behind = match behind {
                Some(behind) => self.order(behind, value)?.is_lt(),
                None => true,
            };
            let is_next = match next {
                Some(next) => self.order(value, next)?.is_lt(),
                None => true,
            };
            if is_behind && is_next {
                next = Some(value);
            }
        }
        next.filter(|value| *value != RawBsonRef::Null)
    }

    /// The order of two values in the scan.
    fn order(&self, one: RawBsonRef<'_>, other: RawBsonRef<'_>) -> Option<Ordering> {
        let order = compare(one, other)?;
        Some(if self.is_ascending() { order } else { order.reverse() })
    }
}
