//! Orders the items of a key whose pages overlap in time.
//!
//! Pages are first reduced by their bounds: for most it is known, rank by rank, that all of their items are
//! before or after the range.

use bson::DateTime;
use bson::raw::RawDocument;

use super::bucket::{Bucket, time_of};
use super::bucket_query::{BucketQuery, Order};
use super::documents::DocumentBuffer;
use super::range::TimeRange;
use crate::pattern::bucket::item_decoder::ItemDecoder;
use crate::pattern::shapes::BucketShape;

/// A page by its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageBounds {
    /// Its number.
    pub page: u64,
    /// Items on it.
    pub count: u64,
    /// The least time on it.
    pub from: DateTime,
    /// The greatest.
    pub to: DateTime,
}

impl PageBounds {
    /// Those of a bucket; `None` where it has none.
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

/// The pages that may hold some of the items asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChosenPages {
    /// Their numbers.
    pub pages: Vec<u64>,
    /// Items on other pages that come before, of those in the range.
    pub passed: u64,
}

/// Chooses the pages on which the items of rank `skip` up to `skip + limit` may lie, of pages that are in the
/// range with some of their items at least.
#[must_use]
pub fn choose(question: &BucketQuery, pages: &[PageBounds]) -> ChosenPages {
    let end = question.skip.saturating_add(question.limit.unwrap_or(u64::MAX));
    let counts = Counts::of(question, pages);
    let mut chosen = ChosenPages::default();
    for page in pages {
        let whole = is_whole(&question.range, page);
        // As many as can come before its last item, that one counted; as few as come before its first.
        let (at_most, at_least) = match question.order {
            Order::TimeDescending => (counts.reaching(page.from), counts.wholly_after(page.to)),
            _ => (counts.beginning_until(page.to), counts.wholly_before(page.from)),
        };
        if whole && at_most <= question.skip {
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

/// How many items pages hold before and behind a time.
struct Counts {
    /// By the least time of pages: items of pages up to there, those counted that may be out of the range.
    begins: Vec<(DateTime, u64)>,
    /// By the greatest.
    ends: Vec<(DateTime, u64)>,
    /// Items of pages that are in the range as a whole, by the greatest time.
    whole_ends: Vec<(DateTime, u64)>,
    /// By the least.
    whole_begins: Vec<(DateTime, u64)>,
}

impl Counts {
    fn of(question: &BucketQuery, pages: &[PageBounds]) -> Self {
        let whole = |page: &&PageBounds| is_whole(&question.range, page);
        Self {
            begins: sums(pages.iter().map(|page| (page.from, page.count))),
            ends: sums(pages.iter().map(|page| (page.to, page.count))),
            whole_ends: sums(pages.iter().filter(whole).map(|page| (page.to, page.count))),
            whole_begins: sums(pages.iter().filter(whole).map(|page| (page.from, page.count))),
        }
    }

    /// Items of pages that begin no later than then.
    fn beginning_until(&self, time: DateTime) -> u64 {
        sum_of(&self.begins, |begin| begin <= time)
    }

    /// Items of pages that end no earlier than then.
    fn reaching(&self, time: DateTime) -> u64 {
        total(&self.ends).saturating_sub(sum_of(&self.ends, |end| end < time))
    }

    /// Items of whole pages that end before then.
    fn wholly_before(&self, time: DateTime) -> u64 {
        sum_of(&self.whole_ends, |end| end < time)
    }

    /// Items of whole pages that begin after then.
    fn wholly_after(&self, time: DateTime) -> u64 {
        total(&self.whole_begins).saturating_sub(sum_of(&self.whole_begins, |begin| begin <= time))
    }
}

/// Sorted by time, each with the sum of the counts up to it.
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

/// What bounds the items of buckets that were not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// There are none.
    None,
    /// They come at that time or behind it, in the order asked for.
    From(DateTime),
}

/// Which items of a merge are wanted.
#[derive(Clone, Copy, Debug)]
pub struct MergeWindow {
    /// Items in front of the first one that is wanted.
    pub skip: u64,
    /// Where the items of buckets that were not read begin.
    pub unread: Unread,
}

/// Brings the items of buckets in order and unpacks those of rank `skip` up to the limit. `false` where items
/// that were not read may come between them, or an item has no time.
pub fn merge(
    shape: &BucketShape,
    question: &BucketQuery,
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
            if question.range.contains(time) {
                items.push((time, bucket.page, offset, stored, bucket));
            }
        }
    }
    items.sort_unstable_by_key(|(time, page, offset, _, _)| (*time, *page, *offset));
    let descending = question.order == Order::TimeDescending;
    if descending {
        items.reverse();
    }
    let known = match unread {
        Unread::None => items.len(),
        // Those of the same time have an order, too, and it is not known.
        Unread::From(bound) if descending => items.partition_point(|(time, ..)| *time > bound),
        Unread::From(bound) => items.partition_point(|(time, ..)| *time < bound),
    };
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let end = size(skip).saturating_add(question.limit.map_or(usize::MAX, size));
    if unread != Unread::None && known < end {
        return false;
    }
    let wanted = items.iter().take(known.min(end)).skip(size(skip));
    for (_, _, _, stored, bucket) in wanted {
        let mut unpacker = ItemDecoder::new(shape, &question.projection, bucket.document);
        to.add(|bytes| unpacker.append(stored, bytes));
    }
    true
}

#[cfg(test)]
mod tests;
