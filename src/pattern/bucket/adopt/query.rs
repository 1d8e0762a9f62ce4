//! Queries on a collection that may contain documents other than pages.

use bson::raw::RawDocumentBuf;
use bson::rawdoc;

use crate::command::document::{array_of, put, single};
use crate::pattern::bucket::index;
use crate::pattern::bucket::layout::{self, path};
use crate::pattern::shapes::BucketShape;

/// The filter for documents that are not pages of layout version 1, as far as each can say by itself: of
/// another version, or with another number of items than they say, with what are no items, or with some that
/// are not of the time that they say.
#[must_use]
pub fn strays(shape: &BucketShape) -> RawDocumentBuf {
    let items = array(shape);
    let length = rawdoc! { "$size": items.clone() };
    let mut is_item = vec![rawdoc! { "$eq": [{ "$type": "$$item" }, "object"] }];
    is_item.extend(shape.time().map(|time| is_within_bounds(shape, time)));
    let is_item = single("$and", array_of(&is_item));
    let are_items = rawdoc! { "$map": { "input": items, "as": "item", "in": is_item } };
    let conditions = rawdoc! { "$and": [
        { "$eq": [dollar(path::VERSION), layout::VERSION] },
        { "$isArray": [dollar(shape.items())] },
        { "$eq": [dollar(shape.count()), length.clone()] },
        { "$lte": [length, i64::from(shape.max_items())] },
        { "$isNumber": dollar(path::BYTES) },
        { "$allElementsTrue": [are_items] },
    ] };
    rawdoc! { "$expr": { "$not": [conditions] } }
}

/// The expression for whether an item's time lies between the bounds of its page, or need not.
fn is_within_bounds(shape: &BucketShape, time: &str) -> RawDocumentBuf {
    let time = format!("$$item.{}", shape.rename().stored(time));
    let is_date = rawdoc! { "$eq": [{ "$type": time.as_str() }, "date"] };
    let within = rawdoc! { "$and": [
        is_date,
        { "$gte": [time.as_str(), dollar(path::FROM)] },
        { "$lte": [time.as_str(), dollar(path::TO)] },
    ] };
    rawdoc! { "$or": [{ "$eq": [{ "$type": dollar(path::FROM) }, "minKey"] }, within] }
}

/// The stages that give each document's `_id`, its length as `bytes` and whether it has a `control`, in the
/// order that a [`Walk`](super::AdoptionScan) takes them: by key; pages by number, and buckets without one
/// behind them, by their first time and their `_id`.
#[must_use]
pub fn order(shape: &BucketShape) -> Vec<RawDocumentBuf> {
    let page = dollar(path::PAGE);
    let is_numbered = rawdoc! { "$isNumber": page.as_str() };
    let mut fields = rawdoc! {
        "bytes": { "$bsonSize": "$$ROOT" },
        "control": { "$ne": [{ "$type": dollar(BucketShape::CONTROL) }, "missing"] },
        "page": { "$cond": [is_numbered, page.as_str(), i64::MAX] },
    };
    let mut sort = RawDocumentBuf::new();
    for (position, field) in shape.key().iter().enumerate() {
        let (name, field) = (format!("key{position}"), dollar(field));
        // An array, which no page has there, would be sorted by its elements, and two of them not at all.
        put(
            &mut fields,
            &name,
            rawdoc! { "$cond": [{ "$isArray": [field.as_str()] }, "array", field.as_str()] },
        );
        put(&mut sort, &name, 1);
    }
    if let Some(time) = shape.time() {
        put(&mut fields, "time", first_time(shape, time));
    }
    for name in ["page", "time", "_id"] {
        put(&mut sort, name, 1);
    }
    vec![
        single("$project", &fields),
        single("$sort", &sort),
        single("$project", rawdoc! { "bytes": 1, "control": 1 }),
    ]
}

fn first_time(shape: &BucketShape, time: &str) -> RawDocumentBuf {
    let time = format!("$$item.{}", shape.rename().stored(time));
    let times = rawdoc! { "$map": { "input": array(shape), "as": "item", "in": time } };
    let is_date = rawdoc! { "$eq": [{ "$type": "$$time" }, "date"] };
    rawdoc! { "$first": { "$filter": { "input": times, "as": "time", "cond": is_date } } }
}

/// The stages that find `_id`s which items of two buckets have, `limit` of them: the `_id` as `_id`, and of
/// two such buckets theirs as `first` and `last`.
#[must_use]
pub fn doubled_ids(shape: &BucketShape, limit: i32) -> Vec<RawDocumentBuf> {
    let group = rawdoc! { "_id": "$id", "first": { "$first": "$_id" }, "last": { "$last": "$_id" } };
    vec![
        single("$project", single("id", dollar(&index::item_id_path(shape)))),
        single("$unwind", "$id"),
        single("$group", &group),
        // The items of a bucket come one behind the other.
        single("$match", rawdoc! { "$expr": { "$ne": ["$first", "$last"] } }),
        single("$limit", limit),
    ]
}

/// The array of items; an empty one where there is none.
fn array(shape: &BucketShape) -> RawDocumentBuf {
    let items = dollar(shape.items());
    rawdoc! { "$cond": [{ "$isArray": [items.as_str()] }, items.as_str(), []] }
}

fn dollar(path: &str) -> String {
    format!("${path}")
}
