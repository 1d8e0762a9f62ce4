//! Deletes one item.

use bson::raw::{RawBson, RawDocument, RawDocumentBuf, cstr};

use super::remove_empty_pages;
use crate::command::arguments::with_replaced;
use crate::command::document::single;
use crate::command::reply::CursorReply;
use crate::command::write_reply::WriteReply;
use crate::pattern::bucket::delete::{take_out, take_out_by_id};
use crate::pattern::bucket::index;
use crate::pattern::bucket::item_lookup::{ItemSelector, LocatedItem};
use crate::pattern::bucket::key::Key;
use crate::pattern::bucket::layout::PageHeader;
use crate::pattern::bucket::predicate_pushdown::BucketPredicate;
use crate::pattern::bucket::update_by_id::place_of;
use crate::pattern::shapes::{BucketShape, ItemIds};
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::item_lookup;
use crate::session::bucket::write_statement::{
    Origin, WriteCommand, WriteResult, is_remembered, lost_too_often, send_one,
};
use crate::session::error::RunError;

/// An item to be taken out, as it was found.
#[derive(Debug)]
pub(in crate::session::bucket) struct ItemToDelete {
    /// A document with its key fields, as its bucket has them.
    pub(in crate::session::bucket) bucket: RawDocumentBuf,
    pub(in crate::session::bucket) page: PageHeader,
    pub(in crate::session::bucket) place: usize,
    pub(in crate::session::bucket) stored: RawDocumentBuf,
}

pub(super) async fn delete(
    run: &mut BucketCommand<'_>,
    wanted: ItemSelector<'_>,
    id: Option<i32>,
    deleted: &mut WriteReply,
) -> Result<(), RunError> {
    let shape = run.shape;
    let narrowing = BucketPredicate::of(shape, wanted.filter);
    // The stable API has no sparse indexes, and no name for a collection in a statement with the client's
    // words.
    let is_simple = shape.item_ids() == ItemIds::Unique && wanted.collation.is_none() && !run.is_strict();
    let item = narrowing.exactly_one_id().filter(|_| is_simple);
    // In a transaction nothing is tried that may fail.
    if let Some(item) = item
        && !run.context.head.in_transaction()
    {
        let in_place = take_out_by_id(shape, &narrowing.on_buckets(), item);
        let told = send_one(run, WriteCommand::Update, &in_place, Origin::Client(id)).await?;
        // Where none was met, one may have been passed, since it was moved there meanwhile.
        if told.missed.is_empty() {
            let is_met = told.n > 0;
            add(deleted, told, id);
            if is_met {
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
            // Perhaps it was there, and an earlier attempt has deleted it.
            if let Some(id) = id
                && let Some(told) = is_remembered(run, id).await?
            {
                add(deleted, told, Some(id));
            }
            return Ok(());
        };
        if let Some(told) = take(run, &target, Origin::Client(id)).await? {
            add(deleted, told, id);
            return Ok(());
        }
    }
    Err(lost_too_often().into())
}

fn add(deleted: &mut WriteReply, told: WriteResult, id: Option<i32>) {
    if let Some(id) = id.filter(|_| told.resent) {
        deleted.add_retried(id);
    }
    deleted.count(told.n.min(1));
    deleted.take_answer(told.answer);
}

/// The statement that takes an item out of its page.
pub(in crate::session::bucket) fn taking_out(shape: &BucketShape, target: &ItemToDelete) -> RawDocumentBuf {
    take_out(shape, &target.page, &[(target.place, &target.stored)])
}

/// Takes an item out. `None` where it is not as it was found.
pub(in crate::session::bucket) async fn take(
    run: &mut BucketCommand<'_>,
    target: &ItemToDelete,
    part: Origin,
) -> Result<Option<WriteResult>, RunError> {
    let told = send_one(run, WriteCommand::Update, &taking_out(run.shape, target), part).await?;
    if !told.missed.is_empty() || (told.n == 0 && !told.resent) {
        return Ok(None);
    }
    if !told.resent {
        sweep_page(run, target).await?;
    }
    Ok(Some(told))
}

/// Removes the page whose last item was taken out, unless it has announced another, and what it leaves
/// behind.
pub(in crate::session::bucket) async fn sweep_page(
    run: &mut BucketCommand<'_>,
    target: &ItemToDelete,
) -> Result<(), RunError> {
    if target.page.count > 1 || !target.page.next.is_empty() {
        return Ok(());
    }
    let key = condition(run.shape, &target.bucket).ok_or_else(|| run.corrupt_bucket_error())?;
    if run.context.head.in_transaction() {
        // Which would end if the page had got an item since it was looked at, as by a move of this same
        // command.
        return remove_empty_pages::key(run, &key).await;
    }
    if remove_empty_pages::remove_all(run, &key, std::slice::from_ref(&target.page)).await? == 0 {
        return Ok(());
    }
    remove_empty_pages::below(run, &key, &target.page).await
}

/// The item with that `_id`, where it meets the conditions.
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
    run.context.inherited().append_to_internal_read(&mut find);
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
        })
    };
    target().map(Some).ok_or_else(|| run.corrupt_bucket_error().into())
}

/// The item that matches first.
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
        })
    }
}

fn without_items(shape: &BucketShape, bucket: &RawDocument) -> RawDocumentBuf {
    with_replaced(bucket, &[(shape.items(), None)])
}

/// The condition that names a bucket's key.
pub(in crate::session::bucket) fn condition(shape: &BucketShape, bucket: &RawDocument) -> Option<RawDocumentBuf> {
    let mut condition = RawDocumentBuf::new();
    Key::of(shape, bucket).ok()?.append_filter(shape, &mut condition);
    Some(condition)
}
