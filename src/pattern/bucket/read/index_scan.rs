//! Reads items in the order of an index, one bucket after the other.
//!
//! An index on a field of items is multikey. mongod returns each bucket once, at its first entry in
//! the order of the scan. So no bucket after the last one that was read has an entry before the
//! first entry of that bucket. Items up to that entry are complete, and the other items wait
//! ([`IndexScan::items`]). `k` items need at most `k + 1` buckets, unless the filter has conditions
//! that the index does not answer.
//!
//! If a sort field is an array, mongod sorts by its least or greatest element. A range may exclude
//! that element. So a scan that begins inside an index is exact only if no item has an array there:
//! [`IndexScan::unless_array`] returns the path, and the index records whether it has arrays
//! ([decision](../../../../docs/decisions/0028-an-index-is-read-a-bucket-at-a-time.md)).

mod bounds;
mod key_order;
mod merge;
mod plan;
mod sort_key;
#[cfg(test)]
mod tests;
mod time_bounds;
pub mod value_scan;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use self::bounds::last_of_all;
use self::key_order::KeyOrderScan;
use self::merge::Merge;
pub use self::plan::SortedQuery;
use self::time_bounds::BoundsScan;
pub use self::time_bounds::has_read_heads;
use super::documents::DocumentBuffer;
use crate::command::document::{append_fields, get, put, single};
use crate::pattern::bucket::index::has_items;
use crate::pattern::bucket::item_filter::{RangeBound, StoredItem};
use crate::pattern::bucket::item_index::{StoredIndex, stored_path};
use crate::pattern::bucket::predicate_pushdown::is_page;
use crate::pattern::shapes::BucketShape;

/// The most items that are skipped and returned together. For more items mongod sorts.
pub const MAX_ITEMS: u64 = 1000;

/// How many items of one key are read at first for each item of the result, because no bound shows whether an
/// item meets the other conditions.
const ITEMS_PER_MATCH: u64 = 8;

/// How many pages of several keys are read at first for each page that the result would fill.
const PAGES_PER_FULL_PAGE: u64 = 4;

/// A condition that sets a field of the index equal to a value. The field comes before the sort
/// fields.
#[derive(Clone, Copy, Debug)]
struct Equality<'a> {
    path: &'a str,
    value: RawBsonRef<'a>,
}

/// The part of an index that is read, and the direction.
#[derive(Clone, Debug)]
enum IndexPart {
    /// The whole index.
    Whole,
    /// From these values on, forward.
    From(RawDocumentBuf),
    /// From the last entry of an excluded value on, forward: the later fields have the
    /// [last values](bounds::last_of_all).
    Behind(RawDocumentBuf),
    /// From these values on, backward, without the values themselves.
    BackFrom(RawDocumentBuf),
}

/// The index that is read.
#[derive(Clone, Debug)]
enum ScannedIndex<'a> {
    /// An application's index on items.
    Items(&'a StoredIndex),
    /// An index of the shape, whose pages follow one another in time.
    TimeBounds(BoundsScan),
    /// An index on the key and the page number.
    Keys(KeyOrderScan<'a>),
}

/// A query that is answered in the order of an index.
#[derive(Clone, Debug)]
pub struct IndexScan<'a> {
    query: &'a SortedQuery<'a>,
    index: ScannedIndex<'a>,
    equalities: Vec<Equality<'a>>,
    part: IndexPart,
    /// The first and the last value of the first sort field.
    begin: Option<RangeBound<'a>>,
    end: Option<RawBsonRef<'a>>,
}

/// The result of a scan over some buckets.
#[derive(Debug)]
pub enum IndexScanResult {
    /// All items of the result.
    Items(DocumentBuffer),
    /// More buckets are needed. Has the number of items that are known.
    TooFew(usize),
    /// The proxy does not order or compare some values as mongod does.
    NotComparable,
}

