//! Reads the pages of a time range by their numbers, if the page at the near end of the range is cached.
//!
//! The key's first page is read by the same query, after the other pages. So one query shows both the pages
//! and that their bounds had not moved.

use bson::raw::{RawDocument, RawDocumentBuf};

use super::first_page::cache_key;
use crate::command::reply::{CursorReply, copy_cluster_time, exhausted_cursor};
use crate::pattern::bucket::read::Queries;
use crate::pattern::bucket::read::bucket::{Bucket, PageTimes};
use crate::pattern::bucket::read::bucket_query::{BucketQuery, Keys};
use crate::pattern::bucket::read::numbered_pages::NumberedPages;
use crate::pattern::bucket::read::page_scan::ScanDirection;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::upstream_query::{ask, complete, documents, kill_all};
use crate::session::error::RunError;

/// The replies with the pages of a range, in the direction of the scan, and with the first page.
pub(super) struct RangeReplies {
    pub(super) buckets: RawDocumentBuf,
    pub(super) first: RawDocumentBuf,
}

/// Reads the pages and the first page. Costs one round trip. `None` if the pages do not begin at the near end
/// of the query's range.
pub(super) async fn read(
    run: &mut BucketCommand<'_>,
    queries: Queries<'_>,
    query: &BucketQuery,
    wanted: &NumberedPages,
) -> Result<Option<RangeReplies>, RunError> {
    let command = complete(run, queries.pages_backward(&wanted.with_first()));
    let Some([reply]) = ask(run, [command]).await? else {
        return Ok(None);
    };
    if CursorReply::parse(&reply).is_none_or(|cursor| cursor.id != 0) {
        kill_all(run, &[reply]).await?;
        return Ok(None);
    }
    let replies = split(run, query, wanted, &reply);
    if replies.is_none()
        && let Some(key) = cache_key(run, queries)
    {
        run.context.settings.recent_pages.forget(&key);
    }
    Ok(replies)
}

/// The cached page at the near end of the query's range.
pub(super) fn cached(run: &BucketCommand<'_>, queries: Queries<'_>, query: &BucketQuery) -> Option<PageTimes> {
    let near_end = match query.order.direction() {
        ScanDirection::Forward => query.range.from,
        ScanDirection::Backward => query.range.to,
    };
    let key = cache_key(run, queries)?;
    run.context.settings.recent_pages.containing(&key, near_end?.at)
}

/// Caches the bounds of pages of the query's key.
pub(super) fn learn(run: &BucketCommand<'_>, query: &BucketQuery, pages: impl Iterator<Item = PageTimes>) {
    let Keys::One(key) = &query.keys else { return };
    let source = run.source();
    if let Some(key) = cache_key(run, Queries { source, key }) {
        run.context.settings.recent_pages.learn(key, pages);
    }
}

/// Splits a reply, whose last document is the first page, into the replies of two queries. `None` if the
/// pages do not show that no other page has items at the near end of the range.
fn split(
    run: &BucketCommand<'_>,
    query: &BucketQuery,
    wanted: &NumberedPages,
    reply: &RawDocument,
) -> Option<RangeReplies> {
    let mut pages: Vec<&RawDocument> = documents(reply).collect();
    let first = *pages.last()?;
    if Bucket::open(run.shape, first)?.page != 0 {
        return None;
    }
    if !wanted.has_first() {
        pages.pop();
    }
    if query.order.direction() == ScanDirection::Forward {
        pages.reverse();
    }
    let near = Bucket::open(run.shape, pages.first()?)?;
    let reply_of = |pages: &[&RawDocument]| {
        let mut own = exhausted_cursor(run.namespace, &pages.iter().copied().collect());
        copy_cluster_time(&mut own, reply);
        own
    };
    wanted.begin_with(run.shape, &near).then(|| RangeReplies {
        buckets: reply_of(&pages),
        first: reply_of(&[first]),
    })
}
