//! `findAndModify` with `remove`: removes an item from its page, and returns it from the page's image before
//! the change.
//!
//! mongod keeps that image for a retry, but does not record which item was removed. So the item must be the
//! first match in the image, too.
//!
//! Earlier versions of the proxy removed a page together with its last item. If mongod reports such a record,
//! the command asks again for a removal.

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::BucketCommand;
use super::delete::{ItemToDelete, condition, sweep_page, taking_out, target, target_by_id};
use super::find::validate_code_and_variables;
use super::find_and_modify::{check_size, projection_of};
use super::write_statement::{lost_too_often, of_write};
use super::{item_lookup, write_concern};
use crate::command::document::{append_fields, get, put, single};
use crate::command::error::CommandError;
use crate::command::find_and_modify::FindAndModify;
use crate::command::reply::{copy_cluster_time, succeeded};
use crate::pattern::bucket::delete::{FirstMatch, as_find_and_modify, take_out_by_id, take_out_first};
use crate::pattern::bucket::item_decoder::ItemDecoder;
use crate::pattern::bucket::item_lookup::ItemSelector;
use crate::pattern::bucket::predicate_pushdown::BucketPredicate;
use crate::pattern::bucket::projection::Projection;
use crate::pattern::bucket::targeting::with_key;
use crate::pattern::bucket::update_by_id::{element_of, only_item};
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

/// The result of one statement.
enum RemoveReply {
    /// The image of the page before the change, if a page matched, and mongod's reply.
    Image(Option<RawDocumentBuf>, RawDocumentBuf),
    /// The page has changed since it was read.
    Missed,
    /// mongod has a record under this `stmtId`, but of the other kind of write (an update or a
    /// removal).
    OtherKind,
}

pub(super) async fn run(
    run: &mut BucketCommand<'_>,
    command: &FindAndModify<'_>,
    projection: &Projection,
) -> Result<RawDocumentBuf, RunError> {
    item_lookup::check(run, command.filter)?;
    let retryable = run.context.is_retryable()?;
    run.ensure_readable(command.hint).await?;
    run.set_target(command.filter, command.collation)?;
    validate_code_and_variables(run, command.filter, command.let_variables).await?;
    let wanted = ItemSelector {
        filter: command.filter,
        sort: command.sort,
        collation: command.collation,
        let_variables: get(run.context.head.body(), "let").and_then(RawBsonRef::as_document),
        ..ItemSelector::default()
    };
    let id = retryable.then(|| command.statement_id.unwrap_or_default());
    let (stored, answer) = delete(run, command, wanted, id)
        .await
        .map_err(|error| of_write(error, retryable))?;
    let projection = projection_of(&answer, projection);
    let item = stored.and_then(|(bucket, stored)| {
        let mut bytes = Vec::new();
        ItemDecoder::new(run.shape, projection, &bucket).append(&stored, &mut bytes);
        RawDocumentBuf::from_bytes(bytes).ok()
    });
    Ok(reply(item.as_deref(), &answer))
}

fn reply(item: Option<&RawDocument>, answer: &RawDocument) -> RawDocumentBuf {
    let mut reply = RawDocumentBuf::new();
    let n = i32::from(item.is_some());
    reply.append(cstr!("lastErrorObject"), single("n", n));
    reply.append(cstr!("value"), item.map_or(RawBsonRef::Null, RawBsonRef::Document));
    for name in ["retriedStmtId", "writeConcernError", "errorLabels"] {
        if let Some(value) = get(answer, name) {
            put(&mut reply, name, value);
        }
    }
    reply.append(cstr!("ok"), 1.0);
    copy_cluster_time(&mut reply, answer);
    reply
}

/// The deleted item as stored, with a document that has its key fields, and mongod's reply.
type RemovedItem = (Option<(RawDocumentBuf, RawDocumentBuf)>, RawDocumentBuf);

/// Has mongod report a mistake in the sort, before an item is removed without it.
async fn check_sort(run: &mut BucketCommand<'_>, command: &FindAndModify<'_>, id: Option<i32>) -> Result<(), RunError> {
    let Some(sort) = command.sort.filter(|_| command.has_unknown_sort()) else {
        return Ok(());
    };
    let mut arguments = no_removal(run);
    put(&mut arguments, "sort", sort);
    send(run, &arguments, id).await.map(drop)
}

