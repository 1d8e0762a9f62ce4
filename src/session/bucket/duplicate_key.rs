//! Errors of an update that would give an item the key of another item in a unique index, or values that do
//! not satisfy the application's validator.
//!
//! mongod reports an item of another page with the stored names, and an item of the same page as a failed
//! validation. The client receives the error of a plain collection for both.

use bson::raw::cstr;

use super::command::BucketCommand;
use super::failed_update::FailedUpdate;
use super::upstream_query::documents;
use super::{indexes, invalid_item};
use crate::command::document::get;
use crate::command::error::WriteError;
use crate::pattern::bucket::item_lookup::LocatedItem;
use crate::pattern::bucket::unique_index::{
    IndexKey, KeysHeld, NoKeys, UniqueIndex, Violation, interrupted, lookups, violation,
};
use crate::pattern::bucket::validator::is_invalid;
use crate::session::error::RunError;

/// The most pages that are read to find the key that is held.
const MAX_PAGES: i32 = 1000;

/// Whether an update must look its item up before its statement is sent: a refused statement ends the
/// transaction, and the error of a unique index contains the item's new key.
pub(super) async fn needs_item(run: &mut BucketCommand<'_>) -> Result<bool, RunError> {
    Ok(run.context.head.in_transaction() && !indexes::stored(run).await?.unique.is_empty())
}

/// The error with the application's names, if mongod refused the update because of a unique index or of the
/// application's validator. Any other error is unchanged.
pub(super) async fn in_application_terms(
    run: &mut BucketCommand<'_>,
    error: WriteError,
    failed: FailedUpdate<'_>,
) -> Result<WriteError, RunError> {
    if is_invalid(&error.detail) {
        return invalid(run, failed).await;
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
        return Ok(index.duplicate(run.namespace, &index.key_of_values(values)));
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
    // The error has ended the transaction, so nothing can be read.
    let may_read = !run.context.head.in_transaction();
    let Some(found) = failed.before(run).await? else {
        return Ok(None);
    };
    let Some(item) = failed.item_after(run, &found).await? else {
        return Ok(None);
    };
    let keys = match index.keys_of(run.shape, &item) {
        Ok(keys) => keys,
        Err(error) => return Ok(Some(Err(error))),
    };
    let before = index.keys_on(run.shape, &found.key, &found.stored).unwrap_or_default();
    let before: Vec<&[u8]> = before.iter().map(IndexKey::identity).collect();
    let new: Vec<IndexKey> = keys
        .into_iter()
        .filter(|key| !before.contains(&key.identity()))
        .collect();
    let held = match new.as_slice() {
        [] | [_] => None,
        _ if !may_read => None,
        several => Some(held(run, index, several).await?),
    };
    let mut new = new.into_iter();
    let key = match held {
        Some(held) => new.find(|key| held.contains(key)),
        None => new.next(),
    };
    Ok(key.map(Ok))
}

/// The keys among these that stored items have.
async fn held(run: &mut BucketCommand<'_>, index: &UniqueIndex, keys: &[IndexKey]) -> Result<KeysHeld, RunError> {
    let mut held = KeysHeld::among(keys);
    let keys: Vec<&IndexKey> = keys.iter().collect();
    for lookup in lookups(run.shape, index, &keys) {
        let mut find = lookup.find(run.namespace.collection);
        find.append(cstr!("batchSize"), MAX_PAGES);
        find.append(cstr!("singleBatch"), true);
        run.context.inherited().append_to_internal_read(&mut find);
        let answer = run.context.link.run(&find).await?;
        for page in documents(&answer) {
            held.add(run.shape, index, page);
        }
    }
    Ok(held)
}
