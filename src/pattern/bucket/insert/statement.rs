//! The statements themselves, as elements of an `update`; see the parent's documentation for how they succeed and fail.

use bson::DateTime;
use bson::raw::{RawArrayBuf, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{put, single};
use crate::pattern::bucket::index;
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::layout::{self, PageFacts, path};
use crate::pattern::shapes::{BucketShape, ItemIds};

/// Puts an item on a page with room for it.
pub(super) fn push(shape: &BucketShape, item: &Item, facts: &PageFacts) -> RawDocumentBuf {
    let mut query = page_query(shape, item, facts);
    put(&mut query, shape.count(), single("$lt", i64::from(shape.max_items())));
    put(&mut query, path::SHORT, single("$exists", false));
    if facts.count > 0 {
        put(
            &mut query,
            path::BYTES,
            single("$lte", i64::from(shape.max_bytes()).saturating_sub(item.bytes())),
        );
    }
    if let (ItemIds::Unique, Some(id)) = (shape.item_ids(), item.id()) {
        // The unique index does not compare the elements of one document.
        put(&mut query, &index::item_id_path(shape), single("$ne", id));
    }
    let mut change = RawDocumentBuf::new();
    let elements: RawArrayBuf = [item.stored()].into_iter().collect();
    // `$each`, so that no item is taken for the modifiers of a `$push`.
    change.append(cstr!("$push"), single(shape.items(), single("$each", &elements)));
    let mut increments = single(shape.count(), 1);
    put(&mut increments, path::BYTES, layout::bytes(item));
    change.append(cstr!("$inc"), &increments);
    if shape.time().is_some() {
        append_time(item.time(), facts.to, &mut query, &mut change);
    }
    // Never inserted: see the module's documentation.
    change.append(cstr!("$setOnInsert"), single("_id", false));
    upsert(&query, &change)
}

/// Keeps `from`, `to` and `late` true. Whether the item is late depends on `to`, so the statement demands it.
fn append_time(time: Option<DateTime>, to: Option<DateTime>, query: &mut RawDocumentBuf, change: &mut RawDocumentBuf) {
    let late = match (time, to) {
        (None, _) => true,
        (Some(_), None) => {
            put(query, path::TO, single("$exists", false));
            false
        }
        (Some(time), Some(to)) if time < to => {
            put(query, path::TO, single("$gt", time));
            true
        }
        (Some(time), Some(_)) => {
            put(query, path::TO, single("$lte", time));
            false
        }
    };
    if let Some(time) = time {
        change.append(cstr!("$min"), single(path::FROM, time));
        change.append(cstr!("$max"), single(path::TO, time));
    }
    if late {
        let mut marks = single(path::EXCEPTION, true);
        put(&mut marks, path::LATE, true);
        change.append(cstr!("$set"), &marks);
    }
}

/// Closes a page that has no room for an item.
pub(super) fn close(shape: &BucketShape, item: &Item, facts: &PageFacts) -> RawDocumentBuf {
    let mut query = page_query(shape, item, facts);
    put(&mut query, shape.count(), single("$lt", i64::from(shape.max_items())));
    put(
        &mut query,
        path::BYTES,
        single("$gt", i64::from(shape.max_bytes()).saturating_sub(item.bytes())),
    );
    let mut marks = single(path::EXCEPTION, true);
    put(&mut marks, path::SHORT, true);
    let mut change = single("$set", &marks);
    change.append(cstr!("$setOnInsert"), single("_id", false));
    upsert(&query, &change)
}

/// The page itself, by its `_id` and by what it is: a page removed and another begun under its name is not meant.
fn page_query(shape: &BucketShape, item: &Item, facts: &PageFacts) -> RawDocumentBuf {
    let mut query = single("_id", single("$eq", &facts.id));
    item.key().append_filter(shape, &mut query);
    put(&mut query, path::PAGE, facts.page);
    query
}

/// An element of `updates` that upserts.
pub(super) fn upsert(query: &RawDocument, change: &RawDocument) -> RawDocumentBuf {
    let mut statement = RawDocumentBuf::new();
    statement.append(cstr!("q"), query);
    statement.append(cstr!("u"), change);
    statement.append(cstr!("upsert"), true);
    statement
}
