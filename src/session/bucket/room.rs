//! Makes room for an item that has grown.
//!
//! mongod refuses an update after which a page would exceed the size of a document. The item is then moved as
//! it is to another page of its key, and the client's statement is sent again. The move is not part of the
//! statement, so it is not repeated, and a retry needs no record of it.

use std::collections::HashMap;

use super::command::BucketCommand;
use super::failed_update::{FailedUpdate, MAX_DOCUMENT_BYTES};
use super::item_lookup;
use super::relocate::move_unchanged;
use crate::command::document::single;
use crate::command::error::CommandError;
use crate::pattern::bucket::insert::is_too_large;
use crate::pattern::bucket::item_lookup::LocatedItem;
use crate::session::error::RunError;
use crate::session::upstream::UpstreamKind;

/// The bytes of items that have left their pages, for each page, less those that other refused updates need.
#[derive(Debug, Default)]
pub(super) struct FreedBytes(HashMap<Vec<u8>, usize>);

impl FreedBytes {
    /// Takes the bytes by which the item grows from those of its page. Returns false if there are too few, or
    /// the growth is unknown.
    fn take(&mut self, found: &LocatedItem, growth: Option<usize>) -> bool {
        let Some((free, growth)) = self.0.get_mut(&page_of(found)).zip(growth) else {
            return false;
        };
        let Some(rest) = free.checked_sub(growth) else {
            return false;
        };
        *free = rest;
        true
    }

    fn add(&mut self, found: &LocatedItem) {
        let free = self.0.entry(page_of(found)).or_default();
        *free = free.saturating_add(found.stored.as_bytes().len());
    }
}

fn page_of(found: &LocatedItem) -> Vec<u8> {
    single("", &found.bucket).into_bytes()
}

/// Whether an update failed because a page would be too large.
pub(super) fn is_page_too_large(error: &CommandError) -> bool {
    let CommandError::Upstream(reply) = error else {
        return false;
    };
    reply.get_i32("code").is_ok_and(is_too_large)
}

/// Makes room for the item of an update that mongod has refused because a page would be too large. Returns
/// whether the statement may succeed now. If not, the item itself is too large, and mongod's error is that of
/// a plain collection.
///
/// # Errors
/// A refusal if the item cannot be moved.
pub(super) async fn make(run: &mut BucketCommand<'_>, failed: FailedUpdate<'_>) -> Result<bool, RunError> {
    make_for_several(run, failed, &mut FreedBytes::default()).await
}

/// Like [`make`], for one of several refused updates: its item stays if items that have left the page before
/// have `freed` enough space.
///
/// # Errors
/// Those of [`make`].
pub(super) async fn make_for_several(
    run: &mut BucketCommand<'_>,
    failed: FailedUpdate<'_>,
    freed: &mut FreedBytes,
) -> Result<bool, RunError> {
    let found = match failed.before(run).await? {
        None if run.context.head.in_transaction() => {
            item_lookup::first_after_transaction(run, failed.task.wanted()).await?
        }
        found => found,
    };
    let mut growth = None;
    if let Some(found) = &found {
        if found.count <= 1 {
            return Ok(false);
        }
        let bytes = failed.after(run, found).await?.map(|after| after.as_bytes().len());
        if bytes.is_some_and(|bytes| bytes > MAX_DOCUMENT_BYTES) {
            return Ok(false);
        }
        growth = bytes.map(|bytes| bytes.saturating_sub(found.item.as_bytes().len()));
    }
    if let Some(why) = unmovable(run) {
        let what = format!(
            "an update after which a page has more than 16 MiB {why} (new pages have more room with a smaller \
             `max_items` or `max_bytes`)"
        );
        return Err(run.unsupported(&what).into());
    }
    // Without an item, none matches any more.
    if let Some(found) = found
        && !freed.take(&found, growth)
    {
        move_unchanged(run, &found).await?;
        freed.add(&found);
    }
    Ok(true)
}

/// Moves an item away from its neighbors, because a command has no space for all items of its page. Returns
/// whether the item may have fewer neighbors now.
pub(super) async fn separate(run: &mut BucketCommand<'_>, found: &LocatedItem) -> Result<bool, RunError> {
    if found.count <= 1 || unmovable(run).is_some() {
        return Ok(false);
    }
    move_unchanged(run, found).await?;
    Ok(true)
}

/// Whether an item can move to another page in an internal transaction.
pub(super) fn may_leave(run: &BucketCommand<'_>) -> bool {
    no_internal_transaction(run).is_none()
}

/// The reason why the command can begin no internal transaction.
fn no_internal_transaction(run: &BucketCommand<'_>) -> Option<&'static str> {
    if run.context.head.in_transaction() {
        // mongod's error has ended it, so it cannot contain the move.
        Some("in a transaction")
    } else if run.context.upstream == UpstreamKind::Standalone {
        Some("on a standalone")
    } else {
        None
    }
}

/// The reason why no item can be moved as it is. An item without a unique `_id` would not be found again.
fn unmovable(run: &BucketCommand<'_>) -> Option<&'static str> {
    let has_ids = run.shape.item_ids().are_indexed();
    no_internal_transaction(run).or_else(|| (!has_ids).then_some("where items have no unique `_id`"))
}
