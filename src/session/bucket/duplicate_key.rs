//! Errors of an update that would give an item the key of another item in a unique index, values that do not
//! satisfy the application's validator, or more bytes than a document may have.
//!
//! mongod reports an item of another page with the stored names, and an item of the same page as a failed
//! validation. The client receives the error of a plain collection for both. It names the first new key, in
//! the order of the index, that another item has.

use bson::raw::{RawDocumentBuf, cstr};

use super::command::BucketCommand;
use super::failed_update::{FailedUpdate, HeldKeys};
use super::upstream_query::documents;
use super::{indexes, invalid_item};
use crate::command::document::get;
use crate::command::error::WriteError;
use crate::pattern::bucket::insert::is_too_large;
use crate::pattern::bucket::item_lookup::LocatedItem;
use crate::pattern::bucket::unique_index::{
    IndexKey, KeysHeld, NoKeys, UniqueIndex, Violation, added_keys, interrupted, lookups, violation,
};
use crate::pattern::bucket::update_by_position::InPlace;
use crate::pattern::bucket::validator::is_invalid;
use crate::session::error::RunError;
use crate::session::id_source::SystemIdSource;

/// The most pages that are read to find the key that is held.
const MAX_PAGES: i32 = 1000;

/// When keys are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyLookupTime {
    BeforeStatement,
    /// The error has ended the client's transaction, so its own writes are not seen.
    AfterError,
}

/// Whether an update must look its item up before its statement is sent: a refused statement ends the
/// transaction, and the error of a unique index contains the item's new key.
pub(super) async fn needs_item(run: &mut BucketCommand<'_>) -> Result<bool, RunError> {
    Ok(run.context.head.in_transaction() && !indexes::stored(run).await?.unique.is_empty())
}

/// Looks up the new keys of a changed item that other items have, before its statement is sent in a
/// transaction: nothing can be read in it after an error. Costs a query for each index that gets several
/// keys.
pub(super) async fn look_ahead(
    run: &mut BucketCommand<'_>,
    found: &LocatedItem,
    change: &InPlace,
) -> Result<HeldKeys, RunError> {
    let mut all = Vec::new();
    if !run.context.head.in_transaction() {
        return Ok(HeldKeys::default());
    }
    let listed = indexes::stored(run).await?;
    if listed.unique.is_empty() {
        return Ok(HeldKeys::default());
    }
    let Some(after) = stored_after(run, found, change) else {
        return Ok(HeldKeys::default());
    };
    for index in &listed.unique {
        let Ok(keys) = index.keys_on(run.shape, &found.key, &after) else {
            continue;
        };
        let new = new_keys(run, index, found, keys);
        // The error can only name a single key.
        if new.len() > 1 {
            let held = held(run, index, &new, KeyLookupTime::BeforeStatement).await?;
            let first = new.into_iter().find(|key| held.contains(key));
            all.extend(first.map(|key| (index.name().to_owned(), key)));
        }
    }
    Ok(HeldKeys(all))
}

/// The error with the application's names, if mongod refused the update because of a unique index, of the
/// application's validator or of the item's size. Any other error is unchanged.
pub(super) async fn in_application_terms(
    run: &mut BucketCommand<'_>,
    error: WriteError,
    failed: FailedUpdate<'_>,
) -> Result<WriteError, RunError> {
    if is_invalid(&error.detail) {
        return invalid(run, failed).await;
    }
    if is_too_large(error.code) {
        return failed.size_error(run, error).await;
    }
    let Some(violation) = violation(&error.detail) else {
        return Ok(error);
    };
    let mut listed = indexes::stored(run).await?;
    if violation.index(&listed.unique).is_none() {
        indexes::forget(run);
        listed = indexes::stored(run).await?;
    }
    let Some(index) = violation.index(&listed.unique) else {
        return Ok(match violation {
            Violation::SamePage(index) => interrupted(run.namespace, &index),
            Violation::OtherPage { .. } => error,
        });
    };
    if let Violation::OtherPage { values, .. } = &violation {
        let mut key = index.key_of_values(values);
        // mongod has read the key fields from the page, which has them in their canonical types.
        if index.has_key_field(run.shape)
            && let Some(Ok(new)) = keys_after(run, index, failed).await?
            && let Some(own) = new.into_iter().find(|new| new.identity() == key.identity())
        {
            key = own;
        }
        return Ok(index.duplicate(run.namespace, &key));
    }
    Ok(match new_key(run, index, failed).await? {
        Some(Ok(key)) => index.duplicate(run.namespace, &key),
        Some(Err(reason)) => index.without_keys(run.namespace, reason),
        None => index.duplicate_of_unknown_key(run.namespace),
    })
}

