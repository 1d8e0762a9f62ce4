//! Scans pages in the order of their numbers.
//!
//! Numbers never change, so concurrent writes do not make a scan miss a page or read one twice. Numbers
//! follow time if no page of the key is out of order. The first page of a scan by time records that
//! ([`Bucket::says_ascending`]), or the key's exceptions do. A scan may skip an item that was stored out of
//! order, or whose time was changed, after the scan passed its position. A scan of a plain collection skips
//! such a document as well.

mod concurrent_late;

use bson::DateTime;
use bson::raw::{RawDocument, RawDocumentBuf, cstr};

use self::concurrent_late::is_disturbed;
use super::adjacent_value::adjacent;
use super::bucket::{Bucket, PageTimes, time_of};
use super::bucket_query::{BucketQuery, Keys};
use super::documents::DocumentBuffer;
use super::range::TimeRange;
use super::{BucketSource, Reach};
use crate::command::document::{get, single};
use crate::pattern::bucket::index;
use crate::pattern::bucket::item_decoder::ItemDecoder;
use crate::pattern::bucket::key::{canonical, same_bytes};
use crate::pattern::bucket::layout::path;
use crate::pattern::bucket::page_locator::Location;
use crate::pattern::bucket::projection::Projection;
use crate::pattern::shapes::BucketShape;

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanDirection {
    /// To higher page numbers.
    Forward,
    /// To lower page numbers.
    Backward,
}

/// Where a scan of one key begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the first page in the direction of the scan.
    End,
    /// At a page: forward after its first `offset` items, backward with the item at `offset`.
    At(Location),
    /// At a page. Unless that is page 0, all its times must precede the range in the direction of the scan.
    Before(u64),
}

/// Whether the times of the key's pages ascend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ascending {
    /// The scan does not depend on it.
    Irrelevant,
    /// Unknown: the first bucket that is read records it.
    Unknown,
    /// The times ascend.
    Known,
}

/// The result of reading one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanStep {
    /// The scan continues with the next bucket.
    More,
    /// The result is complete.
    Done,
    /// Page numbers do not follow time in this key. The query needs another access path.
    OutOfOrder,
    /// The document is not a bucket.
    NotABucket,
}

/// The state of a scan.
#[derive(Clone, Debug)]
pub struct PageScan {
    keys: Keys,
    direction: ScanDirection,
    start: Start,
    ascending: Ascending,
    range: TimeRange,
    skip: u64,
    left: Option<u64>,
    projection: Projection,
    /// The number of the last page that was read, and whether that page is closed.
    last_read: Option<(u64, bool)>,
    /// The time that a scan by time has reached. Items before it, in the direction of the scan, are done.
    reached: Option<DateTime>,
    /// The first page that was read.
    first_times: Option<PageTimes>,
    /// The last page that was read.
    last_times: Option<PageTimes>,
}

impl PageScan {
    /// The scan of all pages that a query may select, from the first one in that direction.
    #[must_use]
    pub fn of(query: &BucketQuery, direction: ScanDirection) -> Self {
        Self {
            keys: query.keys.clone(),
            direction,
            start: Start::End,
            ascending: if query.is_by_time() {
                Ascending::Unknown
            } else {
                Ascending::Irrelevant
            },
            range: query.range,
            skip: query.skip,
            left: query.limit,
            projection: query.projection.clone(),
            last_read: None,
            reached: None,
            first_times: None,
            last_times: None,
        }
    }

    /// This scan, but from `start`, with `skip` items left to skip. The caller has checked that times
    /// ascend.
    #[must_use]
    pub fn beginning(self, start: Start, skip: u64) -> Self {
        let ascending = match self.ascending {
            Ascending::Unknown => Ascending::Known,
            other => other,
        };
        Self {
            start,
            ascending,
            skip,
            ..self
        }
    }

    /// The estimated number of buckets that contain the next `items` items. Assumes full pages, so it is a
    /// lower bound where pages are short.
    #[must_use]
    pub fn buckets_for(&self, shape: &BucketShape, items: u64) -> u64 {
        let offset = match (self.start, self.last_read) {
            (Start::At(location), None) => match self.direction {
                ScanDirection::Forward => location.offset,
                ScanDirection::Backward => {
                    u64::from(shape.max_items()).saturating_sub(location.offset.saturating_add(1))
                }
            },
            (Start::Before(_), None) => u64::from(shape.max_items()),
            // The highest page is usually not full: assume half.
            (Start::End, None) if self.direction == ScanDirection::Backward => u64::from(shape.max_items()).div_ceil(2),
            _ => 0,
        };
        let items = items.saturating_add(offset).saturating_add(self.skip);
        items.div_ceil(u64::from(shape.max_items()).max(1)).max(1)
    }

