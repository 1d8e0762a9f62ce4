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
use super::item_cursor::{BatchLimit, ItemCursor, PIECE_BYTES};
use super::numbered_pages::{self, RangeReplies};
use crate::command::find::Find;
use crate::pattern::bucket::page_locator::{Location, PageExceptions};
use crate::pattern::bucket::read::Queries;
use crate::pattern::bucket::read::bucket::{Bucket, PageTimes, time_of};
use crate::pattern::bucket::read::bucket_query::{BucketQuery, Keys, Order};
use crate::pattern::bucket::read::numbered_pages::NumberedPages;
use crate::pattern::bucket::read::page_scan::{PageScan, ScanDirection, Start};
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::upstream_query::{ask, complete, documents, first_bucket, kill_all};
use crate::session::error::RunError;
use crate::session::first_page_cache::PageSize;
use crate::session::metrics::Strategy;

/// The attempts to find the page of a position. A second attempt is needed if pages are short, a third if a
/// page was closed in the meantime. After the last one a pipeline answers.
const MAX_ATTEMPTS: usize = 4;

/// The most items that a scan skips from an end of the key or of the range. Beyond that, position arithmetic
/// finds the page, which costs a second query for the exceptions: as much as about ten pages of ten items.
const MAX_SKIPPED_ITEMS: u64 = 100;

/// The number of items that a closed range is assumed to have if the key's first page was not read before.
const UNKNOWN_ITEMS: u64 = 40;

/// The batches of a closed range that the first query reads at most: the later ones need no query then.
const READ_AHEAD_BATCHES: u64 = 4;

/// How a query is answered.
pub(super) enum AccessPath {
    /// No item matches. Has the reply that shows it.
    Nothing(RawDocumentBuf),
    /// A page scan, and the reply to its first query if that was sent already.
    PageScan(Box<ItemCursor>, Option<RawDocumentBuf>),
    /// A merge, because pages overlap in time.
    Merge,
    /// A pipeline.
    Pipeline,
}

/// The batches of a reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchTerms {
    /// The limit of the first batch.
    pub(super) measure: BatchLimit,
    /// Whether the first batch is the only one.
    pub(super) single_batch: bool,
    /// Whether pages that overlap in time may be merged: only for a sort by time whose result fits in one
    /// reply. Without a sort, items of such a key are returned in the order of insertion.
    pub(super) may_merge_sort: bool,
}

impl BatchTerms {
    /// The batches of a command.
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

    /// The name of the access path in metrics and in `explain`.
    pub(super) fn strategy(&self) -> Strategy {
        if self.single_batch {
            Strategy::Page
        } else {
            Strategy::Stream
        }
    }
}

/// Selects the access path. Costs no more round trips than its first query does, except where position
/// arithmetic has to be repeated.
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
    // The end of the range at which the scan begins.
    let near = if forward { query.range.from } else { query.range.to };
    let scans_skipped = query.skip <= MAX_SKIPPED_ITEMS;
    match near {
        _ if scans_skipped && query.range.is_open() => finder.scan_from_an_end(run).await,
        _ if scans_skipped => finder.in_range(run).await,
        None if forward => finder.at_position_from_the_front(run).await,
        None => finder.at_position_from_the_back(run).await,
        Some(_) => finder.at_position_in_range(run).await,
    }
}

/// Whether the numbers of a reply's pages are consecutive.
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

struct AccessPathPlanner<'a> {
    queries: Queries<'a>,
    query: &'a BucketQuery,
    terms: BatchTerms,
}

