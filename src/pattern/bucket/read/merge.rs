//! Orders the items of a key whose pages overlap in time.
//!
//! Pages are first selected by their bounds: for most pages the ranks of their items show that all
//! are before or after the requested items.

use bson::DateTime;
use bson::raw::RawDocument;

use super::bucket::{Bucket, time_of};
use super::bucket_query::{BucketQuery, Order};
use super::documents::DocumentBuffer;
use super::range::TimeRange;
use crate::pattern::bucket::item_decoder::ItemDecoder;
use crate::pattern::shapes::BucketShape;

/// The time bounds of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageBounds {
    /// The page number.
    pub page: u64,
    /// The number of items on the page.
    pub count: u64,
    /// The least time on the page.
    pub from: DateTime,
    /// The greatest time on the page.
    pub to: DateTime,
}

impl PageBounds {
    /// The bounds of a bucket. `None` if they are not dates.
    #[must_use]
    pub fn of(bucket: &Bucket<'_>) -> Option<Self> {
        Some(Self {
            page: bucket.page,
            count: bucket.count,
            from: bucket.from?,
            to: bucket.to?,
        })
    }
}

/// The pages that may contain requested items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChosenPages {
    /// The page numbers.
    pub pages: Vec<u64>,
    /// The number of items in the range on earlier pages, which are not read.
    pub passed: u64,
}

/// Chooses the pages that may contain the items of rank `skip` to `skip + limit`. Each of `pages`
/// has at least one item that may be in the range.
#[must_use]
pub fn choose(query: &BucketQuery, pages: &[PageBounds]) -> ChosenPages {
    let end = query.skip.saturating_add(query.limit.unwrap_or(u64::MAX));
    let counts = Counts::of(query, pages);
    let mut chosen = ChosenPages::default();
    for page in pages {
        let whole = is_whole(&query.range, page);
        // The greatest possible rank of the page's last item, counted from 1, and the least
        // possible number of items before its first item.
        let (at_most, at_least) = match query.order {
            Order::TimeDescending => (counts.reaching(page.from), counts.wholly_after(page.to)),
            _ => (counts.beginning_until(page.to), counts.wholly_before(page.from)),
        };
        if whole && at_most <= query.skip {
            chosen.passed = chosen.passed.saturating_add(page.count);
        } else if at_least < end {
            chosen.pages.push(page.page);
        }
    }
    chosen
}

/// Whether all items of a page are in the range.
fn is_whole(range: &TimeRange, page: &PageBounds) -> bool {
    range.contains(page.from) && range.contains(page.to)
}

/// Counts items of pages by the pages' time bounds.
struct Counts {
    /// Sums by the pages' least time. Include items that may be out of the range.
    begins: Vec<(DateTime, u64)>,
    /// Sums by the pages' greatest time.
    ends: Vec<(DateTime, u64)>,
    /// Sums of pages that are completely in the range, by the greatest time.
    whole_ends: Vec<(DateTime, u64)>,
    /// Sums of pages that are completely in the range, by the least time.
    whole_begins: Vec<(DateTime, u64)>,
}

impl Counts {
    fn of(query: &BucketQuery, pages: &[PageBounds]) -> Self {
        let whole = |page: &&PageBounds| is_whole(&query.range, page);
        Self {
            begins: sums(pages.iter().map(|page| (page.from, page.count))),
            ends: sums(pages.iter().map(|page| (page.to, page.count))),
            whole_ends: sums(pages.iter().filter(whole).map(|page| (page.to, page.count))),
            whole_begins: sums(pages.iter().filter(whole).map(|page| (page.from, page.count))),
        }
    }

    /// The number of items of pages that begin at or before a time.
    fn beginning_until(&self, time: DateTime) -> u64 {
        sum_of(&self.begins, |begin| begin <= time)
    }

    /// The number of items of pages that end at or after a time.
    fn reaching(&self, time: DateTime) -> u64 {
        total(&self.ends).saturating_sub(sum_of(&self.ends, |end| end < time))
    }

    /// The number of items of completely included pages that end before a time.
    fn wholly_before(&self, time: DateTime) -> u64 {
        sum_of(&self.whole_ends, |end| end < time)
    }

    /// The number of items of completely included pages that begin after a time.
    fn wholly_after(&self, time: DateTime) -> u64 {
        total(&self.whole_begins).saturating_sub(sum_of(&self.whole_begins, |begin| begin <= time))
    }
}

/// Sorts counts by time and makes them cumulative.
fn sums(counts: impl Iterator<Item = (DateTime, u64)>) -> Vec<(DateTime, u64)> {
    let mut sums: Vec<_> = counts.collect();
    sums.sort_unstable();
    let mut sum = 0_u64;
    for (_, count) in &mut sums {
        sum = sum.saturating_add(*count);
        *count = sum;
    }
    sums
}

fn sum_of(sums: &[(DateTime, u64)], before: impl Fn(DateTime) -> bool) -> u64 {
    let end = sums.partition_point(|(time, _)| before(*time));
    end.checked_sub(1)
        .and_then(|last| sums.get(last))
        .map_or(0, |(_, sum)| *sum)
}

fn total(sums: &[(DateTime, u64)]) -> u64 {
    sums.last().map_or(0, |(_, sum)| *sum)
}

/// The position, in the order of time, of items in buckets that were not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// All buckets were read.
    None,
    /// At or after this time, in the requested order.
    From(DateTime),
}

/// The items of a merge to return.
#[derive(Clone, Copy, Debug)]
pub struct MergeWindow {
    /// The number of items before the first requested one.
    pub skip: u64,
    /// The position of items in buckets that were not read.
    pub unread: Unread,
}

/// Sorts the items of buckets and decodes those of rank `skip` up to the limit into `to`. Returns
/// `false` if items that were not read may come between them, or if an item has no time.
pub fn merge(
    shape: &BucketShape,
    query: &BucketQuery,
    MergeWindow { skip, unread }: MergeWindow,
    buckets: &[Bucket<'_>],
    to: &mut DocumentBuffer,
) -> bool {
    let mut items: Vec<(DateTime, u64, usize, &RawDocument, &Bucket<'_>)> = Vec::new();
    for bucket in buckets {
        for (offset, stored) in bucket.stored().enumerate() {
            let Some(time) = time_of(shape, stored) else {
                return false;
            };
            if query.range.contains(time) {
                items.push((time, bucket.page, offset, stored, bucket));
            }
        }
    }
    items.sort_unstable_by_key(|(time, page, offset, _, _)| (*time, *page, *offset));
    let descending = query.order == Order::TimeDescending;
    if descending {
        items.reverse();
    }
    let known = match unread {
        Unread::None => items.len(),
        // Items with the time of the bound are excluded, because their order among unread items of
        // the same time is unknown.
        Unread::From(bound) if descending => items.partition_point(|(time, ..)| *time > bound),
        Unread::From(bound) => items.partition_point(|(time, ..)| *time < bound),
    };
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let end = size(skip).saturating_add(query.limit.map_or(usize::MAX, size));
    if unread != Unread::None && known < end {
        return false;
    }
    let wanted = items.iter().take(known.min(end)).skip(size(skip));
    for (_, _, _, stored, bucket) in wanted {
        let mut unpacker = ItemDecoder::new(shape, &query.projection, bucket.document);
        to.add(|bytes| unpacker.append(stored, bytes));
    }
    true
}

#[cfg(test)]
mod tests;
