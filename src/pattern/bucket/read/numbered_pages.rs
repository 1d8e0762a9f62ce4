//! The pages of a time range by their numbers, from a page whose times were read before.

use std::ops::Range;

use super::bucket::{Bucket, PageTimes};
use super::bucket_query::BucketQuery;
use super::page_scan::ScanDirection;
use super::range::TimeRange;
use crate::pattern::shapes::BucketShape;

/// The most pages that are read by their numbers. For more, a second query for the first page costs little in
/// comparison.
const MAX_PAGES: u64 = 16;

/// The numbers of the pages to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedPages {
    numbers: Range<u64>,
    direction: ScanDirection,
    range: TimeRange,
}

impl NumberedPages {
    /// `pages` pages from the cached one on, which contains the near end of the range, and the page before it
    /// if that may have an item of the same time. `None` if they are too many.
    #[must_use]
    pub fn of(query: &BucketQuery, cached: PageTimes, pages: u64) -> Option<Self> {
        let (page, next) = (cached.page, cached.page.saturating_add(1));
        let (direction, range) = (query.order.direction(), query.range);
        let numbers = match direction {
            ScanDirection::Forward => {
                let is_alone = range.is_after(cached.from);
                page.saturating_sub(u64::from(!is_alone))..page.saturating_add(pages)
            }
            ScanDirection::Backward => {
                let is_alone = range.is_before(cached.to);
                next.saturating_sub(pages)..next.saturating_add(u64::from(!is_alone))
            }
        };
        (pages <= MAX_PAGES).then_some(Self {
            numbers,
            direction,
            range,
        })
    }

    /// The numbers to query for: those of the pages, and that of the first page.
    #[must_use]
    pub fn with_first(&self) -> Vec<u64> {
        let first = (!self.has_first()).then_some(0);
        self.numbers.clone().chain(first).collect()
    }

    /// Whether the first page is one of the pages.
    #[must_use]
    pub fn has_first(&self) -> bool {
        self.numbers.contains(&0)
    }

    /// Whether no other page has items at the near end of the range. `near` is the page that was read
    /// there. The cached times may be out of date.
    #[must_use]
    pub fn begin_with(&self, shape: &BucketShape, near: &Bucket<'_>) -> bool {
        match self.direction {
            ScanDirection::Forward => near.page == 0 || near.from.is_some_and(|from| self.range.is_after(from)),
            // The highest page is open, or the next one is missing.
            ScanDirection::Backward => {
                !near.is_closed(shape)
                    || near.page.saturating_add(1) < self.numbers.end
                    || near.to.is_some_and(|to| self.range.is_before(to))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::raw::RawDocumentBuf;
    use bson::{DateTime, rawdoc};

    use super::*;
    use crate::command::find::Find;
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    fn shape() -> BucketShape {
        let options = BucketOptions {
            time: Some("t".to_owned()),
            max_items: 3,
            ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
        };
        BucketShape::new(options).unwrap()
    }

    fn date(millis: i32) -> DateTime {
        DateTime::from_millis(millis.into())
    }

    /// The pages of a query before or after a time, if page 5 was cached with the times 50 to 59.
    fn pages(operator: &str, time: i32, pages: u64) -> Option<NumberedPages> {
        let mut range = RawDocumentBuf::new();
        crate::command::document::put(&mut range, operator, date(time));
        let filter = rawdoc! { "k": 1, "t": range };
        let sort = rawdoc! { "t": if operator.starts_with("$g") { 1 } else { -1 } };
        let find = Find {
            filter: Some(&filter),
            sort: Some(&sort),
            ..Find::default()
        };
        let query = BucketQuery::of(&shape(), &find).unwrap();
        let [from, to] = [50, 59].map(date);
        NumberedPages::of(&query, PageTimes { page: 5, from, to }, pages)
    }

    #[test]
    fn pages_are_counted_from_the_cached_one() {
        for (operator, time, expected) in [
            ("$gt", 55, [5, 6, 7, 0].as_slice()),
            ("$gt", 50, &[5, 6, 7, 0]),
            // Page 4 may have an item of the time 50, page 6 one of the time 59.
            ("$gte", 50, &[4, 5, 6, 7, 0]),
            ("$lt", 55, &[3, 4, 5, 0]),
            ("$lt", 59, &[3, 4, 5, 0]),
            ("$lte", 59, &[3, 4, 5, 6, 0]),
        ] {
            assert_eq!(
                pages(operator, time, 3).unwrap().with_first(),
                expected,
                "{operator} {time}"
            );
        }
        // The first page is one of them.
        assert_eq!(pages("$lt", 55, 9).unwrap().with_first(), [0, 1, 2, 3, 4, 5]);
        assert!(pages("$gt", 55, 17).is_none());
    }

    #[test]
    fn page_at_the_near_end_shows_that_no_other_has_items_there() {
        let near = |page: i32, count: i32, times: [i32; 2]| {
            let [from, to] = times.map(date);
            let control = rawdoc! { "v": 1, "page": page, "from": from, "to": to };
            rawdoc! { "k": 1, "count": count, "history": [], "control": control }
        };
        for (operator, page, count, times, expected) in [
            ("$gt", 5, 3, [50, 59], true),
            // Earlier pages may have later items than 55.
            ("$gt", 5, 3, [57, 59], false),
            ("$gt", 0, 3, [57, 59], true),
            ("$lt", 5, 3, [50, 59], true),
            ("$lt", 5, 3, [50, 53], false),
            // The highest page is open, or the page after it was read, too, and does not exist.
            ("$lt", 5, 2, [50, 53], true),
            ("$lt", 4, 3, [50, 53], true),
        ] {
            let document = near(page, count, times);
            let bucket = Bucket::open(&shape(), &document).unwrap();
            let pages = pages(operator, 55, 3).unwrap();
            assert_eq!(pages.begin_with(&shape(), &bucket), expected, "{operator} {document:?}");
        }
    }
}