/// The arguments of a removal that matches nothing.
fn no_removal(run: &BucketCommand<'_>) -> RawDocumentBuf {
    let statement = run.no_statement();
    let mut arguments = single("query", get(&statement, "q").unwrap_or(RawBsonRef::Null));
    arguments.append(cstr!("remove"), true);
    arguments
}

/// The `_id` that the query demands, if one statement can remove the item with this `_id`.
fn only_id<'p>(
    run: &BucketCommand<'_>,
    command: &FindAndModify<'_>,
    narrowing: &'p BucketPredicate,
) -> Option<&'p RawBson> {
    // Under `apiStrict`, sparse indexes cannot be used and a statement with the client's own
    // expressions cannot name the collection's UUID.
    let is_simple = run.shape.item_ids().are_indexed() && command.collation.is_none() && !run.is_strict();
    let may_fail = command.sort_may_fail();
    narrowing.exactly_one_id().filter(|_| is_simple && !may_fail)
}

async fn delete(
    run: &mut BucketCommand<'_>,
    command: &FindAndModify<'_>,
    wanted: ItemSelector<'_>,
    id: Option<i32>,
) -> Result<RemovedItem, RunError> {
    check_sort(run, command, id).await?;
    let narrowing = BucketPredicate::of(run.shape, wanted.filter);
    let item = only_id(run, command, &narrowing);
    // A retry finds the item again in mongod's image of the page, by filter and sort. So no item that could
    // precede it may be added or changed before it is removed.
    let wanted = ItemSelector {
        all_items: id.is_some() && item.is_none(),
        ..wanted
    };
    let mut none = RawDocumentBuf::new();
    if let Some(item) = item
        && !run.context.head.in_transaction()
    {
        match take_by_id(run, &narrowing, item, id).await? {
            RemoveReply::Image(Some(image), answer) => {
                let stored = element_of(run.shape, &image, item).map(RawDocument::to_owned);
                let stored = stored.ok_or_else(|| run.corrupt_bucket_error())?;
                return Ok((Some((image, stored)), answer));
            }
            // No match: the item may have moved to a page already scanned. Look it up again.
            RemoveReply::Image(None, answer) => none = answer,
            RemoveReply::Missed | RemoveReply::OtherKind => {}
        }
    }
    for attempt in 0..MAX_ATTEMPTS {
        pause(attempt).await;
        let target = match item {
            Some(item) => target_by_id(run, &narrowing, item).await?,
            None => target(run, wanted).await?,
        };
        let taken = match &target {
            Some(target) => take(run, wanted, target, id).await?,
            None => RemoveOutcome::Before,
        };
        match (taken, target) {
            (RemoveOutcome::Now(answer), Some(target)) => return Ok((Some((target.bucket, target.stored)), answer)),
            (RemoveOutcome::Resent(image, answer), _) => return of_image(run, wanted, image, answer).await,
            (RemoveOutcome::Before, target) => {
                let before = match id {
                    Some(id) => before(run, wanted, id).await?,
                    None => None,
                };
                match before {
                    Some(before) => return Ok(before),
                    None if target.is_none() => {
                        if none.is_empty()
                            && let Some(answer) = write_concern::wait_after_no_write(run).await?
                        {
                            none = answer;
                        }
                        return Ok((None, none));
                    }
                    None => {}
                }
            }
            (RemoveOutcome::Now(_) | RemoveOutcome::Missed, _) => {}
        }
    }
    Err(lost_too_often().into())
}

/// Removes the item with this `_id` by one statement on its page.
async fn take_by_id(
    run: &mut BucketCommand<'_>,
    narrowing: &BucketPredicate,
    item: &RawBson,
    id: Option<i32>,
) -> Result<RemoveReply, RunError> {
    let statement = take_out_by_id(run.shape, &narrowing.on_buckets(), item);
    let mut arguments = as_find_and_modify(&statement);
    arguments.append(cstr!("fields"), only_item(run.shape, item));
    send(run, &arguments, id).await
}

