//! Merges the items of buckets: an item waits until no later bucket can have an item before it.

use bson::raw::RawDocument;

use super::key_order::LastPage;
use super::sort_key::SortKey;
use super::time_bounds::PageSequence;
use super::{IndexScan, IndexScanResult, ScannedIndex};
use crate::pattern::bucket::item_decoder::ItemDecoder;
use crate::pattern::bucket::item_filter::{StoredItem, is_equal_or_has};
use crate::pattern::bucket::read::bucket::Bucket;
use crate::pattern::bucket::read::documents::DocumentBuffer;
use crate::pattern::bucket::value_order::{compare, rank};
use crate::pattern::shapes::BucketShape;

/// An item that matches.
struct Match<'b> {
    key: SortKey<'b>,
    bucket: &'b RawDocument,
    stored: &'b RawDocument,
}

/// The matching items of the buckets read so far.
pub(super) struct Merge<'b, 's> {
    scan: &'s IndexScan<'s>,
    shape: &'b BucketShape,
    found: Vec<Match<'b>>,
    /// The first entry of the last bucket.
    last: Option<SortKey<'b>>,
    /// The pages read, if an index on time bounds is read.
    pages: PageSequence,
    /// The last page, if an index on the key and the page number is read.
    last_page: LastPage<'b>,
    /// Whether no bucket after the last one has an entry in the range.
    is_at_the_end: bool,
}

impl<'b, 's> Merge<'b, 's> {
    /// No buckets. `is_all`: none will follow those that are [taken](Self::take).
    pub(super) fn new(scan: &'s IndexScan<'s>, shape: &'b BucketShape, is_all: bool) -> Self {
        Self {
            scan,
            shape,
            found: Vec::new(),
            last: None,
            pages: PageSequence::default(),
            last_page: LastPage::default(),
            is_at_the_end: is_all,
        }
    }

    /// Whether no later bucket has an entry in the range.
    pub(super) fn is_at_the_end(&self) -> bool {
        self.is_at_the_end
    }

    /// Adds a bucket. `None` if the proxy does not order or compare its items as mongod does.
    pub(super) fn take(&mut self, document: &'b RawDocument) -> Option<()> {
        let bucket = Bucket::open(self.shape, document)?;
        let query = self.scan.query;
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
            let key = SortKey::of(&item, &query.sort, self.scan.begin.is_none())?;
            if !self.is_behind_the_begin(&item, &key)? {
                continue;
            }
            if first.as_ref().is_none_or(|first| key.is_before(first, &query.sort)) {
                first = Some(key.clone());
            }
            if query.filter.matches(&item)? {
                let bucket = document;
                self.found.push(Match { key, bucket, stored });
            }
        }
        let entry = match &self.scan.index {
            ScannedIndex::Items(_) => first,
            ScannedIndex::TimeBounds(bounds) => {
                self.pages.add(bounds, &bucket)?;
                let place = bounds.place(&bucket).map(SortKey::of_time);
                if is_empty { place } else { Some(place?) }
            }
            ScannedIndex::Keys(keys) => {
                self.last_page.advance(keys, &bucket)?;
                let place = keys.place(&bucket);
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

    /// Whether the item has an entry in the part of the index that the equalities select.
    fn has_entry(&self, item: &StoredItem<'b>) -> Option<bool> {
        for equality in &self.scan.equalities {
            if !is_equal_or_has(equality.value, item.value(equality.path).ok()?)? {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Whether an item has an entry in the range, or behind its end. `None` if the scan may read an entry of
    /// the excluded first value.
    fn is_behind_the_begin(&self, item: &StoredItem<'b>, key: &SortKey<'b>) -> Option<bool> {
        let (Some(begin), Some(field)) = (self.scan.begin, self.scan.query.sort.first()) else {
            return Some(true);
        };
        let order = compare(key.first()?, begin.value)?;
        let order = if field.is_ascending { order } else { order.reverse() };
        if order.is_eq() && self.scan.may_read_excluded(item)? {
            return None;
        }
        Some(order.is_gt() || (order.is_eq() && begin.is_included))
    }

    /// Whether an entry is within the end of the range, and of the range's type.
    fn is_before_the_end(&self, key: &SortKey<'b>) -> Option<bool> {
        let Some(field) = self.scan.query.sort.first() else {
            return Some(true);
        };
        let value = key.first()?;
        if let Some(begin) = self.scan.begin
            && rank(begin.value)? != rank(value)?
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

    pub(super) fn result(mut self) -> IndexScanResult {
        let query = self.scan.query;
        if !self.is_at_the_end {
            let Some(last) = &self.last else {
                return IndexScanResult::TooFew(0);
            };
            let sort = &query.sort;
            // A later page may have items of the same time, which other sort fields put before these.
            let has_ties = last.len() < sort.len();
            self.found.retain(|found| {
                if has_ties {
                    found.key.is_before(last, sort)
                } else {
                    !last.is_before(&found.key, sort)
                }
            });
            let count = u64::try_from(self.found.len()).unwrap_or(u64::MAX);
            if count < query.wanted() {
                return IndexScanResult::TooFew(self.found.len());
            }
        }
        self.found.sort_by(|one, other| one.key.order(&other.key, &query.sort));
        let mut items = DocumentBuffer::default();
        let skip = usize::try_from(query.skip).unwrap_or(usize::MAX);
        let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
        for found in self.found.iter().skip(skip).take(limit) {
            let mut decoder = ItemDecoder::new(self.shape, &query.projection, found.bucket);
            items.add(|bytes| decoder.append(found.stored, bytes));
        }
        IndexScanResult::Items(items)
    }
}
