//! Locates items again that others have changed.

use std::collections::HashMap;

use bson::raw::{RawArrayBuf, RawDocument};

use crate::command::document::{length_of, single};
use crate::command::write_batch::lookup_parts;
use crate::pattern::bucket::item_lookup::{ItemSelector, LocatedItem};
use crate::pattern::bucket::key::same_bytes;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::item_lookup::{self, Matches};
use crate::session::bucket::item_update::ItemUpdate;
use crate::session::error::RunError;

/// An item that was located before, located again.
pub(super) enum FoundAgain {
    Item(LocatedItem),
    /// The item no longer matches.
    Gone,
    /// Several items match, and the item cannot be distinguished from the others.
    Ambiguous,
}

/// Locates the item that the command has `moved` to another page. If there is none, or it no longer matches:
/// the first item that matches. With all items of the page, the item is the first that matches on the page of
/// the moved one, so that it is also the first in the page's image.
pub(in crate::session::bucket) async fn moved_or_first(
    run: &mut BucketCommand<'_>,
    wanted: ItemSelector<'_>,
    moved: Option<LocatedItem>,
) -> Result<Option<LocatedItem>, RunError> {
    let alone = ItemSelector {
        all_items: false,
        ..wanted
    };
    if let Some(moved) = moved
        && let FoundAgain::Item(found) = find_again(run, alone, &moved).await?
    {
        if !wanted.all_items {
            return Ok(Some(found));
        }
        let of_bucket = single("_id", single("$eq", &found.bucket));
        let on_page = ItemSelector {
            of_bucket: Some(&of_bucket),
            ..wanted
        };
        if let Some(first) = item_lookup::first(run, on_page).await? {
            return Ok(Some(first));
        }
    }
    item_lookup::first(run, wanted).await
}

/// Locates an item again, on any page if it has an `_id`.
pub(super) async fn find_again(
    run: &mut BucketCommand<'_>,
    wanted: ItemSelector<'_>,
    missed: &LocatedItem,
) -> Result<FoundAgain, RunError> {
    let Some(id) = missed.id() else {
        let found = find_as_it_was(run, wanted, missed).await?;
        return Ok(found.map_or(FoundAgain::Ambiguous, FoundAgain::Item));
    };
    let mut matches = by_id(run, wanted, &single("_id", single("$eq", id))).await?;
    let mut again: Vec<LocatedItem> = Vec::new();
    while let Some(batch) = matches.next_batch(run).await? {
        // With a collation, other `_id`s can compare equal.
        again.extend(
            batch
                .into_iter()
                .filter(|found| found.id().is_some_and(|own| same_bytes(own, id))),
        );
    }
    Ok(match (again.pop(), again.is_empty()) {
        (None, _) => FoundAgain::Gone,
        (Some(item), true) => FoundAgain::Item(item),
        (Some(_), false) => FoundAgain::Ambiguous,
    })
}

/// The wanted items that match a condition on `_id`, on any page: an item may have moved.
async fn by_id(
    run: &mut BucketCommand<'_>,
    wanted: ItemSelector<'_>,
    condition: &RawDocument,
) -> Result<Matches, RunError> {
    let of_bucket = single(run.shape.items(), single("$elemMatch", condition));
    let wanted = ItemSelector {
        of_bucket: Some(&of_bucket),
        of_item: Some(condition),
        ..wanted
    };
    Matches::of(run, wanted).await
}

/// Items whose `_id`s are looked up in one query.
const MAX_TOGETHER: usize = 1000;

/// Locates items again, on any page, in the same order, without those that no longer match. `None`:
/// an item has no `_id`, or shares it with another.
pub(super) async fn find_all_again(
    run: &mut BucketCommand<'_>,
    task: &ItemUpdate<'_>,
    items: &[LocatedItem],
) -> Result<Option<Vec<LocatedItem>>, RunError> {
    let mut all = Vec::new();
    for items in lookup_parts(items, MAX_TOGETHER, |item| item.id().map_or(0, length_of)) {
        let mut order: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut ids = RawArrayBuf::new();
        for (place, item) in items.iter().enumerate() {
            let Some(id) = item.id() else { return Ok(None) };
            ids.push(id);
            if order.insert(single("", id).into_bytes(), place).is_some() {
                return Ok(None);
            }
        }
        let mut matches = by_id(run, task.wanted(), &single("_id", single("$in", &ids))).await?;
        let mut found: Vec<(usize, LocatedItem)> = Vec::new();
        while let Some(batch) = matches.next_batch(run).await? {
            // With a collation, other `_id`s can compare equal.
            found.extend(batch.into_iter().filter_map(|found| {
                let place = order.get(&single("", found.id()?).into_bytes())?;
                Some((*place, found))
            }));
        }
        found.sort_by_key(|(place, _)| *place);
        if found
            .windows(2)
            .any(|pair| matches!(pair, [one, next] if one.0 == next.0))
        {
            return Ok(None);
        }
        all.extend(found.into_iter().map(|(_, found)| found));
    }
    Ok(Some(all))
}

/// Locates an item without an `_id` on its page, by its content. Needed if other items of the page
/// have changed. `None`: the item cannot be distinguished from others.
async fn find_as_it_was(
    run: &mut BucketCommand<'_>,
    wanted: ItemSelector<'_>,
    missed: &LocatedItem,
) -> Result<Option<LocatedItem>, RunError> {
    let of_bucket = single("_id", single("$eq", &missed.bucket));
    let wanted = ItemSelector {
        of_bucket: Some(&of_bucket),
        ..wanted
    };
    let mut matches = Matches::of(run, wanted).await?;
    let mut again = None;
    while let Some(batch) = matches.next_batch(run).await? {
        let is_it =
            |found: &LocatedItem| found.place == missed.place && found.stored.as_bytes() == missed.stored.as_bytes();
        again = again.or_else(|| batch.into_iter().find(is_it));
    }
    Ok(again)
}
