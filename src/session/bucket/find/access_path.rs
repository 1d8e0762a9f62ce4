//! Selects the access path of a query.
//!
//! Several queries make one reply while others write, so their order matters. Before a page is begun, all
//! pages before it are closed and, if short, marked. So exceptions that are read *after* a page include every
//! short page before it. A reply is returned only if the exceptions read after the pages lead to the same
//! pages. Likewise, page 0 is marked before an item is stored out of order: if page 0 is read without the
//! mark *after* pages were found by their times, those pages had not moved.

use bson::raw::RawDocumentBuf;

use super::DEFAULT_BATCH_SIZE;
use super::first_page;
use super::item_cursor::{BatchLimit, ItemCursor};
use crate::command::find::Find;
use crate::pattern::bucket::page_locator::{Location, PageExceptions};
use crate::pattern::bucket::read::Queries;
use crate::pattern::bucket::read::bucket::{Bucket, time_of};
use crate::pattern::bucket::read::bucket_query::{BucketQuery, Keys, Order};
use crate::pattern::bucket::read::page_scan::{PageScan, ScanDirection, Start};
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::upstream_query::{ask, complete, documents, first_bucket, kill_all};
use crate::session::error::RunError;
use crate::session::metrics::Strategy;

/// Looks at the buckets before the pipeline is asked instead. A second is needed where pages are short; a
/// third where one was closed meanwhile.
const MAX_LOOKS: usize = 4;

/// Items for which pages of a range are read, whose number of items is not known.
const MAX_UNKNOWN_ITEMS: u64 = 40;

/// How a query is answered.
pub(super) enum AccessPath {
    /// There is nothing to read, as this answer tells.
    Nothing(RawDocumentBuf),
    /// A page scan, and the reply to its first query if that was sent already.
    PageScan(Box<ItemCursor>, Option<RawDocumentBuf>),
    /// Pages overlap in time.
    Merge,
    /// Not by looking at buckets.
    Pipeline,
}

/// How its batches are to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchTerms {
    /// What the first holds.
    pub(super) measure: BatchLimit,
    /// Whether it is the only one.
    pub(super) single_batch: bool,
    /// Whether pages that overlap in time may be merged: where a sort by time is asked for, and no more than
    /// fits in a reply. Without one, items of such a key come as inserted.
    pub(super) may_merge_sort: bool,
}

impl BatchTerms {
    /// Those of a command.
    pub(super) fn of(find: &Find<'_>, query: &BucketQuery) -> Self {
        let size = find.batch_size.unwrap_or(DEFAULT_BATCH_SIZE);
        let is_all = query.limit.is_some_and(|limit| limit <= size);
        let closes = find.single_batch || is_all;
        Self {
            measure: BatchLimit::of(Some(size)),
            single_batch: closes,
            may_merge_sort: closes && query.limit.is_some() && query.order != Order::Insertion,
        }
    }

    /// What the way is called.
    pub(super) fn strategy(&self) -> Strategy {
        if self.single_batch {
            Strategy::Page
        } else {
            Strategy::Stream
        }
    }
}

/// Finds out.
pub(super) async fn plan(
    run: &mut BucketCommand<'_>,
    query: &BucketQuery,
    terms: BatchTerms,
) -> Result<AccessPath, RunError> {
    let Keys::One(key) = &query.keys else {
        return Ok(page_scan(PageScan::of(query, ScanDirection::Forward), terms));
    };
    let finder = AccessPathPlanner {
        queries: Queries {
            source: run.source(),
            key,
        },
        query,
        terms,
    };
    let forward = query.order != Order::TimeDescending;
    // The end of the range that reading begins at.
    let near = if forward { query.range.from } else { query.range.to };
    match (query.skip, near, forward) {
        (0, ..) if query.range.is_open() => finder.at_an_end(run).await,
        (0, _, _) => finder.in_range(run).await,
        (_, None, true) => finder.at_the_front(run).await,
        (_, None, false) => finder.at_the_back(run).await,
        (_, Some(_), _) => finder.at_an_end_of_the_range(run).await,
    }
}

/// Whether the pages of a reply follow each other by their numbers.
fn are_consecutive(run: &BucketCommand<'_>, reply: &RawDocumentBuf, direction: ScanDirection) -> bool {
    let mut next: Option<u64> = None;
    documents(reply).all(|bucket| {
        let page = Bucket::open(run.shape, bucket).map(|bucket| bucket.page);
        let follows = page.is_some() && (next.is_none() || page == next);
        next = page.and_then(|page| match direction {
            ScanDirection::Forward => page.checked_add(1),
            ScanDirection::Backward => page.checked_sub(1),
        });
        follows
    })
}