/// The error for an item that does not satisfy the application's validator. It has no details if the proxy
/// cannot evaluate the update, or cannot read the item because the error has ended the transaction.
async fn invalid(run: &mut BucketCommand<'_>, failed: FailedUpdate<'_>) -> Result<WriteError, RunError> {
    let found = failed.before(run).await?;
    let after = match &found {
        Some(found) => failed.after(run, found).await?,
        None => None,
    };
    let id = found.as_ref().and_then(LocatedItem::id);
    let Some(after) = after else {
        let filter = failed.task.asked.filter;
        let demanded = filter.and_then(|filter| get(filter, "_id"));
        let id = id.or_else(|| demanded.filter(|id| id.as_document().is_none()));
        return Ok(invalid_item::without_details(run, id));
    };
    let after = invalid_item::with_id(&after, id);
    let error = invalid_item::errors(run, &[after]).await?.pop().flatten();
    Ok(error.unwrap_or_else(|| invalid_item::not_found(run)))
}

/// The key that the update would give the item, and that another item holds. `None`: unknown, because the
/// proxy cannot evaluate the update, or because the error has ended the transaction.
async fn new_key(
    run: &mut BucketCommand<'_>,
    index: &UniqueIndex,
    failed: FailedUpdate<'_>,
) -> Result<Option<Result<IndexKey, NoKeys>>, RunError> {
    if let Some(key) = failed.held.and_then(|held| held.first_in(index)) {
        return Ok(Some(Ok(key.clone())));
    }
    let new = match keys_after(run, index, failed).await? {
        Some(Ok(new)) => new,
        Some(Err(reason)) => return Ok(Some(Err(reason))),
        None => return Ok(None),
    };
    let mut held_of_several = None;
    if new.len() > 1 {
        let held = held(run, index, &new, KeyLookupTime::AfterError).await?;
        // The transaction itself may have written the item with the key.
        let is_unknown = held.is_empty() && run.context.head.in_transaction();
        held_of_several = (!is_unknown).then_some(held);
    }
    let mut new = new.into_iter();
    let key = match held_of_several {
        Some(held) => new.find(|key| held.contains(key)),
        None => new.next(),
    };
    Ok(key.map(Ok))
}

/// The keys that the update would add to those of the item. `None`: unknown, as in [`new_key`].
async fn keys_after(
    run: &mut BucketCommand<'_>,
    index: &UniqueIndex,
    failed: FailedUpdate<'_>,
) -> Result<Option<Result<Vec<IndexKey>, NoKeys>>, RunError> {
    let Some(found) = failed.before(run).await? else {
        return Ok(None);
    };
    let after = failed.change.and_then(|change| stored_after(run, &found, change));
    let keys = match after {
        Some(after) => index.keys_on(run.shape, &found.key, &after),
        None => match failed.item_after(run, &found).await? {
            Some(item) => index.keys_of(run.shape, &item),
            None => return Ok(None),
        },
    };
    Ok(Some(keys.map(|keys| new_keys(run, index, &found, keys))))
}

/// The keys among these that the item did not have before.
fn new_keys(run: &BucketCommand<'_>, index: &UniqueIndex, found: &LocatedItem, keys: Vec<IndexKey>) -> Vec<IndexKey> {
    let before = index.keys_on(run.shape, &found.key, &found.stored);
    added_keys(&before.unwrap_or_default(), keys)
}

/// The item after a change of it, as stored. `None`: the proxy cannot compute it.
fn stored_after(run: &BucketCommand<'_>, found: &LocatedItem, change: &InPlace) -> Option<RawDocumentBuf> {
    let mut mint = SystemIdSource::new(&run.context.shared.timestamps);
    change.stored_after(run.shape, found, &mut mint)
}

/// The keys among these that stored items have.
async fn held(
    run: &mut BucketCommand<'_>,
    index: &UniqueIndex,
    keys: &[IndexKey],
    time: KeyLookupTime,
) -> Result<KeysHeld, RunError> {
    let mut held = KeysHeld::among(keys);
    let keys: Vec<&IndexKey> = keys.iter().collect();
    for lookup in lookups(run.shape, index, &keys) {
        let mut find = lookup.find(run.namespace.collection);
        find.append(cstr!("batchSize"), MAX_PAGES);
        find.append(cstr!("singleBatch"), true);
        match time {
            KeyLookupTime::BeforeStatement => run.context.inherited().append_to_read_of_write(&mut find),
            KeyLookupTime::AfterError => run.context.options().append_to_inspect(&mut find),
        }
        let answer = run.context.link.run(&find).await?;
        for page in documents(&answer) {
            held.add(run.shape, index, page);
        }
    }
    Ok(held)
}
