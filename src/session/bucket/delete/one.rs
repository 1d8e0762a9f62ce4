//! Deletes one item.

use bson::raw::{RawArrayBuf, RawBson, RawDocument, RawDocumentBuf, cstr};

use super::remove_empty_pages;
use crate::command::arguments::with_replaced;
use crate::command::document::single;
use crate::command::reply::CursorReply;
use crate::command::write_reply::WriteReply;
use crate::pattern::bucket::delete::{may_empty, take_out, take_out_by_id, take_out_of_reserving_page};
use crate::pattern::bucket::index;
use crate::pattern::bucket::item_lookup::{ItemSelector, LocatedItem};
use crate::pattern::bucket::key::Key;
use crate::pattern::bucket::layout::PageHeader;
use crate::pattern::bucket::predicate_pushdown::BucketPredicate;
use crate::pattern::bucket::update_by_id::place_of;
use crate::pattern::shapes::BucketShape;
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::item_lookup;
use crate::session::bucket::write_statement::{
    Origin, WriteCommand, WriteResult, is_remembered, lost_too_often, send_one,
};
use crate::session::error::RunError;

/// An item to delete, as it was read.
#[derive(Debug)]
pub(in crate::session::bucket) struct ItemToDelete {
    /// A document with the key fields as the bucket has them.
    pub(in crate::session::bucket) bucket: RawDocumentBuf,
    pub(in crate::session::bucket) page: PageHeader,
    pub(in crate::session::bucket) place: usize,
    pub(in crate::session::bucket) stored: RawDocumentBuf,
    /// All items of the page, if they were requested.
    pub(in crate::session::bucket) all_items: Option<RawArrayBuf>,
}

/// The deletion of the item with an `_id`.
pub(super) struct DeletionById {
    /// An element of `updates`.
    pub(super) statement: RawDocumentBuf,
    pub(super) id: RawBson,
}

impl DeletionById {
    /// `None`: the filter has other conditions, or no index finds the item.
    pub(super) fn new(run: &BucketCommand<'_>, wanted: ItemSelector<'_>) -> Option<Self> {
        let narrowing = BucketPredicate::of(run.shape, wanted.filter);
        let id = exactly_one_id(run, &narrowing, wanted)?;
        Some(Self {
            statement: take_out_by_id(run.shape, &narrowing.on_buckets(), id),
            id: id.clone(),
        })
    }
}

/// The `_id` of the item to delete, if it determines the page.
fn exactly_one_id<'a>(
    run: &BucketCommand<'_>,
    narrowing: &'a BucketPredicate,
    wanted: ItemSelector<'_>,
) -> Option<&'a RawBson> {
    // Under `apiStrict`, sparse indexes cannot be used and a statement with the client's own
    // expressions cannot name the collection's UUID.
    let is_simple = run.shape.item_ids().are_indexed() && wanted.collation.is_none() && !run.is_strict();
    narrowing.exactly_one_id().filter(|_| is_simple)
}

/// Deletes the first matching item. `has_missed`: whether the statement that deletes it by `_id` was sent,
/// and has not found it.
pub(super) async fn delete(
    run: &mut BucketCommand<'_>,
    wanted: ItemSelector<'_>,
    id: Option<i32>,
    has_missed: bool,
    deleted: &mut WriteReply,
) -> Result<(), RunError> {
    let narrowing = BucketPredicate::of(run.shape, wanted.filter);
    let item = exactly_one_id(run, &narrowing, wanted);
    // A statement that may fail is not sent in a transaction, because a failure ends the
    // transaction.
    if let Some(item) = item
        && !has_missed
        && !run.context.head.in_transaction()
    {
        let condition = narrowing.on_buckets();
        if let Some(result) = delete_from_reserving_page(run, &condition, item, id).await? {
            add(deleted, result, id);
            return Ok(());
        }
        let in_place = run.at_target(take_out_by_id(run.shape, &condition, item));
        let result = send_one(run, WriteCommand::Update, &in_place, Origin::Client(id)).await?;
        // No match: the item may have moved to a page already scanned. Look it up again.
        if result.missed.is_empty() {
            let is_deleted = result.n > 0;
            add(deleted, result, id);
            if is_deleted {
                return Ok(());
            }
        }
    }
    for attempt in 0..MAX_ATTEMPTS {
        pause(attempt).await;
        let target = match item {
            Some(item) => target_by_id(run, &narrowing, item).await?,
            None => target(run, wanted).await?,
        };
        let Some(target) = target else {
            // The item may be missing because an earlier attempt of this command deleted it.
            if let Some(id) = id
                && let Some(result) = is_remembered(run, id).await?
            {
                add(deleted, result, Some(id));
            }
            return Ok(());
        };
        if let Some(result) = take(run, &target, Origin::Client(id)).await? {
            add(deleted, result, id);
            return Ok(());
        }
    }
    Err(lost_too_often().into())
}

/// Deletes the item with this `_id` by the statement for pages that have reserved the next one. `None`: the statement
/// was not sent, or the item is not on such a page. `condition` matches the item's page.
async fn delete_from_reserving_page(
    run: &mut BucketCommand<'_>,
    condition: &RawDocument,
    item: &RawBson,
    id: Option<i32>,
) -> Result<Option<WriteResult>, RunError> {
    let Some(collection) = run.collection.as_ref().map(|collection| collection.uuid.clone()) else {
        return Ok(None);
    };
    let settings = run.context.settings;
    if !settings.reserving_page_deletions.is_due(&collection) {
        return Ok(None);
    }
    let statement = run.at_target(take_out_of_reserving_page(run.shape, condition, item));
    let result = send_one(run, WriteCommand::Update, &statement, Origin::Client(id)).await?;
    let has_deleted = result.n > 0;
    settings.reserving_page_deletions.record(&collection, has_deleted);
    Ok(has_deleted.then_some(result))
}

