//! Merges items by time, for a key whose pages overlap in time.
//!
//! A delete does not change the time bounds of a page. Only inserts do, and only on the head page. So the
//! pages below the head page are read in the order of their bounds. The head page is read first, by its own
//! query. Pages that are begun later are not part of the result.
//!
//! On a standalone a change of an item's time in place changes the bounds of other pages too. Page 0 is
//! marked before that. So page 0 is read after the pages were read by their bounds. If it is marked, pages
//! with changed bounds are read again.

use std::collections::BTreeMap;

use bson::raw::{RawDocument, RawDocumentBuf};

use crate::command::reply::CursorReply;
use crate::pattern::bucket::read::Queries;
use crate::pattern::bucket::read::bucket::Bucket;
use crate::pattern::bucket::read::bucket_query::{BucketQuery, Keys, Order};
use crate::pattern::bucket::read::documents::DocumentBuffer;
use crate::pattern::bucket::read::merge::{MergeWindow, PageBounds, Unread, choose, merge};
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::explanation::Explained;
use crate::session::bucket::upstream_query::{ask, ask_all, complete, documents, first_bucket, kill_all, more};
use crate::session::error::RunError;
use crate::session::metrics::Strategy;

/// The most items, skipped ones included, for which whole pages are read instead of bounds first.
const NEAR_ITEMS: u64 = 200;
/// The most pages that are read in one query.
const MAX_PAGES: usize = 1000;
/// The number of pages with changed bounds from which on they are not read again.
const MAX_MOVED: usize = 50;
/// The bytes of pages beyond which no further batch is read, so that the proxy holds no more than 24 MiB.
/// mongod then sorts, which spills to disk.
const MAX_BYTES: usize = 8 << 20;
/// The most pages whose bounds are read.
const MAX_BOUNDS: usize = 200_000;

/// The query for pages in the order of their bounds. `None` if the query is not for one key.
pub(super) fn explained(run: &BucketCommand<'_>, query: &BucketQuery) -> Option<Explained> {
    let Keys::One(key) = &query.keys else { return None };
    let queries = Queries {
        source: run.source(),
        key,
    };
    Some(Explained {
        strategy: Strategy::Page,
        command: queries.by_bounds(query, pages_for(run, query)),
    })
}

/// The number of pages to read: twice as many as would contain the result without overlaps, and two more.
fn pages_for(run: &BucketCommand<'_>, query: &BucketQuery) -> u64 {
    let items = query.skip.saturating_add(query.limit.unwrap_or(1));
    let pages = items.div_ceil(u64::from(run.shape.max_items()).max(1));
    pages.saturating_mul(2).saturating_add(2)
}

/// The items, and the reply whose cluster time is returned. `None` if the query needs a pipeline.
///
/// One round trip near the beginning of the order. Otherwise one for the head page, one for the bounds and
/// one for the pages, and a `getMore` for each further batch.
pub(super) async fn run(
    run: &mut BucketCommand<'_>,
    query: &BucketQuery,
) -> Result<Option<(DocumentBuffer, RawDocumentBuf)>, RunError> {
    let Keys::One(key) = &query.keys else {
        return Ok(None);
    };
    let queries = Queries {
        source: run.source(),
        key,
    };
    let merging = Merging { queries, query };
    let end = query.skip.saturating_add(query.limit.unwrap_or(u64::MAX));
    if end <= NEAR_ITEMS {
        let pages = pages_for(run, query);
        if let Some(found) = merging.at_the_end(run, pages).await? {
            return Ok(Some(found));
        }
    }
    merging.by_rank(run).await
}

struct Merging<'a> {
    queries: Queries<'a>,
    query: &'a BucketQuery,
}