fn page_scan(scan: PageScan, terms: BatchTerms) -> AccessPath {
    AccessPath::PageScan(Box::new(ItemCursor::new(scan, terms.single_batch)), None)
}

/// The page of a range that a scan ends at.
enum FarEnd {
    Page(u64),
    /// The scan finds it.
    Unknown,
    /// Pages overlap in time by now.
    OutOfOrder,
}

struct AccessPathPlanner<'a> {
    queries: Queries<'a>,
    query: &'a BucketQuery,
    terms: BatchTerms,
}

impl AccessPathPlanner<'_> {
    fn direction(&self) -> ScanDirection {
        match self.query.order {
            Order::TimeDescending => ScanDirection::Backward,
            Order::Insertion | Order::TimeAscending => ScanDirection::Forward,
        }
    }

    fn scan(&self) -> PageScan {
        PageScan::of(self.query, self.direction())
    }

    /// Reads from an end of the key on. Where the first page may be all that is needed, its `_id` may be
    /// known.
    async fn at_an_end(&self, run: &mut BucketCommand<'_>) -> Result<AccessPath, RunError> {
        let stream = Box::new(ItemCursor::new(self.scan(), self.terms.single_batch));
        let is_short = self
            .query
            .limit
            .is_some_and(|limit| limit <= run.shape.max_items().into());
        if self.direction() == ScanDirection::Backward || !self.terms.single_batch || !is_short {
            return Ok(AccessPath::PageScan(stream, None));
        }
        let answer = first_page::known(run, self.queries).await?;
        Ok(match answer {
            Some(answer) => AccessPath::PageScan(stream, Some(answer)),
            None => AccessPath::PageScan(Box::new(stream.watching_for_the_first_page()), None),
        })
    }

    /// Reads where the items are if no page is short, and the exceptions with them in one round trip; where
    /// those say otherwise, once more.
    async fn at_the_front(&self, run: &mut BucketCommand<'_>) -> Result<AccessPath, RunError> {
        let position = self.query.skip;
        self.at_position(run, PageExceptions::default().locate(run.shape, position), |_| position)
            .await
    }

    /// Looks where the position leads to that the exceptions give, beginning with a guess.
    async fn at_position(
        &self,
        run: &mut BucketCommand<'_>,
        mut guess: Location,
        position: impl Fn(&PageExceptions) -> u64,
    ) -> Result<AccessPath, RunError> {
        for _ in 0..MAX_LOOKS {
            let stream = self.stream(Start::At(guess));
            let queries = [
                complete(run, stream.query(run, self.terms.measure)),
                self.exceptions(run),
            ];
            let Some([buckets, exceptions]) = ask(run, queries).await? else {
                return Ok(AccessPath::Pipeline);
            };
            let exceptions = PageExceptions::parse(run.shape, documents(&exceptions));
            let found = exceptions.locate(run.shape, position(&exceptions));
            if found == guess && !self.prevents_scan(&exceptions) {
                return Ok(AccessPath::PageScan(Box::new(stream), Some(buckets)));
            }
            kill_all(run, &[buckets]).await?;
            if self.prevents_scan(&exceptions) {
                return Ok(self.other_path(&exceptions));
            }
            guess = found;
        }
        Ok(AccessPath::Pipeline)
    }

    /// Counts from the key's highest page, which is read before the exceptions; what is inserted from then on
    /// lies behind.
    async fn at_the_back(&self, run: &mut BucketCommand<'_>) -> Result<AccessPath, RunError> {
        for _ in 0..MAX_LOOKS {
            let queries = [complete(run, self.queries.highest(run.shape)), self.exceptions(run)];
            let Some([highest, answer]) = ask(run, queries).await? else {
                return Ok(AccessPath::Pipeline);
            };
            let exceptions = PageExceptions::parse(run.shape, documents(&answer));
            if self.prevents_scan(&exceptions) {
                return Ok(self.other_path(&exceptions));
            }
            let highest = first_bucket(run, &highest)?;
            let total = exceptions.total(run.shape, highest.as_ref());
            let Some((highest, position)) = highest.zip(self.position_back(total)) else {
                return Ok(AccessPath::Nothing(answer));
            };
            if let Some(way) = self.back_from(run, &exceptions, &highest, position).await? {
                return Ok(way);
            }
        }
        Ok(AccessPath::Pipeline)
    }

    /// The last item that is asked for, behind so many of which the last are passed over; `None` where there
    /// are no others.
    fn position_back(&self, end: u64) -> Option<u64> {
        end.checked_sub(self.query.skip)?.checked_sub(1)
    }

    /// A backward scan from an item that was counted from this page; `None` where its page has fewer
    /// items than that: some of those that were counted have been deleted since.
    async fn back_from(
        &self,
        run: &mut BucketCommand<'_>,
        exceptions: &PageExceptions,
        from: &Bucket<'_>,
        position: u64,
    ) -> Result<Option<AccessPath>, RunError> {
        let location = exceptions.locate(run.shape, position);
        let stream = self.stream(Start::At(location));
        let query = complete(run, stream.query(run, self.terms.measure));
        let Some([buckets]) = ask(run, [query]).await? else {
            return Ok(Some(AccessPath::Pipeline));
        };
        let counted = exceptions.count_on(run.shape, location.page, from);
        let is_as_counted = first_bucket(run, &buckets)
            .map(|first| first.is_some_and(|bucket| bucket.page == location.page && bucket.count >= counted));
        if matches!(is_as_counted, Ok(true)) {
            return Ok(Some(AccessPath::PageScan(Box::new(stream), Some(buckets))));
        }
        kill_all(run, &[buckets]).await?;
        is_as_counted.map(|_| None)
    }

    /// Reads pages from an end of the range on, by their bounds, and then the first page, which shows whether
    /// the key is in the order of time.
    async fn in_range(&self, run: &mut BucketCommand<'_>) -> Result<AccessPath, RunError> {
        let probe = ItemCursor::new(self.scan(), true);
        let items = self.items_in_range();
        let pages = probe.scan.buckets_for(run.shape, items);
        let Some(near) = self.queries.from_near_end(self.query, self.direction(), pages) else {
            // The scan begins at an end of the key, and the first page that it reads shows the order.
            return Ok(page_scan(self.scan(), self.terms));
        };
        let queries = [complete(run, near), complete(run, first_page::query(run, self.queries))];
        let Some([buckets, first]) = ask(run, queries).await? else {
            return Ok(AccessPath::Pipeline);
        };
        let first = first_page::checked(run, self.queries, first).await?;
        let is_ascending = first_bucket(run, &first).map(|first| first.map(|first| first.says_ascending()));
        if !matches!(is_ascending, Ok(Some(true))) {
            kill_all(run, &[buckets]).await?;
            return Ok(match is_ascending? {
                Some(_) => AccessPath::Merge,
                None => AccessPath::Nothing(first),
            });
        }
        let Some(near) = first_bucket(run, &buckets)? else {
            return Ok(AccessPath::Nothing(first));
        };
        let number = near.page;
        // Of pages of one and the same time, the index may have named any.
        let is_alone = number == 0 || near.from < near.to;
        if is_alone && are_consecutive(run, &buckets, self.direction()) {
            let offset = match self.direction() {
                ScanDirection::Forward => 0,
                ScanDirection::Backward => u64::MAX,
            };
            let scan = self.scan().beginning(Start::At(Location { page: number, offset }), 0);
            let last = match self.far_end(run, &buckets, pages).await? {
                FarEnd::OutOfOrder => {
                    kill_all(run, &[buckets]).await?;
                    return Ok(AccessPath::Merge);
                }
                FarEnd::Page(page) => Some(page),
                FarEnd::Unknown => None,
            };
            let cursor = ItemCursor::new(scan.ending(last), self.terms.single_batch).having_asked(pages);
            return Ok(AccessPath::PageScan(Box::new(cursor), Some(buckets)));
        }
        kill_all(run, &[buckets]).await?;
        let before = match self.direction() {
            ScanDirection::Forward => number.saturating_sub(1),
            ScanDirection::Backward => number.saturating_add(1),
        };
        Ok(page_scan(self.scan().beginning(Start::Before(before), 0), self.terms))
    }

    /// Looks up the page at the far end of a range of unknown length, if `near`, the reply to a query for so
    /// many pages, does not reach it. Without it the scan would read pages behind the range: one piece, or
    /// some hundred pages.
    async fn far_end(
        &self,
        run: &mut BucketCommand<'_>,
        near: &RawDocumentBuf,
        pages: u64,
    ) -> Result<FarEnd, RunError> {
        let range = self.query.range;
        let is_forward = self.direction() == ScanDirection::Forward;
        let mut last = None;
        let mut count = 0;
        for bucket in documents(near) {
            count += 1;
            last = Bucket::open(run.shape, bucket);
        }
        let is_reached = last.is_none_or(|page| {
            if is_forward {
                page.to.is_none_or(|to| range.is_before(to))
            } else {
                page.from.is_none_or(|from| range.is_after(from))
            }
        });
        let far = if is_forward {
            self.queries.newest_in_range(self.query)
        } else {
            self.queries.oldest_in_range(self.query)
        };
        let (Some(far), None, false) = (far, self.query.limit, is_reached || count < pages) else {
            return Ok(FarEnd::Unknown);
        };
        let queries = [complete(run, far), complete(run, first_page::query(run, self.queries))];
        let Some([far, first]) = ask(run, queries).await? else {
            return Ok(FarEnd::Unknown);
        };
        let first = first_page::checked(run, self.queries, first).await?;
        if !first_bucket(run, &first)?.is_some_and(|first| first.says_ascending()) {
            return Ok(FarEnd::OutOfOrder);
        }
        // Of pages of one and the same time, the index may have named any.
        let far = first_bucket(run, &far)?.filter(|page| page.from < page.to);
        Ok(far.map_or(FarEnd::Unknown, |page| FarEnd::Page(page.page)))
    }

    /// How many items to read of a range at first.
    fn items_in_range(&self) -> u64 {
        let range = self.query.range;
        let is_closed = range.from.is_some() && range.to.is_some();
        let most = if is_closed {
            MAX_UNKNOWN_ITEMS
        } else {
            DEFAULT_BATCH_SIZE
        };
        let batch = self.terms.measure.documents.unwrap_or(DEFAULT_BATCH_SIZE);
        self.query.limit.unwrap_or(most).min(batch).max(1).saturating_add(1)
    }

    /// Counts from the first item in the range that reading begins at.
    async fn at_an_end_of_the_range(&self, run: &mut BucketCommand<'_>) -> Result<AccessPath, RunError> {
        let forward = self.direction() == ScanDirection::Forward;
        let end = if forward {
            self.queries.oldest_in_range(self.query)
        } else {
            self.queries.newest_in_range(self.query)
        };
        let Some(end) = end.map(|query| complete(run, query)) else {
            return Ok(AccessPath::Pipeline);
        };
        let queries = [end, self.exceptions(run)];
        let Some([end, answer]) = ask(run, queries).await? else {
            return Ok(AccessPath::Pipeline);
        };
        let exceptions = PageExceptions::parse(run.shape, documents(&answer));
        if self.prevents_scan(&exceptions) {
            return Ok(self.other_path(&exceptions));
        }
        let Some(page) = first_bucket(run, &end)? else {
            return Ok(AccessPath::Nothing(answer));
        };
        if page.from >= page.to {
            // Of pages of one and the same time, the index may have named any.
            return Ok(AccessPath::Pipeline);
        }
        let range = self.query.range;
        let before = page.stored().take_while(|stored| {
            time_of(run.shape, stored).is_some_and(|time| {
                if forward {
                    range.is_after(time)
                } else {
                    !range.is_before(time)
                }
            })
        });
        let offset = u64::try_from(before.count()).unwrap_or_default();
        if !forward {
            let end = exceptions.before(run.shape, page.page).saturating_add(offset);
            let Some(position) = self.position_back(end) else {
                return Ok(AccessPath::Nothing(answer));
            };
            let back = self.back_from(run, &exceptions, &page, position).await?;
            return Ok(back.unwrap_or(AccessPath::Pipeline));
        }
        let (number, skip, shape) = (page.page, self.query.skip, run.shape);
        let position = move |exceptions: &PageExceptions| {
            exceptions
                .before(shape, number)
                .saturating_add(offset)
                .saturating_add(skip)
        };
        let guess = exceptions.locate(run.shape, position(&exceptions));
        self.at_position(run, guess, position).await
    }

    fn stream(&self, start: Start) -> ItemCursor {
        ItemCursor::new(self.scan().beginning(start, 0), self.terms.single_batch)
    }

    fn exceptions(&self, run: &BucketCommand<'_>) -> RawDocumentBuf {
        complete(run, self.queries.exceptions(run.shape))
    }

    /// Whether positions do not lead to the items that were asked for.
    fn prevents_scan(&self, exceptions: &PageExceptions) -> bool {
        exceptions.too_many || (exceptions.late && self.query.is_by_time())
    }

    fn other_path(&self, exceptions: &PageExceptions) -> AccessPath {
        if exceptions.late && self.query.is_by_time() {
            AccessPath::Merge
        } else {
            AccessPath::Pipeline
        }
    }
}