/// Adds the result of the statement that deletes one item.
pub(super) fn add(deleted: &mut WriteReply, result: WriteResult, id: Option<i32>) {
    if let Some(id) = id.filter(|_| result.resent) {
        deleted.add_retried(id);
    }
    deleted.count(result.n.min(1));
    deleted.take_answer(result.answer);
}

/// The statement that removes an item from its page.
pub(in crate::session::bucket) fn taking_out(shape: &BucketShape, target: &ItemToDelete) -> RawDocumentBuf {
    take_out(shape, &target.page, &[(target.place, &target.stored)])
}

/// Removes an item from its page. `None`: the item has changed since it was read.
pub(in crate::session::bucket) async fn take(
    run: &mut BucketCommand<'_>,
    target: &ItemToDelete,
    part: Origin,
) -> Result<Option<WriteResult>, RunError> {
    let statement = taking_out(run.shape, target);
    take_by(run, target, statement, part).await
}

/// Like [`take`], with a given statement.
pub(in crate::session::bucket) async fn take_by(
    run: &mut BucketCommand<'_>,
    target: &ItemToDelete,
    statement: RawDocumentBuf,
    part: Origin,
) -> Result<Option<WriteResult>, RunError> {
    let statement = run.targeted(statement, || condition(run.shape, &target.bucket).unwrap_or_default());
    let result = send_one(run, WriteCommand::Update, &statement, part).await?;
    if !result.missed.is_empty() || (result.n == 0 && !result.resent) {
        return Ok(None);
    }
    if !result.resent {
        sweep_page(run, target).await?;
    }
    Ok(Some(result))
}

/// Removes the page whose last item was deleted, and then empty pages below it. A page with a
/// reservation is kept.
pub(in crate::session::bucket) async fn sweep_page(
    run: &mut BucketCommand<'_>,
    target: &ItemToDelete,
) -> Result<(), RunError> {
    if !may_empty(&target.page, 1) {
        return Ok(());
    }
    let key = condition(run.shape, &target.bucket).ok_or_else(|| run.corrupt_bucket_error())?;
    if run.context.head.in_transaction() {
        // The pages are read again. If the page got an item in the meantime, for example by a
        // relocation of the same command, a failed removal would end the transaction.
        return remove_empty_pages::key(run, &key).await;
    }
    if remove_empty_pages::remove_all(run, &key, std::slice::from_ref(&target.page)).await? == 0 {
        // The page has changed since it was read.
        return remove_empty_pages::key(run, &key).await;
    }
    remove_empty_pages::below(run, &key, &target.page).await
}

/// The item with that `_id` if it matches the filter.
pub(in crate::session::bucket) async fn target_by_id(
    run: &mut BucketCommand<'_>,
    narrowing: &BucketPredicate,
    id: &RawBson,
) -> Result<Option<ItemToDelete>, RunError> {
    let mut find = single("find", run.namespace.collection);
    find.append(cstr!("filter"), narrowing.on_buckets());
    find.append(cstr!("hint"), index::ITEM_ID);
    find.append(cstr!("limit"), 1);
    find.append(cstr!("singleBatch"), true);
    run.context.inherited().append_to_selection(&mut find);
    let answer = run.context.link.run(&find).await?;
    let Some(bucket) = CursorReply::parse(&answer).and_then(|cursor| cursor.documents().next()) else {
        return Ok(None);
    };
    let target = || {
        let (place, stored) = place_of(run.shape, bucket, id)?;
        Some(ItemToDelete {
            bucket: without_items(run.shape, bucket),
            page: PageHeader::parse(run.shape, bucket)?,
            place,
            stored: stored.to_owned(),
            all_items: None,
        })
    };
    target().map(Some).ok_or_else(|| run.corrupt_bucket_error().into())
}

/// The first matching item.
pub(in crate::session::bucket) async fn target(
    run: &mut BucketCommand<'_>,
    wanted: ItemSelector<'_>,
) -> Result<Option<ItemToDelete>, RunError> {
    let found = item_lookup::first(run, wanted).await?;
    let target = found.map(|found| ItemToDelete::of(run.shape, found));
    target
        .map(|target| target.ok_or_else(|| run.corrupt_bucket_error().into()))
        .transpose()
}

impl ItemToDelete {
    pub(in crate::session::bucket) fn of(shape: &BucketShape, found: LocatedItem) -> Option<Self> {
        Some(Self {
            bucket: found.key.clone(),
            page: found.page_facts(shape)?,
            place: found.place,
            stored: found.stored,
            all_items: found.all_items,
        })
    }
}

fn without_items(shape: &BucketShape, bucket: &RawDocument) -> RawDocumentBuf {
    with_replaced(bucket, &[(shape.items(), None)])
}

/// The filter for the key of a bucket. `None` if the document has no valid key.
pub(in crate::session::bucket) fn condition(shape: &BucketShape, bucket: &RawDocument) -> Option<RawDocumentBuf> {
    let mut condition = RawDocumentBuf::new();
    Key::of(shape, bucket).ok()?.append_filter(shape, &mut condition);
    Some(condition)
}
