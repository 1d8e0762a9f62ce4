//! Reads a key's first page by the `_id` that it had at the last read.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use crate::command::document::get;
use crate::pattern::bucket::key::Key;
use crate::pattern::bucket::read::Queries;
use crate::pattern::bucket::read::bucket::Bucket;
use crate::pattern::bucket::read::bucket_query::{BucketQuery, Keys};
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::upstream_query::{ask, complete, documents};
use crate::session::error::RunError;
use crate::session::first_page_cache::{CachedFirstPage, FirstPageKey, PageSize};

/// The reply with the first page, if its `_id` is cached and still names that page. Costs one round trip.
pub(super) async fn cached(
    run: &mut BucketCommand<'_>,
    queries: Queries<'_>,
) -> Result<Option<RawDocumentBuf>, RunError> {
    let Some(key) = cache_key(run, queries) else {
        return Ok(None);
    };
    let pages = &run.context.settings.first_pages;
    let Some(page) = pages.get(&key) else {
        return Ok(None);
    };
    let query = complete(run, queries.named(&page.id));
    let Some([reply]) = ask(run, [query]).await? else {
        return Ok(None);
    };
    if first_page(run, &key, &reply).is_some() {
        return Ok(Some(reply));
    }
    pages.forget(&key);
    Ok(None)
}

/// The `find` for the first page, by its `_id` if that is cached.
pub(super) fn query(run: &BucketCommand<'_>, queries: Queries<'_>) -> RawDocumentBuf {
    match entry(run, queries) {
        Some(page) => queries.named(&page.id),
        None => queries.first(run.shape),
    }
}

/// The size of the first page, if it is cached and was closed when it was read.
pub(super) fn size(run: &BucketCommand<'_>, queries: Queries<'_>) -> Option<PageSize> {
    entry(run, queries)?.size
}

/// The reply to [`query`], or to a second query if the first one did not return the first page.
pub(super) async fn checked(
    run: &mut BucketCommand<'_>,
    queries: Queries<'_>,
    reply: RawDocumentBuf,
) -> Result<RawDocumentBuf, RunError> {
    let pages = &run.context.settings.first_pages;
    let Some(key) = cache_key(run, queries) else {
        return Ok(reply);
    };
    let cached = pages.get(&key);
    let read = first_page(run, &key, &reply).and_then(|bucket| entry_of(run, bucket));
    if let Some(page) = read {
        let has_news = cached.as_ref().is_none_or(|cached| cached.size.is_none());
        if has_news {
            pages.learn(key, page);
        }
        return Ok(reply);
    }
    if cached.is_none() {
        return Ok(reply);
    }
    pages.forget(&key);
    let query = complete(run, queries.first(run.shape));
    Ok(ask(run, [query]).await?.map_or(reply, |[reply]| reply))
}

/// Caches a bucket if it is the first page of the query's key.
pub(super) fn learn(run: &BucketCommand<'_>, query: &BucketQuery, bucket: &RawDocument) {
    let Keys::One(key) = &query.keys else { return };
    let source = run.source();
    let key = cache_key(run, Queries { source, key }).filter(|key| is_first_page(run, key, bucket));
    if let Some((key, page)) = key.zip(entry_of(run, bucket)) {
        run.context.settings.first_pages.learn(key, page);
    }
}

/// The key of a query in the caches of pages.
pub(super) fn cache_key(run: &BucketCommand<'_>, queries: Queries<'_>) -> Option<FirstPageKey> {
    Some(FirstPageKey::new(run.namespace, queries.identity(run.shape)?))
}

fn entry(run: &BucketCommand<'_>, queries: Queries<'_>) -> Option<CachedFirstPage> {
    run.context.settings.first_pages.get(&cache_key(run, queries)?)
}

/// The cache entry of a first page. `None` if its `_id` is not a string.
fn entry_of(run: &BucketCommand<'_>, bucket: &RawDocument) -> Option<CachedFirstPage> {
    let id = get(bucket, "_id").and_then(RawBsonRef::as_str)?.to_owned();
    Some(CachedFirstPage {
        id,
        size: size_of(run, bucket),
    })
}

/// The size of a page with its items. `None` if the page is open.
fn size_of(run: &BucketCommand<'_>, document: &RawDocument) -> Option<PageSize> {
    let bucket =
        Bucket::open(run.shape, document).filter(|bucket| bucket.is_closed(run.shape) && bucket.has_items())?;
    Some(PageSize {
        bytes: document.as_bytes().len(),
        millis: bucket.times()?.millis(),
    })
}

/// The first bucket of a reply, if it is the first page of this key.
fn first_page<'a>(run: &BucketCommand<'_>, key: &FirstPageKey, reply: &'a RawDocument) -> Option<&'a RawDocument> {
    documents(reply).next().filter(|bucket| is_first_page(run, key, bucket))
}

fn is_first_page(run: &BucketCommand<'_>, key: &FirstPageKey, bucket: &RawDocument) -> bool {
    let is_first = Bucket::open(run.shape, bucket).is_some_and(|bucket| bucket.page == 0);
    let own = Key::of(run.shape, bucket).ok();
    is_first && own.is_some_and(|own| FirstPageKey::new(run.namespace, own.identity()) == *key)
}