/// The result of removing an item from its page.
enum RemoveOutcome {
    Now(RawDocumentBuf),
    /// An earlier attempt of the command removed an item, which may be another one. The image of
    /// its page, and mongod's reply.
    Resent(RawDocumentBuf, RawDocumentBuf),
    /// Nothing was removed now. An earlier attempt may have removed an item.
    Before,
    /// The item has changed since it was read.
    Missed,
}

/// Removes an item from its page.
async fn take(
    run: &mut BucketCommand<'_>,
    wanted: ItemSelector<'_>,
    target: &ItemToDelete,
    id: Option<i32>,
) -> Result<RemoveOutcome, RunError> {
    let statement = match &target.all_items {
        Some(all_items) => {
            let first = FirstMatch {
                place: target.place,
                all_items,
                is_sorted: wanted.sort.is_some_and(|sort| !sort.is_empty()),
            };
            take_out_first(run.shape, &target.page, first)
        }
        None => taking_out(run.shape, target),
    };
    // The filter includes the key because `findAndModify` cannot name the collection's UUID: after
    // a swap the page's `_id` may belong to another key.
    let key = condition(run.shape, &target.bucket).ok_or_else(|| run.corrupt_bucket_error())?;
    let mut arguments = as_find_and_modify(&with_key(&statement, &key));
    arguments.append(cstr!("fields"), single("_id", 1));
    if target.all_items.is_some() {
        check_size(run, &arguments)?;
    }
    match send(run, &arguments, id).await? {
        RemoveReply::Image(Some(image), answer) if get(&answer, "retriedStmtId").is_some() => {
            Ok(RemoveOutcome::Resent(image, answer))
        }
        RemoveReply::Image(Some(_), answer) => {
            sweep_page(run, target).await?;
            Ok(RemoveOutcome::Now(answer))
        }
        RemoveReply::Image(None, _) | RemoveReply::Missed => Ok(RemoveOutcome::Missed),
        RemoveReply::OtherKind => Ok(RemoveOutcome::Before),
    }
}

async fn of_image(
    run: &mut BucketCommand<'_>,
    wanted: ItemSelector<'_>,
    image: RawDocumentBuf,
    answer: RawDocumentBuf,
) -> Result<RemovedItem, RunError> {
    let found = item_lookup::first_in_image(run, &image, wanted).await?;
    let found = found.ok_or_else(|| run.corrupt_bucket_error())?;
    Ok((Some((found.key, found.stored)), answer))
}

/// The item that an earlier attempt of the command deleted. Looks for mongod's record of an update first,
/// then for that of a removal.
async fn before(
    run: &mut BucketCommand<'_>,
    wanted: ItemSelector<'_>,
    id: i32,
) -> Result<Option<RemovedItem>, RunError> {
    let update = as_find_and_modify(&run.no_statement());
    for arguments in [update, no_removal(run)] {
        if let RemoveReply::Image(Some(image), answer) = send(run, &arguments, Some(id)).await? {
            return of_image(run, wanted, image, answer).await.map(Some);
        }
    }
    Ok(None)
}

async fn send(run: &mut BucketCommand<'_>, arguments: &RawDocument, id: Option<i32>) -> Result<RemoveReply, RunError> {
    const CONVERSION_FAILURE: i32 = 241;
    /// A retry whose write was of another kind (`retryable_writes`: 40606 to 40612).
    const OTHER_KIND: std::ops::RangeInclusive<i32> = 40606..=40612;
    let mut body = single("findAndModify", run.namespace.collection);
    append_fields(&mut body, arguments);
    if let Some(id) = id {
        body.append(cstr!("stmtId"), id);
    }
    run.context.inherited().append_to_write(&mut body);
    match succeeded(run.context.link.call(UpstreamRequest::plain(&body)).await?) {
        Ok(answer) => {
            run.record_executed(&answer);
            let image = get(&answer, "value").and_then(RawBsonRef::as_document);
            Ok(RemoveReply::Image(image.map(RawDocument::to_owned), answer))
        }
        Err(CommandError::Upstream(reply)) => match reply.get_i32("code") {
            Ok(CONVERSION_FAILURE) => Ok(RemoveReply::Missed),
            Ok(code) if OTHER_KIND.contains(&code) => Ok(RemoveReply::OtherKind),
            _ => Err(CommandError::Upstream(reply).into()),
        },
        Err(error) => Err(error.into()),
    }
}
