//! Removes the items that an ordered command stored after a refused item; see [`take_back`].
//!
//! For a retryable command each removal has its own `stmtId`, in addition to the insert's. So an attempt that
//! finds the item removed does not remove another item with the same bytes.

use std::collections::{BTreeMap, BTreeSet};

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::batch::{InsertBatch, Placed};
use super::dispatch::key_of;
use super::retry_recovery::{SoughtRecord, no_statement_of, remembered};
use crate::command::document::{get, single};
use crate::command::error::WriteError;
use crate::command::reply::succeeded;
use crate::pattern::bucket::insert::{Failure, WriteGuarantee, failure};
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::undo_ordered_insert::{on_any_page, on_page, take_back};
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::delete::remove_empty_pages;
use crate::session::bucket::retry_on_swap::is_swap_write_error;
use crate::session::bucket::upstream_query::documents;
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

/// Offset from the `stmtId` of an item's insert to that of its removal. The numbers in between
/// belong to upserts.
const TAKEN_BACK: i32 = 1 << 18;
/// Pages in one query.
const PAGES: i32 = 100;

/// An item to remove.
struct Surplus {
    placed: Placed,
    /// The page on which this attempt stored the item. `None`: another attempt stored it, or it has
    /// moved since.
    page: Option<RawBson>,
}

/// A statement that removes one surplus item.
struct UndoStatement {
    /// Index of the item in the list of surplus items.
    number: usize,
    document: RawDocumentBuf,
}

pub(super) async fn take(run: &mut BucketCommand<'_>, batch: &mut InsertBatch<'_>) -> Result<(), RunError> {
    let first = batch.failed.iter().map(|(index, _)| *index).min();
    let (true, false, Some(first)) = (batch.ordered, batch.in_transaction(), first) else {
        return Ok(());
    };
    let behind = batch.stored_behind(first);
    if behind.is_empty() {
        return Ok(());
    }
    let placed = std::mem::take(&mut batch.placed);
    let surplus = behind.iter().map(|item| Surplus {
        placed: *item,
        page: placed.get(item).cloned(),
    });
    let mut surplus: Vec<Surplus> = surplus.collect();
    batch.concern.owe();
    forget_taken(run, batch, &mut surplus).await?;
    let mut gone = 0_usize;
    for attempt in 0..MAX_ATTEMPTS {
        if surplus.is_empty() {
            break;
        }
        pause(attempt).await;
        gone = gone.saturating_add(round(run, batch, &mut surplus).await?);
    }
    refuse(batch, &behind);
    let left = gone.saturating_add(surplus.len());
    if left > 0
        && let Some((_, error)) = batch.failed.first_mut()
    {
        error.message = format!(
            "{}; mongoshape had already stored {left} of the later documents of this command, and could not remove them because other \
             clients have read or changed them",
            error.message
        );
    }
    sweep_keys(run, batch, &behind).await
}

/// Drops the items that an earlier attempt of the command removed.
async fn forget_taken(
    run: &mut BucketCommand<'_>,
    batch: &InsertBatch<'_>,
    surplus: &mut Vec<Surplus>,
) -> Result<(), RunError> {
    if batch.care != WriteGuarantee::ExactlyOnce || surplus.iter().all(|item| item.page.is_some()) {
        return Ok(());
    }
    let sought = surplus.iter().map(|item| SoughtRecord {
        id: number(batch, item.placed),
        nothing: no_statement_of(run, batch, item.placed.group),
    });
    let sought: Vec<SoughtRecord> = sought.collect();
    let taken = remembered(run, &sought, None).await?;
    surplus.retain(|item| !taken.contains_key(&number(batch, item.placed)));
    Ok(())
}

/// The `stmtId` of an item's removal.
fn number(batch: &InsertBatch<'_>, placed: Placed) -> i32 {
    let group = batch.groups.get(placed.group);
    let id = group.and_then(|group| group.statement_id(placed.position));
    id.unwrap_or_default().saturating_add(TAKEN_BACK)
}

/// Looks the surplus items up and removes those found. Returns the number of items that no longer exist.
async fn round(
    run: &mut BucketCommand<'_>,
    batch: &InsertBatch<'_>,
    surplus: &mut Vec<Surplus>,
) -> Result<usize, RunError> {
    let mut by_place: BTreeMap<Vec<u8>, (RawDocumentBuf, Vec<usize>)> = BTreeMap::new();
    for (condition, number) in places(run, batch, surplus) {
        let of_place = by_place.entry(condition.as_bytes().to_vec());
        of_place.or_insert_with(|| (condition, Vec::new())).1.push(number);
    }
    let mut statements = Vec::new();
    let mut missing: BTreeSet<usize> = BTreeSet::new();
    for (condition, mut numbers) in by_place.into_values() {
        for page in pages(run, &condition).await? {
            let items = numbers
                .iter()
                .filter_map(|number| batch.item(surplus.get(*number)?.placed));
            let items: Vec<&Item> = items.collect();
            let found = take_back(run.shape, &page, &items).ok_or_else(|| run.corrupt_bucket_error())?;
            let mut taken = BTreeSet::new();
            for (position, document) in found {
                if let Some(number) = numbers.get(position).copied() {
                    let document = run.targeted(document, || {
                        let group = surplus.get(number).map(|item| item.placed.group);
                        group.map(|group| key_of(run, batch, group)).unwrap_or_default()
                    });
                    statements.push(UndoStatement { number, document });
                    taken.insert(number);
                }
            }
            numbers.retain(|number| !taken.contains(number));
        }
        missing.extend(numbers);
    }
    let done = send(run, batch, surplus, &statements).await?;
    let mut gone = 0_usize;
    let mut left = Vec::new();
    for (number, mut item) in surplus.drain(..).enumerate() {
        if done.contains(&number) {
            continue;
        }
        // The item is not on its recorded page. The next round looks on all pages of the key.
        let is_nowhere = missing.contains(&number) && item.page.take().is_none();
        if is_nowhere {
            gone = gone.saturating_add(1);
        } else {
            left.push(item);
        }
    }
    *surplus = left;
    Ok(gone)
}