    /// The estimated number of pages up to the end of the range, at least 1. Assumes that these pages span as
    /// much time as the last one that was read. `None` if the range is open there, or nothing was read.
    #[must_use]
    pub fn pages_to_end_of_range(&self) -> Option<u64> {
        let reached = self.reached?.timestamp_millis();
        let millis = match self.direction {
            ScanDirection::Forward => self.range.to?.at.timestamp_millis().checked_sub(reached)?,
            ScanDirection::Backward => reached.checked_sub(self.range.from?.at.timestamp_millis())?,
        };
        let pages = u64::try_from(millis)
            .unwrap_or_default()
            .checked_div(self.last_times?.millis())?;
        Some(pages.saturating_add(1))
    }

    /// The first and the last page that were read, with their time bounds.
    pub fn read_times(&self) -> impl Iterator<Item = PageTimes> {
        let last = self.last_times.filter(|_| self.last_times != self.first_times);
        self.first_times.into_iter().chain(last)
    }

    /// Whether a second query can continue the scan after some buckets.
    #[must_use]
    pub fn can_go_on(&self) -> bool {
        matches!(self.keys, Keys::One(_) | Keys::Item(..))
    }

    /// Whether the scan ends with the first item of the collection.
    #[must_use]
    pub fn is_of_first_item(&self) -> bool {
        self.keys == Keys::All && self.skip == 0 && self.left == Some(1)
    }

    /// Whether the bucket of an item was read, and the item was not in it.
    #[must_use]
    pub fn missed_its_item(&self) -> bool {
        matches!(self.keys, Keys::Item(..)) && self.last_read.is_some() && self.left == Some(1)
    }

    /// The most items that are still to be returned. `None` without a limit.
    #[must_use]
    pub fn left(&self) -> Option<u64> {
        self.left
    }

    /// The `find` for the buckets that are not read yet.
    #[must_use]
    pub fn query(&self, source: BucketSource<'_>) -> RawDocumentBuf {
        let mut find = single("find", source.collection);
        match &self.keys {
            Keys::All => find.append(cstr!("hint"), single("$natural", 1)),
            Keys::Several(filter) => {
                find.append(cstr!("filter"), filter);
                find.append(cstr!("hint"), index::PAGE);
            }
            Keys::Item(item) => {
                let id = item.id.as_raw_bson_ref();
                let has_bounds = source.reach == Reach::Bounds && source.has_item_id_index;
                let next = adjacent(id, true).filter(|_| has_bounds);
                if next.is_none() || item.has_other_conditions {
                    find.append(cstr!("filter"), &item.filter);
                }
                if let Some(next) = next {
                    find.append(cstr!("min"), item.bound(id));
                    find.append(cstr!("max"), item.bound(next.as_raw_bson_ref()));
                }
                find.append(cstr!("hint"), index::ITEM_ID);
            }
            Keys::One(key) => {
                let (from, before) = self.pages();
                find = source.pages(key, from, before);
                if self.direction == ScanDirection::Backward {
                    find.append(cstr!("sort"), single(path::PAGE, -1));
                }
            }
        }
        find
    }

    /// The range of page numbers that are not read yet: the lowest, and the one after the highest.
    fn pages(&self) -> (u64, Option<u64>) {
        let begin = match self.start {
            Start::End => None,
            Start::At(location) => Some(location.page),
            Start::Before(page) => Some(page),
        };
        let last_read = self.last_read.map(|(page, _)| page);
        let behind = |page: u64| page.saturating_add(1);
        match self.direction {
            ScanDirection::Forward => (last_read.map(behind).or(begin).unwrap_or_default(), None),
            ScanDirection::Backward => (0, last_read.or(begin.map(behind))),
        }
    }

    /// Whether the last page that was read is the last one of the scan.
    #[must_use]
    pub fn is_at_the_end(&self) -> bool {
        match (&self.keys, self.last_read) {
            (Keys::One(_), Some((page, closed))) => match self.direction {
                // An open page is the highest.
                ScanDirection::Forward => !closed,
                ScanDirection::Backward => page == 0,
            },
            // An item is in one bucket only.
            (Keys::Item(..), last_read) => last_read.is_some(),
            _ => false,
        }
    }

