//! Reads the pages of a time range by their numbers, if the page at the near end of the range is cached.
//!
//! The key's first page is read by the same query, after the other pages. So one query shows both the pages
//! and that their bounds had not moved.

use std::ops::Range;

use bson::raw::{RawDocument, RawDocumentBuf};

use super::first_page::cache_key;
use crate::command::reply::{CursorReply, copy_cluster_time, exhausted_cursor};
use crate::pattern::bucket::read::Queries;
use crate::pattern::bucket::read::bucket::{Bucket, PageBounds};
use crate::pattern::bucket::read::bucket_query::{BucketQuery, Keys};
use crate::pattern::bucket::read::page_scan::ScanDirection;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::upstream_query::{ask, complete, documents, kill_all};
use crate::session::error::RunError;

/// The most pages that are read by their numbers. For more, a second query for the first page costs little in
/// comparison.
const MAX_PAGES: u64 = 16;

/// The replies with the pages of a range, in the direction of the scan, and with the first page.
pub(super) struct RangeReplies {
    pub(super) buckets: RawDocumentBuf,
    pub(super) first: RawDocumentBuf,
}

/// Reads `pages` pages from the near end of the query's range on. Costs one round trip. `None` if the page at
/// the near end is not cached, or no longer contains that end.
pub(super) async fn read(
    run: &mut BucketCommand<'_>,
    queries: Queries<'_>,
    query: &BucketQuery,
    pages: u64,
) -> Result<Option<RangeReplies>, RunError> {
    let near_end = match query.order.direction() {
        ScanDirection::Forward => query.range.from,
        ScanDirection::Backward => query.range.to,
    };
    let Some((near_end, key)) = near_end.zip(cache_key(run, queries)).filter(|_| pages <= MAX_PAGES) else {
        return Ok(None);
    };
    let recent = &run.context.settings.recent_pages;
    let Some(cached) = recent.containing(key.clone(), near_end.at) else {
        return Ok(None);
    };
    let wanted = WantedPages::of(query, cached, pages);
    let command = complete(run, queries.pages_backward(&wanted.with_first()));
    let Some([reply]) = ask(run, [command]).await? else {
        return Ok(None);
    };
    if CursorReply::parse(&reply).is_none_or(|cursor| cursor.id != 0) {
        kill_all(run, &[reply]).await?;
        return Ok(None);
    }
    let replies = wanted.split(run, query, &reply);
    if replies.is_none() {
        recent.forget(key);
    }
    Ok(replies)
}

/// Caches the bounds of pages of the query's key.
pub(super) fn learn(run: &BucketCommand<'_>, query: &BucketQuery, pages: impl Iterator<Item = PageBounds>) {
    let Keys::One(key) = &query.keys else { return };
    let source = run.source();
    if let Some(key) = cache_key(run, Queries { source, key }) {
        run.context.settings.recent_pages.learn(key, pages);
    }
}

/// The numbers of the pages to read.
struct WantedPages {
    numbers: Range<u64>,
    direction: ScanDirection,
}

impl WantedPages {
    /// `pages` pages from the cached one on, which contains the near end of the range, and the page before it
    /// if that may have an item of the same time.
    fn of(query: &BucketQuery, cached: PageBounds, pages: u64) -> Self {
        let (page, next) = (cached.page, cached.page.saturating_add(1));
        let direction = query.order.direction();
        let numbers = match direction {
            ScanDirection::Forward => {
                let is_alone = query.range.is_after(cached.from);
                page.saturating_sub(u64::from(!is_alone))..page.saturating_add(pages)
            }
            ScanDirection::Backward => {
                let is_alone = query.range.is_before(cached.to);
                next.saturating_sub(pages)..next.saturating_add(u64::from(!is_alone))
            }
        };
        Self { numbers, direction }
    }

    /// The numbers, and that of the first page.
    fn with_first(&self) -> Vec<u64> {
        let first = (!self.numbers.contains(&0)).then_some(0);
        self.numbers.clone().chain(first).collect()
    }

    /// Splits a reply, whose last document is the first page, into the replies of two queries. `None` if the
    /// pages do not show that no other page has items at the near end of the range.
    fn split(&self, run: &BucketCommand<'_>, query: &BucketQuery, reply: &RawDocument) -> Option<RangeReplies> {
        let mut pages: Vec<&RawDocument> = documents(reply).collect();
        let first = *pages.last()?;
        if Bucket::open(run.shape, first)?.page != 0 {
            return None;
        }
        if !self.numbers.contains(&0) {
            pages.pop();
        }
        if self.direction == ScanDirection::Forward {
            pages.reverse();
        }
        let near = Bucket::open(run.shape, pages.first()?)?;
        let has_near_end = match self.direction {
            ScanDirection::Forward => near.page == 0 || near.from.is_some_and(|from| query.range.is_after(from)),
            // The highest page is open, or the next one is missing.
            ScanDirection::Backward => {
                !near.is_closed(run.shape)
                    || near.page.saturating_add(1) < self.numbers.end
                    || near.to.is_some_and(|to| query.range.is_before(to))
            }
        };
        let reply_of = |pages: &[&RawDocument]| {
            let mut own = exhausted_cursor(run.namespace, &pages.iter().copied().collect());
            copy_cluster_time(&mut own, reply);
            own
        };
        has_near_end.then(|| RangeReplies {
            buckets: reply_of(&pages),
            first: reply_of(&[first]),
        })
    }
}