impl AccessPathPlanner<'_> {
    fn direction(&self) -> ScanDirection {
        self.query.order.direction()
    }

    fn scan(&self) -> PageScan {
        PageScan::of(self.query, self.direction())
    }

    /// A scan from an end of the key. If the first page suffices, it is read by its `_id`, if that is known.
    async fn scan_from_an_end(&self, run: &mut BucketCommand<'_>) -> Result<AccessPath, RunError> {
        let stream = Box::new(ItemCursor::new(self.scan(), self.terms.single_batch));
        let last = self.query.limit.map(|limit| limit.saturating_add(self.query.skip));
        let is_short = last.is_some_and(|last| last <= run.shape.max_items().into());
        if self.direction() == ScanDirection::Backward || !self.terms.single_batch || !is_short {
            return Ok(AccessPath::PageScan(stream, None));
        }
        let answer = first_page::cached(run, self.queries).await?;
        Ok(match answer {
            Some(answer) => AccessPath::PageScan(stream, Some(answer)),
            None => AccessPath::PageScan(Box::new(stream.keeping_first_page()), None),
        })
    }

    /// A scan from the page of a position. Assumes that no page is short, and reads the exceptions in the
    /// same round trip. If they disagree, the right page is read.
    async fn at_position_from_the_front(&self, run: &mut BucketCommand<'_>) -> Result<AccessPath, RunError> {
        let position = self.query.skip;
        self.at_position(run, PageExceptions::default().locate(run.shape, position), |_| position)
            .await
    }

    /// A scan from the page of a position, which depends on the exceptions. `guess` is the first page to try.
    async fn at_position(
        &self,
        run: &mut BucketCommand<'_>,
        mut guess: Location,
        position: impl Fn(&PageExceptions) -> u64,
    ) -> Result<AccessPath, RunError> {
        for _ in 0..MAX_ATTEMPTS {
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

    /// A backward scan from a position counted from the end of the key. The highest page is read before the
    /// exceptions: items that are inserted later come after the counted ones.
    async fn at_position_from_the_back(&self, run: &mut BucketCommand<'_>) -> Result<AccessPath, RunError> {
        for _ in 0..MAX_ATTEMPTS {
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
            if let Some(path) = self.back_from(run, &exceptions, &highest, position).await? {
                return Ok(path);
            }
        }
        Ok(AccessPath::Pipeline)
    }

    /// The position of the first item to return, if `end` items precede the end that the skip counts from.
    /// `None` if all of them are skipped.
    fn position_back(&self, end: u64) -> Option<u64> {
        end.checked_sub(self.query.skip)?.checked_sub(1)
    }

    /// A backward scan from an item whose position was counted from page `from`. `None` if the item's page
    /// has fewer items than counted, because some were deleted since.
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

    /// A scan of a time range. Reads pages from the near end of the range, and then the first page, which
    /// shows whether the key is in the order of time. The pages are read by their bounds, or by their numbers
    /// if the one at the near end is cached.
    async fn in_range(&self, run: &mut BucketCommand<'_>) -> Result<AccessPath, RunError> {
        let cached = numbered_pages::cached(run, self.queries, self.query);
        let pages = self.pages_in_range(run, cached);
        let Some(near) = self.queries.from_near_end(self.query, self.direction(), pages) else {
            // The scan begins at an end of the key, and the first page that it reads shows the order.
            return Ok(page_scan(self.scan(), self.terms));
        };
        let numbered = cached.and_then(|cached| NumberedPages::of(self.query, cached, pages));
        let read = match numbered {
            Some(numbered) => numbered_pages::read(run, self.queries, self.query, &numbered).await?,
            None => None,
        };
        let replies = match read {
            Some(replies) => Some(replies),
            None => self.range_by_bounds(run, near).await?,
        };
        let Some(RangeReplies { buckets, first }) = replies else {
            return Ok(AccessPath::Pipeline);
        };
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
        // Of pages with one and the same time, the index may have returned any.
        let is_alone = number == 0 || near.from < near.to;
        if is_alone && are_consecutive(run, &buckets, self.direction()) {
            let offset = match self.direction() {
                ScanDirection::Forward => 0,
                ScanDirection::Backward => u64::MAX,
            };
            let start = Start::At(Location { page: number, offset });
            let cursor = self.range_cursor(start).after_query_of(pages);
            return Ok(AccessPath::PageScan(Box::new(cursor), Some(buckets)));
        }
        kill_all(run, &[buckets]).await?;
        let before = match self.direction() {
            ScanDirection::Forward => number.saturating_sub(1),
            ScanDirection::Backward => number.saturating_add(1),
        };
        Ok(AccessPath::PageScan(
            Box::new(self.range_cursor(Start::Before(before))),
            None,
        ))
    }

    /// Reads pages by their bounds, which `near` queries for, and the first page. `None` if mongod refuses a
    /// query.
    async fn range_by_bounds(
        &self,
        run: &mut BucketCommand<'_>,
        near: RawDocumentBuf,
    ) -> Result<Option<RangeReplies>, RunError> {
        let queries = [complete(run, near), complete(run, first_page::query(run, self.queries))];
        let Some([buckets, first]) = ask(run, queries).await? else {
            return Ok(None);
        };
        let first = first_page::checked(run, self.queries, first).await?;
        Ok(Some(RangeReplies { buckets, first }))
    }

    /// The cursor of a scan of the range. If the range is closed, no query of the cursor reads much beyond
    /// it, and no upstream cursor stays open.
    fn range_cursor(&self, start: Start) -> ItemCursor {
        let scan = self.scan().beginning(start, self.query.skip);
        ItemCursor::new(scan, self.terms.single_batch || self.query.range.is_closed())
    }

    /// The number of pages to read from the near end of the range, where page `cached` is: those of the
    /// batch, or of the whole range if that is less. The length of the range is estimated from the first
    /// page, if that was read before.
    fn pages_in_range(&self, run: &BucketCommand<'_>, cached: Option<PageTimes>) -> u64 {
        let scan = self.scan();
        let batch = self.terms.measure.documents.unwrap_or(DEFAULT_BATCH_SIZE);
        let pages_for = |items: u64| scan.buckets_for(run.shape, items.max(1).saturating_add(1));
        if let Some(limit) = self.query.limit {
            return pages_for(limit.min(batch));
        }
        let Some(length) = self.query.range.length() else {
            return pages_for(batch);
        };
        let Some(page) = first_page::size(run, self.queries) else {
            return pages_for(batch.min(UNKNOWN_ITEMS));
        };
        // Items may be less dense there than on the first page.
        let near = cached.map_or(0, |near| near.millis());
        let page = PageSize {
            millis: page.millis.max(near),
            ..page
        };
        page.pages_in_range(length)
            .min(page.pages_in_bytes(PIECE_BYTES))
            .min(pages_for(batch.saturating_mul(READ_AHEAD_BATCHES)))
    }

    /// A scan from a position counted from the near end of the range.
    async fn at_position_in_range(&self, run: &mut BucketCommand<'_>) -> Result<AccessPath, RunError> {
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
            // Of pages with one and the same time, the index may have returned any.
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

    /// Whether position arithmetic does not find the items.
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
