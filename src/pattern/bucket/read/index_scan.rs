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
mod plan;
mod sort_key;
#[cfg(test)]
mod tests;
pub mod value_scan;

use bson::DateTime;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

pub use self::plan::SortedQuery;
use self::sort_key::SortKey;
use super::bucket::Bucket;
use super::documents::DocumentBuffer;
use crate::command::document::{get, put, single};
use crate::pattern::bucket::index::{self, has_items};
use crate::pattern::bucket::item_decoder::ItemDecoder;
use crate::pattern::bucket::item_filter::{ItemFilter, StoredItem, is_equal_or_has};
use crate::pattern::bucket::item_index::{StoredIndex, stored_path};
use crate::pattern::bucket::layout::path;
use crate::pattern::bucket::predicate_pushdown::is_page;
use crate::pattern::bucket::projection::Projection;
use crate::pattern::bucket::value_order::{compare, rank};
use crate::pattern::shapes::BucketShape;

/// The most items that are skipped and returned together. For more items mongod sorts.
pub const MAX_ITEMS: u64 = 1000;

/// How many items of one key are read at first for each item of the result, because no bound shows whether an
/// item meets the other conditions.
const ITEMS_PER_MATCH: u64 = 8;

/// A field of a sort.
#[derive(Clone, Copy, Debug)]
struct SortField<'a> {
    /// Its path in items.
    path: &'a str,
    is_ascending: bool,
}

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
    /// From these values on, backward. The values themselves are excluded.
    BackFrom(RawDocumentBuf),
}

/// The index that is read.
#[derive(Clone, Debug)]
enum ScannedIndex<'a> {
    /// An application's index on items.
    OfItems(&'a StoredIndex),
    /// An index of the shape, whose pages follow one another in time.
    OfTimeBounds(BoundsScan),
}

/// A part of an index of the shape.
#[derive(Clone, Debug)]
struct BoundsScan {
    /// The condition that selects the keys.
    keys: RawDocumentBuf,
    /// Whether it selects one key. If no page of it is late, its pages are then read in the order of their
    /// numbers.
    is_of_one_key: bool,
    /// The condition on the bound. Empty: all pages of the keys.
    range: RawDocumentBuf,
    /// The order in which the pages are read.
    order: PageOrder,
}

/// The order of pages in one of the shape's indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageOrder {
    Number,
    From,
    To,
}

impl PageOrder {
    fn index(self) -> &'static str {
        match self {
            Self::Number => index::PAGE,
            Self::From => index::FROM,
            Self::To => index::TO,
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Number => path::PAGE,
            Self::From => path::FROM,
            Self::To => path::TO,
        }
    }
}

impl BoundsScan {
    fn filter(&self, shape: &BucketShape) -> RawDocumentBuf {
        let mut filter = self.keys.clone();
        if self.order == PageOrder::Number {
            // An emptied page shows the order of time, too.
            return filter;
        }
        // The indexes on time bounds are partial.
        let conditions = [index::every_page(), self.range.clone(), has_items(shape)];
        for (name, value) in conditions.iter().flat_map(|condition| condition.iter()).flatten() {
            filter.append(name, value);
        }
        filter
    }

    /// The time that no item of a later page exceeds. `None` if the page has no dates as bounds.
    fn place(&self, bucket: &Bucket<'_>) -> Option<DateTime> {
        if self.order == PageOrder::To && !self.is_of_one_key {
            bucket.to
        } else {
            bucket.from
        }
    }
}