impl Merging<'_> {
    /// Reads the first `pages` pages in the order of the query. `None` if these do not contain the result.
    async fn at_the_end(
        &self,
        run: &mut BucketCommand<'_>,
        pages: u64,
    ) -> Result<Option<(DocumentBuffer, RawDocumentBuf)>, RunError> {
        let shape = run.shape;
        let mut queries = vec![self.queries.whole_highest(), self.queries.by_bounds(self.query, pages)];
        let may_move = !run.context.can_relocate();
        queries.extend(may_move.then(|| self.queries.first(run.shape)));
        let queries = queries.into_iter().map(|query| complete(run, query)).collect();
        let Some(answers) = ask_all(run, queries).await? else {
            return Ok(None);
        };
        let [highest, answer, first @ ..] = answers.as_slice() else {
            return Ok(None);
        };
        if !is_all(run, answer).await? {
            return Ok(None);
        }
        let is_unsteady = first.first().is_some_and(|first| has_unsteady_bounds(run, first));
        let Some(moved) = self.moved(run, is_unsteady).await? else {
            return Ok(None);
        };
        let mut items = DocumentBuffer::default();
        let Some(highest) = first_bucket(run, highest)? else {
            return Ok(Some((items, answer.clone())));
        };
        let read: Vec<Bucket<'_>> = documents(answer)
            .filter_map(|bucket| Bucket::open(shape, bucket))
            .collect();
        let all = u64::try_from(read.len()).unwrap_or(u64::MAX) < pages;
        let last = read.last().and_then(|last| match self.query.order {
            Order::TimeDescending => last.to,
            _ => last.from,
        });
        let unread = match (all, last) {
            (true, _) => Unread::None,
            (false, Some(time)) => Unread::From(time),
            (false, None) => return Ok(None),
        };
        let moved = moved.iter().filter_map(|bucket| Bucket::open(shape, bucket));
        let others = read
            .into_iter()
            .chain(moved)
            .filter(|bucket| bucket.page < highest.page);
        // A page that was read twice: the later version replaces the earlier one.
        let others: BTreeMap<u64, Bucket<'_>> = others.map(|bucket| (bucket.page, bucket)).collect();
        let mut buckets: Vec<Bucket<'_>> = others.into_values().collect();
        buckets.push(highest);
        let window = MergeWindow {
            skip: self.query.skip,
            unread,
        };
        let found = merge(shape, self.query, window, &buckets, &mut items);
        Ok(found.then(|| (items, answer.clone())))
    }

    /// The pages whose bounds may have changed. `None` from [`MAX_MOVED`] pages on.
    async fn moved(
        &self,
        run: &mut BucketCommand<'_>,
        is_unsteady: bool,
    ) -> Result<Option<Vec<RawDocumentBuf>>, RunError> {
        if !is_unsteady {
            return Ok(Some(Vec::new()));
        }
        let query = complete(run, self.queries.moved(MAX_MOVED));
        let Some([answer]) = ask(run, [query]).await? else {
            return Ok(None);
        };
        if !is_all(run, &answer).await? {
            return Ok(None);
        }
        let moved: Vec<RawDocumentBuf> = documents(&answer).map(RawDocument::to_owned).collect();
        Ok((moved.len() < MAX_MOVED).then_some(moved))
    }

    /// Reads the bounds of all pages, then the pages that may contain the result.
    async fn by_rank(&self, run: &mut BucketCommand<'_>) -> Result<Option<(DocumentBuffer, RawDocumentBuf)>, RunError> {
        let shape = run.shape;
        let query = complete(run, self.queries.whole_highest());
        let Some([highest]) = ask(run, [query]).await? else {
            return Ok(None);
        };
        let Some(highest) = first_bucket(run, &highest)? else {
            return Ok(Some((DocumentBuffer::default(), highest.clone())));
        };
        let query = complete(run, self.queries.bounds(shape, self.query, highest.page));
        let Some(mut bounds) = all_bounds(run, query).await? else {
            return Ok(None);
        };
        let Some(own) = PageBounds::of(&highest) else {
            return Ok(None);
        };
        let range = self.query.range;
        if !range.is_after(own.to) && !range.is_before(own.from) {
            bounds.push(own);
        }
        let chosen = choose(self.query, &bounds);
        let others: Vec<u64> = chosen.pages.iter().copied().filter(|page| *page != own.page).collect();
        if others.len() > MAX_PAGES {
            return Ok(None);
        }
        let query = complete(run, self.queries.pages(&others));
        let Some(answers) = all_answers(run, query).await? else {
            return Ok(None);
        };
        let mut buckets: Vec<Bucket<'_>> = answers
            .iter()
            .flat_map(|answer| documents(answer))
            .filter_map(|bucket| Bucket::open(shape, bucket))
            .collect();
        let all = buckets.len() == others.len();
        if chosen.pages.contains(&own.page) {
            buckets.push(highest);
        }
        // A page that changed, or was removed, after its bounds were read makes the computed ranks wrong.
        let known: BTreeMap<u64, PageBounds> = bounds.iter().map(|bounds| (bounds.page, *bounds)).collect();
        let is_known = |read: PageBounds| known.get(&read.page) == Some(&read);
        let same = all
            && buckets
                .iter()
                .all(|bucket| bucket.page == own.page || PageBounds::of(bucket).is_some_and(is_known));
        let mut items = DocumentBuffer::default();
        let window = MergeWindow {
            skip: self.query.skip.saturating_sub(chosen.passed),
            unread: Unread::None,
        };
        let found = same && merge(shape, self.query, window, &buckets, &mut items);
        let cluster_time = answers.into_iter().next_back().unwrap_or_default();
        Ok(found.then_some((items, cluster_time)))
    }
}

