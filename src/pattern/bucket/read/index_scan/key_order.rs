//! Pages of several keys in the order of a sort by key and time: key by key, and within a key by page number.
//!
//! Page 0 of a key, or its highest page in a backward scan, is read first and shows whether the pages of the
//! key have the order of time. Keys and page numbers do not change, so no entry of the index moves.

use std::cmp::Ordering;

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::sort_key::{SortField, SortKey};
use crate::command::document::{get, put, single};
use crate::pattern::bucket::item_filter::{BoundSide, ItemFilter};
use crate::pattern::bucket::item_index::KeyTimeIndex;
use crate::pattern::bucket::layout::path;
use crate::pattern::bucket::read::bucket::Bucket;
use crate::pattern::bucket::value_order::{compare, is_comparable, is_simple};

/// A scan of an index on key and page number.
#[derive(Clone, Debug)]
pub(super) struct KeyOrderScan<'a> {
    index: &'a KeyTimeIndex,
    /// The conditions on key fields that select a range of the index.
    keys: RawDocumentBuf,
    /// The sort by stored paths.
    sort: RawDocumentBuf,
    /// The key fields that are sorted by.
    key_fields: Vec<&'a str>,
    /// The number of key fields that the filter sets equal to a value.
    equalities: usize,
    /// Whether the time is ascending.
    is_ascending: bool,
}

impl<'a> KeyOrderScan<'a> {
    /// The scan of an index that has the order of a sort. `None` if the index has another order, or if the
    /// sort is by no key field. The sort is without key fields that the filter sets equal to a value.
    pub(super) fn of(index: &'a KeyTimeIndex, filter: &ItemFilter<'_>, sort: &[SortField<'_>]) -> Option<Self> {
        let mut scan = Self {
            index,
            keys: RawDocumentBuf::new(),
            sort: RawDocumentBuf::new(),
            key_fields: Vec::new(),
            equalities: 0,
            is_ascending: true,
        };
        let mut wanted = sort.iter();
        let mut is_forward = None;
        for field in index.fields() {
            let is_key = field.stored != path::PAGE;
            if is_key && let Some(value) = filter.equality(&field.path) {
                is_simple(value).then(|| put(&mut scan.keys, &field.stored, single("$eq", value)))?;
                scan.equalities = scan.equalities.checked_add(1)?;
                continue;
            }
            let wanted = wanted.next().filter(|wanted| wanted.path == field.path)?;
            let forward = wanted.is_ascending == field.is_ascending;
            (*is_forward.get_or_insert(forward) == forward).then_some(())?;
            put(&mut scan.sort, &field.stored, if wanted.is_ascending { 1 } else { -1 });
            if is_key {
                scan.key_fields.push(&field.stored);
                scan.append_range(filter, &field.stored);
            } else {
                scan.is_ascending = wanted.is_ascending;
            }
        }
        (!scan.key_fields.is_empty()).then_some(scan)
    }

    /// Appends the conditions on a key field that mongod evaluates on the index.
    fn append_range(&mut self, filter: &ItemFilter<'_>, field: &str) {
        let mut conditions = RawDocumentBuf::new();
        if let Some(values) = filter.list(field)
            && values.iter().all(|value| is_simple(*value))
        {
            let values: RawArrayBuf = values.iter().copied().collect();
            put(&mut conditions, "$in", &values);
        }
        for (operator, side) in [("$gte", BoundSide::Lower), ("$lte", BoundSide::Upper)] {
            if let Some(bound) = filter.bound(field, side).filter(|bound| is_simple(bound.value)) {
                put(&mut conditions, operator, bound.value);
            }
        }
        if !conditions.is_empty() {
            put(&mut self.keys, field, &conditions);
        }
    }

    pub(super) fn equalities(&self) -> usize {
        self.equalities
    }

    /// Appends the arguments of a `find` that select the pages and their order.
    pub(super) fn append_to(&self, find: &mut RawDocumentBuf) {
        find.append(cstr!("hint"), self.index.key());
        find.append(cstr!("filter"), &self.keys);
        find.append(cstr!("sort"), &self.sort);
    }

    /// The place of a page in the order of the sort: no item of a later page comes before it. `None` if the
    /// page has no dates as bounds, or if the proxy does not order a value of its key as mongod does.
    pub(super) fn place<'b>(&self, bucket: &Bucket<'b>) -> Option<SortKey<'b>> {
        let mut values = Vec::new();
        for field in &self.key_fields {
            let value = get(bucket.document, field).unwrap_or(RawBsonRef::Null);
            is_comparable(value).then(|| values.push(value))?;
        }
        values.push(RawBsonRef::DateTime(bucket.from?));
        Some(SortKey::of_values(values))
    }
}

/// The last page that a scan has read.
#[derive(Debug, Default)]
pub(super) struct LastPage<'b>(Option<KeyAndNumber<'b>>);

#[derive(Clone, Copy, Debug)]
struct KeyAndNumber<'b> {
    bucket: &'b RawDocument,
    page: u64,
}

impl<'b> LastPage<'b> {
    /// Replaces the last page by the next one. `None` if the pages of its key may not follow one another in
    /// time.
    pub(super) fn advance(&mut self, scan: &KeyOrderScan<'_>, page: &Bucket<'b>) -> Option<()> {
        let next = KeyAndNumber {
            bucket: page.document,
            page: page.page,
        };
        let last = self
            .0
            .replace(next)
            .filter(|last| has_same_key(scan, last.bucket, page.document));
        let follows = match last.map(|last| page.page.cmp(&last.page)) {
            Some(order) if scan.is_ascending => order == Ordering::Greater,
            Some(order) => order == Ordering::Less,
            None => page.says_ascending() && (!scan.is_ascending || page.page == 0),
        };
        (follows && !page.is_late).then_some(())
    }
}

/// Whether two buckets have the same key. The scan reads one value of the key fields that are not sorted by.
fn has_same_key(scan: &KeyOrderScan<'_>, one: &RawDocument, other: &RawDocument) -> bool {
    scan.key_fields.iter().all(|field| {
        let [one, other] = [one, other].map(|bucket| get(bucket, field).unwrap_or(RawBsonRef::Null));
        compare(one, other).is_some_and(Ordering::is_eq)
    })
}