/// A query that is answered in the order of an index.
#[derive(Clone, Debug)]
pub struct IndexScan<'a> {
    filter: ItemFilter<'a>,
    projection: Projection,
    index: ScannedIndex<'a>,
    equalities: Vec<Equality<'a>>,
    sort: Vec<SortField<'a>>,
    part: IndexPart,
    /// The first and the last value of the first sort field.
    begin: Option<RawBsonRef<'a>>,
    end: Option<RawBsonRef<'a>>,
    skip: u64,
    limit: u64,
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
    /// answers all conditions. Of one key, they contain it if one of [`ITEMS_PER_MATCH`] items matches.
    #[must_use]
    pub fn buckets(&self, shape: &BucketShape) -> u64 {
        let of_matches = self.wanted();
        let buckets = match &self.index {
            ScannedIndex::OfTimeBounds(bounds) if bounds.is_of_one_key => {
                let items = of_matches.saturating_mul(ITEMS_PER_MATCH);
                items.div_ceil(u64::from(shape.max_items()).max(1)).min(of_matches)
            }
            _ => of_matches,
        };
        buckets.saturating_add(1)
    }

    /// Whether the scan reads the pages of one key.
    #[must_use]
    pub fn is_of_one_key(&self) -> bool {
        matches!(&self.index, ScannedIndex::OfTimeBounds(bounds) if bounds.is_of_one_key)
    }

    /// The number of equalities that the application's index answers, on fields before the sort fields.
    #[must_use]
    pub fn equalities(&self) -> usize {
        self.equalities.len()
    }

    fn wanted(&self) -> u64 {
        self.skip.saturating_add(self.limit)
    }

    /// The stored path that must not have arrays for the order to be right. `None` if arrays do not
    /// matter.
    #[must_use]
    pub fn unless_array(&self, shape: &BucketShape) -> Option<String> {
        let is_of_items = matches!(self.index, ScannedIndex::OfItems(_));
        let field = self.sort.first().filter(|_| is_of_items && self.begin.is_some())?;
        (field.path != "_id").then(|| stored_path(shape, field.path))
    }

    /// The `find` for this number of buckets.
    #[must_use]
    pub fn query(&self, shape: &BucketShape, collection: &str, buckets: u64) -> RawDocumentBuf {
        let mut find = single("find", collection);
        match &self.index {
            ScannedIndex::OfItems(index) => self.append_item_scan(shape, index, &mut find),
            ScannedIndex::OfTimeBounds(bounds) => {
                let direction = if self.is_ascending() { 1 } else { -1 };
                find.append(cstr!("hint"), bounds.order.index());
                find.append(cstr!("filter"), bounds.filter(shape));
                find.append(cstr!("sort"), single(bounds.order.path(), direction));
            }
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
                    for (name, value) in has_items(shape).iter().flatten() {
                        filter.append(name, value);
                    }
                    find.append(cstr!("filter"), &filter);
                }
                find.append(cstr!("sort"), self.stored_sort(index));
            }
            IndexPart::From(first) => find.append(cstr!("min"), first),
            IndexPart::BackFrom(first) => {
                find.append(cstr!("max"), first);
                find.append(cstr!("sort"), index.backward());
            }
        }
    }

    /// The `find` that shows whether the time bounds of these pages may have changed during the scan, if it
    /// is sent behind the scan: it returns a page if the bounds may have. `None` if entries of the
    /// index do not move.
    #[must_use]
    pub fn moved_bounds(&self, collection: &str) -> Option<RawDocumentBuf> {
        let ScannedIndex::OfTimeBounds(bounds) = &self.index else {
            return None;
        };
        if bounds.order == PageOrder::Number {
            return None;
        }
        let mut filter = bounds.keys.clone();
        put(&mut filter, path::EXCEPTION, true);
        put(&mut filter, path::LATE, true);
        let mut find = single("find", collection);
        find.append(cstr!("hint"), index::EXCEPTIONS);
        find.append(cstr!("filter"), &filter);
        find.append(cstr!("projection"), single("_id", 1));
        find.append(cstr!("limit"), 1);
        find.append(cstr!("singleBatch"), true);
        Some(find)
    }

    fn is_ascending(&self) -> bool {
        self.sort.first().is_some_and(|field| field.is_ascending)
    }

    fn stored_sort(&self, index: &StoredIndex) -> RawDocumentBuf {
        let mut sort = RawDocumentBuf::new();
        let stored = index.fields().iter().skip(self.equalities.len());
        for (field, stored) in self.sort.iter().zip(stored) {
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
        let mut merge = Merge {
            scan: self,
            shape,
            found: Vec::new(),
            last: None,
            keys: Vec::new(),
            last_page: None,
            is_at_the_end: is_all,
        };
        for bucket in buckets {
            match merge.take(bucket) {
                Some(()) if merge.is_at_the_end && !is_all => break,
                Some(()) => {}
                None => return IndexScanResult::NotComparable,
            }
        }
        merge.result()
    }
}

/// An item that matches.
struct Match<'b> {
    key: SortKey<'b>,
    bucket: &'b RawDocument,
    stored: &'b RawDocument,
}

/// The matching items of the buckets read so far.
struct Merge<'b, 's> {
    scan: &'s IndexScan<'s>,
    shape: &'b BucketShape,
    found: Vec<Match<'b>>,
    /// The first entry of the last bucket.
    last: Option<SortKey<'b>>,
    /// The keys of the pages read, if the time bounds of several keys are read.
    keys: Vec<RawBsonRef<'b>>,
    /// The number of the last page read, if the time bounds of one key are read.
    last_page: Option<u64>,
    /// Whether no bucket after the last one has an entry in the range.
    is_at_the_end: bool,
}