/// The filters that look the items up, with the item's index for each.
fn places(run: &BucketCommand<'_>, batch: &InsertBatch<'_>, surplus: &[Surplus]) -> Vec<(RawDocumentBuf, usize)> {
    let of_key = |group: usize| {
        let items = surplus
            .iter()
            .filter(|item| item.page.is_none() && item.placed.group == group);
        let items: Vec<&Item> = items.filter_map(|item| batch.item(item.placed)).collect();
        on_any_page(run.shape, &items)
    };
    let mut conditions: BTreeMap<usize, RawDocumentBuf> = BTreeMap::new();
    let places = surplus.iter().enumerate().map(|(number, item)| {
        let condition = if let Some(page) = &item.page {
            on_page(page)
        } else {
            let group = item.placed.group;
            conditions.entry(group).or_insert_with(|| of_key(group)).clone()
        };
        (condition, number)
    });
    places.collect()
}

/// The pages that match a filter, from the highest downwards.
async fn pages(run: &mut BucketCommand<'_>, condition: &RawDocument) -> Result<Vec<RawDocumentBuf>, RunError> {
    let mut find = single("find", run.namespace.collection);
    find.append(cstr!("filter"), condition);
    find.append(cstr!("sort"), single(crate::pattern::bucket::layout::path::PAGE, -1));
    find.append(cstr!("limit"), PAGES);
    find.append(cstr!("batchSize"), PAGES);
    find.append(cstr!("singleBatch"), true);
    run.context.inherited().append_to_read_of_write(&mut find);
    let answer = run.context.link.run(&find).await?;
    Ok(documents(&answer).map(RawDocument::to_owned).collect())
}

/// Sends the statements unordered. Returns the indexes of the removed items.
async fn send(
    run: &mut BucketCommand<'_>,
    batch: &InsertBatch<'_>,
    surplus: &[Surplus],
    statements: &[UndoStatement],
) -> Result<BTreeSet<usize>, RunError> {
    let mut done: BTreeSet<usize> = statements.iter().map(|statement| statement.number).collect();
    if statements.is_empty() {
        return Ok(done);
    }
    let mut body = single("update", run.namespace.collection);
    body.append(cstr!("ordered"), false);
    let mut carried = run.context.inherited();
    if batch.concern.is_owed() {
        carried = carried.without_wait();
    }
    if batch.care == WriteGuarantee::ExactlyOnce {
        let items = statements.iter().filter_map(|statement| surplus.get(statement.number));
        let ids: RawArrayBuf = items.map(|item| number(batch, item.placed)).collect();
        body.append(cstr!("stmtIds"), &ids);
    }
    carried.append_to_write(&mut body);
    let elements: Vec<&RawDocument> = statements.iter().map(|statement| &*statement.document).collect();
    let request = UpstreamRequest {
        body: &body,
        sequence: Some(("updates", &elements)),
    };
    let answer = succeeded(run.context.link.call(request).await?)?;
    let errors = get(&answer, "writeErrors").and_then(RawBsonRef::as_array);
    let errors = errors
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(RawBsonRef::as_document);
    let mut is_replaced = false;
    for (position, error) in errors.filter_map(WriteError::parse) {
        if let Some(statement) = statements.get(position) {
            done.remove(&statement.number);
        }
        is_replaced |= is_swap_write_error(&error);
        match failure(run.shape, error) {
            Failure::Miss | Failure::NotReady => {}
            Failure::TooLarge(error) | Failure::Incompatible(error) | Failure::Final(error) => {
                return Err(error.into_command_error().into());
            }
            _ => return Err(run.corrupt_bucket_error().into()),
        }
    }
    if is_replaced {
        run.context.settings.catalog.forget(run.namespace);
        run.context
            .settings
            .catalog
            .for_writing(&mut run.catalog_session())
            .await?;
    }
    Ok(done)
}

fn refuse(batch: &mut InsertBatch<'_>, behind: &[Placed]) {
    for placed in behind {
        let index = batch.item(*placed).map(Item::index);
        batch.resent.retain(|resent| Some(*resent) != index);
        if let Some(group) = batch.groups.get_mut(placed.group) {
            group.refuse(placed.position);
        }
    }
}

async fn sweep_keys(run: &mut BucketCommand<'_>, batch: &InsertBatch<'_>, behind: &[Placed]) -> Result<(), RunError> {
    let groups: BTreeSet<usize> = behind.iter().map(|placed| placed.group).collect();
    for group in groups {
        let key = batch.groups.get(group).and_then(|group| group.item(0)).map(Item::key);
        if let Some(key) = key {
            let mut condition = RawDocumentBuf::new();
            key.append_filter(run.shape, &mut condition);
            remove_empty_pages::key(run, &condition).await?;
        }
    }
    Ok(())
}