impl IndexScan<'_> {
    /// The number of buckets to read first. Of an index on items, they contain the result if the index
    /// answers all conditions. Of one key, they contain it if one of [`ITEMS_PER_MATCH`] items matches. Of
    /// several keys, they contain it if pages are a quarter full.
    #[must_use]
    pub fn buckets(&self, shape: &BucketShape) -> u64 {
        let of_matches = self.query.wanted();
        let max_items = u64::from(shape.max_items()).max(1);
        let buckets = match &self.index {
            ScannedIndex::TimeBounds(bounds) if bounds.is_of_one_key() => {
                let items = of_matches.saturating_mul(ITEMS_PER_MATCH);
                items.div_ceil(max_items).min(of_matches)
            }
            ScannedIndex::Keys(_) => {
                let full = of_matches.div_ceil(max_items);
                full.saturating_mul(PAGES_PER_FULL_PAGE).min(of_matches)
            }
            _ => of_matches,
        };
        buckets.saturating_add(1)
    }

    /// Whether more buckets may be read if the first ones do not contain the result. Not between listed
    /// values: most buckets there may have none of these values, and mongod seeks the values one by one.
    #[must_use]
    pub fn can_grow(&self) -> bool {
        // mongod evaluates a list of keys.
        matches!(self.index, ScannedIndex::Keys(_)) || !self.query.lists_sorted_values()
    }

    /// The number of equalities that the index answers, on fields before the sort fields.
    #[must_use]
    pub fn equalities(&self, shape: &BucketShape) -> usize {
        match &self.index {
            ScannedIndex::Items(_) => self.equalities.len(),
            ScannedIndex::TimeBounds(bounds) if bounds.is_of_one_key() => shape.key().len(),
            ScannedIndex::TimeBounds(_) => 0,
            ScannedIndex::Keys(keys) => keys.equalities(),
        }
    }

    /// The stored path that must not have arrays for the order to be right. `None` if arrays do not
    /// matter.
    #[must_use]
    pub fn unless_array(&self, shape: &BucketShape) -> Option<String> {
        let is_of_items = matches!(self.index, ScannedIndex::Items(_));
        let sort = &self.query.sort;
        let field = sort.first().filter(|_| is_of_items && self.begin.is_some())?;
        (field.path != "_id").then(|| stored_path(shape, field.path))
    }

    /// Whether the query sorts. A mongos merges the results of shards in order only by a sort.
    #[must_use]
    pub fn is_sorted(&self) -> bool {
        !matches!(self.index, ScannedIndex::Items(_)) || matches!(self.part, IndexPart::Whole)
    }

    /// The `find` for this number of buckets.
    #[must_use]
    pub fn query(&self, shape: &BucketShape, collection: &str, buckets: u64) -> RawDocumentBuf {
        let mut find = single("find", collection);
        match &self.index {
            ScannedIndex::Items(index) => self.append_item_scan(shape, index, &mut find),
            ScannedIndex::TimeBounds(bounds) => bounds.append_to(shape, &mut find),
            ScannedIndex::Keys(keys) => keys.append_to(&mut find),
        }
        let buckets = i64::try_from(buckets).unwrap_or(i64::MAX);
        find.append(cstr!("limit"), buckets);
        find.append(cstr!("batchSize"), buckets);
        find
    }

    fn append_item_scan(&self, shape: &BucketShape, index: &StoredIndex, find: &mut RawDocumentBuf) {
        find.append(cstr!("hint"), index.key());
        match &self.part {
            IndexPart::Whole => {
                if index.is_prefixed() {
                    let mut filter = is_page();
                    // The index on the items' `_id` is partial.
                    append_fields(&mut filter, &has_items(shape));
                    find.append(cstr!("filter"), &filter);
                }
                find.append(cstr!("sort"), self.stored_sort(index));
            }
            IndexPart::From(first) | IndexPart::Behind(first) => find.append(cstr!("min"), first),
            IndexPart::BackFrom(first) => {
                find.append(cstr!("max"), first);
                find.append(cstr!("sort"), index.backward());
            }
        }
    }

    /// The `find` for a late page of the keys that are read. It must be sent behind the scan. If it returns
    /// a page, entries of the index may have moved during the scan. `None` if no entry moves.
    #[must_use]
    pub fn late_pages(&self, collection: &str) -> Option<RawDocumentBuf> {
        match &self.index {
            ScannedIndex::Items(_) | ScannedIndex::Keys(_) => None,
            ScannedIndex::TimeBounds(bounds) => bounds.late_pages(collection),
        }
    }

    /// The `aggregate` that returns the head pages that the scan must read. It must be sent before the scan.
    /// `None` if no entry moves past the scan.
    #[must_use]
    pub fn head_pages(&self, shape: &BucketShape, collection: &str) -> Option<RawDocumentBuf> {
        match &self.index {
            ScannedIndex::Items(_) | ScannedIndex::Keys(_) => None,
            ScannedIndex::TimeBounds(bounds) => bounds.head_pages(shape, collection),
        }
    }

    /// Whether the scan may read an entry of an item that has the excluded first value: where all later fields
    /// have the last value. `None` if the proxy does not know it.
    fn may_read_excluded(&self, item: &StoredItem<'_>) -> Option<bool> {
        let (IndexPart::Behind(_), ScannedIndex::Items(index)) = (&self.part, &self.index) else {
            return Some(false);
        };
        let later = index.fields().get(self.equalities.len().checked_add(1)?)?;
        let value = item.value(&later.path).ok()?;
        Some(value.is_some_and(|value| {
            matches!(value, RawBsonRef::Array(_)) || value == last_of_all(later).as_raw_bson_ref()
        }))
    }

    fn stored_sort(&self, index: &StoredIndex) -> RawDocumentBuf {
        let mut sort = RawDocumentBuf::new();
        let stored = index.fields().iter().skip(self.equalities.len());
        for (field, stored) in self.query.sort.iter().zip(stored) {
            put(&mut sort, &stored.stored, if field.is_ascending { 1 } else { -1 });
        }
        sort
    }

    /// The result from the first buckets of the scan. `is_all`: there are no more buckets.
    #[must_use]
    pub fn items<'b>(
        &self,
        shape: &'b BucketShape,
        buckets: impl Iterator<Item = &'b RawDocument>,
        is_all: bool,
    ) -> IndexScanResult {
        let mut merge = Merge::new(self, shape, is_all);
        for bucket in buckets {
            match merge.take(bucket) {
                Some(()) if merge.is_at_the_end() && !is_all => break,
                Some(()) => {}
                None => return IndexScanResult::NotComparable,
            }
        }
        merge.result()
    }
}

/// Whether an index may contain an array on a stored path, apart from the array of items.
/// `explanation` is the reply to `explain` of a query by that index.
#[must_use]
pub fn may_have_array(shape: &BucketShape, explanation: &RawDocument, path: &str) -> bool {
    let planner = get(explanation, "queryPlanner").and_then(RawBsonRef::as_document);
    let mut stage = planner.and_then(|planner| get(planner, "winningPlan")?.as_document());
    while let Some(plan) = stage {
        if let Some(RawBsonRef::Document(paths)) = get(plan, "multiKeyPaths") {
            let Some(RawBsonRef::Array(arrays)) = get(paths, path) else {
                return true;
            };
            return arrays
                .into_iter()
                .any(|array| array.ok().and_then(RawBsonRef::as_str) != Some(shape.items()));
        }
        let inner = ["inputStage", "queryPlan"].iter().find_map(|name| get(plan, name));
        stage = inner.and_then(RawBsonRef::as_document);
    }
    true
}