impl<'b> Merge<'b, '_> {
    /// Adds a bucket. `None` if the proxy does not order or compare its items as mongod does.
    fn take(&mut self, document: &'b RawDocument) -> Option<()> {
        let bucket = Bucket::open(self.shape, document)?;
        let mut first: Option<SortKey<'b>> = None;
        let mut is_empty = true;
        for stored in bucket.stored() {
            is_empty = false;
            let item = StoredItem {
                shape: self.shape,
                bucket: document,
                stored,
            };
            if !self.has_entry(&item)? {
                continue;
            }
            let key = SortKey::of(&item, &self.scan.sort, self.scan.begin.is_none())?;
            if !self.is_behind_the_begin(&key)? {
                continue;
            }
            if first.as_ref().is_none_or(|first| key.is_before(first, &self.scan.sort)) {
                first = Some(key.clone());
            }
            if self.scan.filter.matches(&item)? {
                let bucket = document;
                self.found.push(Match { key, bucket, stored });
            }
        }
        let entry = match &self.scan.index {
            ScannedIndex::OfItems(_) => first,
            ScannedIndex::OfTimeBounds(bounds) => {
                self.check_order(bounds, &bucket)?;
                let place = bounds.place(&bucket).map(SortKey::of_time);
                if is_empty { place } else { Some(place?) }
            }
        };
        match entry {
            Some(first) => {
                self.is_at_the_end |= !self.is_before_the_end(&first)?;
                self.last = Some(first);
            }
            // An emptied page has an entry as of an item without any field, which may be the first one.
            None if is_empty => {}
            None => self.is_at_the_end = true,
        }
        Some(())
    }

    /// `None` if the pages may not follow one another in time, or if the scan may have missed a page or read
    /// one twice, because its entry has moved.
    ///
    /// A push moves the entry of the highest page in the index on `to`. So that page must be the first one of
    /// its key in a backward scan of several keys. It may not be if the first page that is read is full and
    /// another one is reserved behind it.
    fn check_order(&mut self, bounds: &BoundsScan, bucket: &Bucket<'b>) -> Option<()> {
        let follows = if bounds.is_of_one_key {
            let is_ascending = self.scan.is_ascending();
            match self.last_page.replace(bucket.page) {
                Some(last) if is_ascending => bucket.page > last,
                Some(last) => bucket.page < last,
                // Page 0 and the highest page show the order of all pages.
                None if bounds.order == PageOrder::Number => {
                    bucket.says_ascending() && (!is_ascending || bucket.page == 0)
                }
                None => true,
            }
        } else {
            let key = get(bucket.document, self.shape.key().first()?)?;
            let is_first = !self.keys.contains(&key);
            if is_first {
                self.keys.push(key);
            }
            let may_have_next = bucket.is_closed(self.shape) && bucket.has_reservation();
            !(is_first && may_have_next && bounds.order == PageOrder::To)
        };
        (follows && !bucket.is_late).then_some(())
    }

    /// Whether the item has an entry in the part of the index that the equalities select.
    fn has_entry(&self, item: &StoredItem<'b>) -> Option<bool> {
        for equality in &self.scan.equalities {
            if !is_equal_or_has(equality.value, item.value(equality.path).ok()?)? {
                return Some(false);
            }
        }
        Some(true)
    }

    fn is_behind_the_begin(&self, key: &SortKey<'b>) -> Option<bool> {
        let (Some(begin), Some(field)) = (self.scan.begin, self.scan.sort.first()) else {
            return Some(true);
        };
        let order = compare(key.first()?, begin)?;
        Some(if field.is_ascending {
            order.is_ge()
        } else {
            order.is_le()
        })
    }

    /// Whether an entry is within the end of the range, and of the range's type.
    fn is_before_the_end(&self, key: &SortKey<'b>) -> Option<bool> {
        let Some(field) = self.scan.sort.first() else {
            return Some(true);
        };
        let value = key.first()?;
        if let Some(begin) = self.scan.begin
            && rank(begin)? != rank(value)?
        {
            return Some(false);
        }
        let Some(end) = self.scan.end else { return Some(true) };
        let order = compare(value, end)?;
        Some(if field.is_ascending {
            order.is_le()
        } else {
            order.is_ge()
        })
    }

    fn result(mut self) -> IndexScanResult {
        if !self.is_at_the_end {
            let Some(last) = &self.last else {
                return IndexScanResult::TooFew(0);
            };
            let sort = &self.scan.sort;
            // A later page may have items of the same time, which other sort fields put before these.
            let has_ties = matches!(self.scan.index, ScannedIndex::OfTimeBounds(_)) && sort.len() > 1;
            self.found.retain(|found| {
                if has_ties {
                    found.key.is_before(last, sort)
                } else {
                    !last.is_before(&found.key, sort)
                }
            });
            let count = u64::try_from(self.found.len()).unwrap_or(u64::MAX);
            if count < self.scan.wanted() {
                return IndexScanResult::TooFew(self.found.len());
            }
        }
        self.found
            .sort_by(|one, other| one.key.order(&other.key, &self.scan.sort));
        let mut items = DocumentBuffer::default();
        let skip = usize::try_from(self.scan.skip).unwrap_or(usize::MAX);
        let limit = usize::try_from(self.scan.limit).unwrap_or(usize::MAX);
        for found in self.found.iter().skip(skip).take(limit) {
            let mut decoder = ItemDecoder::new(self.shape, &self.scan.projection, found.bucket);
            items.add(|bytes| decoder.append(found.stored, bytes));
        }
        IndexScanResult::Items(items)
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
