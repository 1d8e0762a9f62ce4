//! Internal queries of commands.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::BucketCommand;
use super::indexes;
use super::retry_on_swap::is_swap_error;
use crate::command::document::{as_flag, get, single};
use crate::command::error::CommandError;
use crate::command::reply::{CursorReply, succeeded};
use crate::pattern::bucket::read::bucket::Bucket;
use crate::pattern::bucket::read::{BucketSource, Reach};
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

impl<'a> BucketCommand<'a> {
    /// The collection of the command, and the form of its queries.
    pub(super) fn source(&self) -> BucketSource<'a> {
        BucketSource {
            collection: self.namespace.collection,
            reach: if self.is_strict() || self.is_behind_mongos() {
                Reach::Conditions
            } else {
                Reach::Bounds
            },
            has_item_id_index: self
                .collection
                .as_ref()
                .is_some_and(|collection| collection.has_item_id_index),
        }
    }

    /// Whether the client sets `apiStrict`.
    pub(super) fn is_strict(&self) -> bool {
        get(self.context.head.body(), "apiStrict").is_some_and(|strict| as_flag(strict) == Some(true))
    }
}

/// Completes a query with the inherited options and the collection's UUID. The UUID is left out in a
/// transaction, which holds the collection, and under `apiStrict`, which does not allow it. There
/// [`BucketCommand::is_still_the_same`] checks it instead.
pub(super) fn complete(run: &BucketCommand<'_>, mut request: RawDocumentBuf) -> RawDocumentBuf {
    name_collection(run, &mut request);
    run.context.inherited().append_to_read(&mut request);
    request
}

/// Appends the collection's UUID, where [`complete`] does and unless the query has it.
pub(super) fn name_collection(run: &BucketCommand<'_>, request: &mut RawDocumentBuf) {
    let is_named = !run.is_strict() && !run.context.head.in_transaction();
    let collection = run.collection.as_ref().filter(|_| is_named);
    if let Some(collection) = collection.filter(|_| get(request, "collectionUUID").is_none()) {
        request.append(cstr!("collectionUUID"), &collection.uuid);
    }
}

/// Sends queries back to back and returns the replies in order. `None`: mongod refused a query, for
/// example because an index is missing. The caller then uses a pipeline, which needs no index.
///
/// # Errors
/// In a transaction that of the first query that mongod refused: it has ended the transaction.
pub(super) async fn ask_all(
    run: &mut BucketCommand<'_>,
    queries: Vec<RawDocumentBuf>,
) -> Result<Option<Vec<RawDocumentBuf>>, RunError> {
    let requests: Vec<UpstreamRequest<'_>> = queries.iter().map(|query| UpstreamRequest::plain(query)).collect();
    let answers = run.context.link.call_all(&requests).await?;
    let expected = answers.len();
    let (answers, failed): (Vec<_>, Vec<_>) = answers.into_iter().map(succeeded).partition(Result::is_ok);
    let answers: Vec<_> = answers.into_iter().flatten().collect();
    let failed: Vec<CommandError> = failed.into_iter().filter_map(Result::err).collect();
    if failed.iter().any(is_swap_error) {
        run.context.settings.catalog.forget(run.namespace);
    }
    if answers.len() == expected {
        return Ok(Some(answers));
    }
    if run.context.head.in_transaction() {
        // The index may be one of the application that was dropped.
        indexes::forget(run);
        return failed.into_iter().next().map_or(Ok(None), |error| Err(error.into()));
    }
    kill_all(run, &answers).await?;
    Ok(None)
}

/// Like [`ask_all`], for a fixed number of queries.
pub(super) async fn ask<const N: usize>(
    run: &mut BucketCommand<'_>,
    queries: [RawDocumentBuf; N],
) -> Result<Option<[RawDocumentBuf; N]>, RunError> {
    let answers = ask_all(run, queries.into()).await?;
    Ok(answers.and_then(|answers| answers.try_into().ok()))
}

/// The next batch of the same cursor. `None` at its end.
pub(super) async fn more(
    run: &mut BucketCommand<'_>,
    answer: &RawDocument,
) -> Result<Option<RawDocumentBuf>, RunError> {
    let Some(id) = CursorReply::parse(answer).map(|cursor| cursor.id).filter(|id| *id != 0) else {
        return Ok(None);
    };
    let command = get_more(run, id, None);
    Ok(Some(succeeded(
        run.context.link.call(UpstreamRequest::plain(&command)).await?,
    )?))
}

/// The `getMore` of a cursor that an internal command opened.
pub(super) fn get_more(run: &BucketCommand<'_>, id: i64, size: Option<u64>) -> RawDocumentBuf {
    let mut command = single("getMore", id);
    command.append(cstr!("collection"), run.namespace.collection);
    if let Some(size) = size {
        command.append(cstr!("batchSize"), i64::try_from(size).unwrap_or(i64::MAX));
    }
    run.context.inherited().append_to_get_more(&mut command);
    command
}

pub(super) async fn kill(run: &mut BucketCommand<'_>, id: i64) -> Result<(), RunError> {
    let mut command = single("killCursors", run.namespace.collection);
    let ids: RawArrayBuf = [RawBsonRef::Int64(id)].into_iter().collect();
    command.append(cstr!("cursors"), &ids);
    run.context.inherited().append_to_get_more(&mut command);
    run.context.link.run(&command).await.map(|_| ())
}

/// Closes all cursors that these replies left open.
pub(super) async fn kill_all(run: &mut BucketCommand<'_>, answers: &[RawDocumentBuf]) -> Result<(), RunError> {
    for answer in answers {
        if let Some(cursor) = CursorReply::parse(answer)
            && cursor.id != 0
        {
            kill(run, cursor.id).await?;
        }
    }
    Ok(())
}

/// The documents of the reply's batch.
pub(super) fn documents(answer: &RawDocument) -> impl Iterator<Item = &RawDocument> {
    let cursor = CursorReply::parse(answer);
    cursor
        .into_iter()
        .flat_map(|cursor| cursor.batch.into_iter().flatten().filter_map(RawBsonRef::as_document))
}

/// The first bucket of the reply's batch.
///
/// # Errors
/// If the first document is not a page.
pub(super) fn first_bucket<'a>(
    run: &BucketCommand<'_>,
    answer: &'a RawDocument,
) -> Result<Option<Bucket<'a>>, RunError> {
    let first = documents(answer).next();
    let bucket =
        first.map(|document| Bucket::open(run.shape, document).ok_or_else(|| run.corrupt_bucket_error().into()));
    bucket.transpose()
}