    /// Reads the next bucket, and adds its items that the query selects to `to`.
    pub fn take(&mut self, shape: &BucketShape, document: &RawDocument, to: &mut DocumentBuffer) -> ScanStep {
        if self.left == Some(0) {
            return ScanStep::Done;
        }
        let Some(bucket) = Bucket::open(shape, document) else {
            return ScanStep::NotABucket;
        };
        if !self.is_in_order(&bucket) {
            return ScanStep::OutOfOrder;
        }
        let first = self.last_read.is_none();
        self.last_read = Some((bucket.page, bucket.is_closed(shape)));
        self.last_times = bucket.times();
        if first {
            self.first_times = self.last_times;
        }
        let by_time = self.ascending != Ascending::Irrelevant;
        if by_time && !bucket.is_late && self.is_beyond_range(&bucket) {
            return ScanStep::Done;
        }
        let is_disturbed = by_time && is_disturbed(&bucket);
        let needs_times = by_time && (is_disturbed || !self.holds_all(&bucket));
        let mut items: Vec<(Option<DateTime>, &RawDocument)> = Vec::new();
        for stored in bucket.stored().filter(|stored| self.is_selected(stored)) {
            items.push((if needs_times { time_of(shape, stored) } else { None }, stored));
        }
        self.cut(first, &mut items);
        if is_disturbed {
            self.put_in_order(&bucket, &mut items);
        }
        if needs_times {
            items.retain(|(time, _)| time.is_some_and(|time| self.range.contains(time)));
        }
        if self.direction == ScanDirection::Backward {
            items.reverse();
        }
        if is_disturbed {
            self.reach(items.last().and_then(|(time, _)| *time));
        } else if by_time {
            self.reach(match self.direction {
                ScanDirection::Forward => bucket.to,
                ScanDirection::Backward => bucket.from,
            });
        }
        self.hand_out(shape, &bucket, &items, to)
    }

    fn hand_out(
        &mut self,
        shape: &BucketShape,
        bucket: &Bucket<'_>,
        items: &[(Option<DateTime>, &RawDocument)],
        to: &mut DocumentBuffer,
    ) -> ScanStep {
        let mut unpacker = None;
        for (_, stored) in items {
            if self.skip > 0 {
                self.skip = self.skip.saturating_sub(1);
                continue;
            }
            if self.left == Some(0) {
                return ScanStep::Done;
            }
            let unpacker = unpacker.get_or_insert_with(|| ItemDecoder::new(shape, &self.projection, bucket.document));
            to.add(|bytes| unpacker.append(stored, bytes));
            self.left = self.left.map(|left| left.saturating_sub(1));
        }
        if self.left == Some(0) {
            ScanStep::Done
        } else {
            ScanStep::More
        }
    }

    /// Whether the query selects a stored item by its `_id`. `true` for queries without an `_id`.
    fn is_selected(&self, stored: &RawDocument) -> bool {
        match &self.keys {
            Keys::Item(item) => get(stored, "_id").is_some_and(|own| {
                let own = canonical(own);
                same_bytes(own.as_raw_bson_ref(), item.id.as_raw_bson_ref())
            }),
            _ => true,
        }
    }

    /// Whether page numbers still follow time with this bucket. `true` for scans that are not by time.
    fn is_in_order(&mut self, bucket: &Bucket<'_>) -> bool {
        if self.last_read.is_none() && self.ascending == Ascending::Unknown {
            let is_decisive = self.direction == ScanDirection::Backward || bucket.page == 0;
            if !is_decisive || !bucket.says_ascending() {
                return false;
            }
            self.ascending = Ascending::Known;
        }
        if self.last_read.is_none() && self.ascending == Ascending::Known && bucket.is_late {
            // The page became late after the times were found to ascend.
            return false;
        }
        if self.last_read.is_none()
            && let Start::Before(page) = self.start
            && page == bucket.page
            && page > 0
        {
            // The index may have returned any of several pages with the same time.
            return match self.direction {
                ScanDirection::Forward => bucket.to.is_some_and(|to| self.range.is_after(to)),
                ScanDirection::Backward => bucket.from.is_some_and(|from| self.range.is_before(from)),
            };
        }
        true
    }

    /// Whether this bucket and all later ones of the scan are outside the range.
    fn is_beyond_range(&self, bucket: &Bucket<'_>) -> bool {
        match self.direction {
            ScanDirection::Forward => bucket.from.is_some_and(|from| self.range.is_before(from)),
            ScanDirection::Backward => bucket.to.is_some_and(|to| self.range.is_after(to)),
        }
    }

    /// Whether all times of a bucket are in the range.
    fn holds_all(&self, bucket: &Bucket<'_>) -> bool {
        let inside = |time: Option<DateTime>| time.is_some_and(|time| self.range.contains(time));
        self.range.is_open() || (inside(bucket.from) && inside(bucket.to))
    }

    /// Removes the items before the start position. `first`: the bucket is the first one of the scan.
    fn cut(&self, first: bool, items: &mut Vec<(Option<DateTime>, &RawDocument)>) {
        let Start::At(location) = self.start else { return };
        if !first || self.last_read.is_some_and(|(page, _)| page != location.page) {
            return;
        }
        let offset = usize::try_from(location.offset).unwrap_or(usize::MAX);
        match self.direction {
            ScanDirection::Forward => drop(items.drain(..offset.min(items.len()))),
            ScanDirection::Backward => items.truncate(offset.saturating_add(1)),
        }
    }
}

#[cfg(test)]
mod tests;