/// Whether a reply has the whole result. If not, its cursor is closed.
async fn is_all(run: &mut BucketCommand<'_>, answer: &RawDocumentBuf) -> Result<bool, RunError> {
    let is_all = CursorReply::parse(answer).is_some_and(|cursor| cursor.id == 0);
    kill_all(run, std::slice::from_ref(answer)).await?;
    Ok(is_all)
}

/// Whether page 0 records that bounds of the key's pages may change.
fn has_unsteady_bounds(run: &BucketCommand<'_>, first: &RawDocument) -> bool {
    documents(first)
        .next()
        .and_then(|first| Bucket::open(run.shape, first))
        .is_none_or(|first| first.has_unsteady_bounds())
}

/// The bounds in all batches of a query. `None` if a page has none, or beyond [`MAX_BOUNDS`] pages.
async fn all_bounds(run: &mut BucketCommand<'_>, query: RawDocumentBuf) -> Result<Option<Vec<PageBounds>>, RunError> {
    let mut bounds = Vec::new();
    let Some([mut answer]) = ask(run, [query]).await? else {
        return Ok(None);
    };
    loop {
        for bucket in documents(&answer) {
            let found = Bucket::open(run.shape, bucket).as_ref().and_then(PageBounds::of);
            let Some(found) = found.filter(|_| bounds.len() < MAX_BOUNDS) else {
                kill_all(run, std::slice::from_ref(&answer)).await?;
                return Ok(None);
            };
            bounds.push(found);
        }
        match more(run, &answer).await? {
            Some(next) => answer = next,
            None => return Ok(Some(bounds)),
        }
    }
}

/// All batches of a query. `None` beyond [`MAX_BYTES`].
async fn all_answers(
    run: &mut BucketCommand<'_>,
    query: RawDocumentBuf,
) -> Result<Option<Vec<RawDocumentBuf>>, RunError> {
    let Some([mut answer]) = ask(run, [query]).await? else {
        return Ok(None);
    };
    let mut answers = Vec::new();
    let mut bytes = 0_usize;
    loop {
        bytes = bytes.saturating_add(answer.as_bytes().len());
        if bytes > MAX_BYTES && !is_all(run, &answer).await? {
            return Ok(None);
        }
        let next = more(run, &answer).await?;
        answers.push(answer);
        match next {
            Some(next) => answer = next,
            None => return Ok(Some(answers)),
        }
    }
}
