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
use crate::session::first_page_cache::FirstPageKey;

/// The reply with the first page, if its `_id` is known and still names that page. Costs one round trip.
pub(super) async fn known(
    run: &mut BucketCommand<'_>,
    queries: Queries<'_>,
) -> Result<Option<RawDocumentBuf>, RunError> {
    let Some(place) = place(run, queries) else {
        return Ok(None);
    };
    let pages = &run.context.settings.first_pages;
    let Some(id) = pages.get(&place) else {
        return Ok(None);
    };
    let query = complete(run, queries.named(&id));
    let Some([answer]) = ask(run, [query]).await? else {
        return Ok(None);
    };
    if documents(&answer)
        .next()
        .is_some_and(|bucket| is_at(run, &place, bucket))
    {
        return Ok(Some(answer));
    }
    pages.forget(&place);
    Ok(None)
}

/// The `find` for the first page, by its `_id` if that is known.
pub(super) fn query(run: &BucketCommand<'_>, queries: Queries<'_>) -> RawDocumentBuf {
    let pages = &run.context.settings.first_pages;
    match place(run, queries).and_then(|place| pages.get(&place)) {
        Some(id) => queries.named(&id),
        None => queries.first(run.shape),
    }
}

/// The reply to [`query`], or to a second query if the first one did not return the first page.
pub(super) async fn checked(
    run: &mut BucketCommand<'_>,
    queries: Queries<'_>,
    reply: RawDocumentBuf,
) -> Result<RawDocumentBuf, RunError> {
    let pages = &run.context.settings.first_pages;
    let Some(place) = place(run, queries) else {
        return Ok(reply);
    };
    let first = documents(&reply).next().filter(|bucket| is_at(run, &place, bucket));
    if pages.get(&place).is_none() {
        if let Some(id) = first.and_then(|first| get(first, "_id")?.as_str()) {
            pages.learn(place, id.to_owned());
        }
        return Ok(reply);
    }
    if first.is_some() {
        return Ok(reply);
    }
    pages.forget(&place);
    let query = complete(run, queries.first(run.shape));
    Ok(ask(run, [query]).await?.map_or(reply, |[reply]| reply))
}

/// Records the `_id` of a bucket if it is the first page of the query's key.
pub(super) fn learn(run: &BucketCommand<'_>, query: &BucketQuery, bucket: &RawDocument) {
    let Keys::One(key) = &query.keys else { return };
    let source = run.source();
    let place = place(run, Queries { source, key }).filter(|place| is_at(run, place, bucket));
    let id = get(bucket, "_id").and_then(RawBsonRef::as_str);
    if let Some((place, id)) = place.zip(id) {
        run.context.settings.first_pages.learn(place, id.to_owned());
    }
}

fn place(run: &BucketCommand<'_>, queries: Queries<'_>) -> Option<FirstPageKey> {
    Some(FirstPageKey::new(run.namespace, queries.identity(run.shape)?))
}

/// Whether a bucket is the first page of this key.
fn is_at(run: &BucketCommand<'_>, place: &FirstPageKey, bucket: &RawDocument) -> bool {
    let is_first = Bucket::open(run.shape, bucket).is_some_and(|bucket| bucket.page == 0);
    let key = Key::of(run.shape, bucket).ok();
    is_first && key.is_some_and(|key| FirstPageKey::new(run.namespace, key.identity()) == *place)
}
