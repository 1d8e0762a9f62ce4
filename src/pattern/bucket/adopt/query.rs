//! Queries on a collection that may contain documents other than pages.

use bson::raw::RawDocumentBuf;
use bson::rawdoc;

use crate::command::document::{array_of, put, single};
use crate::pattern::bucket::index;
use crate::pattern::bucket::layout::{self, path};
use crate::pattern::shapes::BucketShape;

/// The filter for documents that are not pages of layout version 1, as far as a document shows by
/// itself. It matches documents of another version, with a wrong or too large number of items, with
/// elements that are not documents, or with items outside the recorded time bounds.
#[must_use]
pub fn foreign_documents(shape: &BucketShape) -> RawDocumentBuf {
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

/// The expression for whether an item's time is within the bounds of its page. True if the bounds
/// are open.
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

/// The stages that return each document's `_id`, its length as `bytes` and whether it has a
/// `control`, in the order that an [`AdoptionScan`](super::AdoptionScan) needs. The order is by
/// key. Within a key come pages by number, then buckets without a number by first time and `_id`.
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
        // No page has an array here. mongod would sort an array by its elements, and cannot sort by
        // two arrays at all.
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

/// The stages that find up to `limit` `_id`s that items of two buckets share. They return the
/// item's `_id` as `_id`, and the `_id`s of two such buckets as `first` and `last`.
#[must_use]
pub fn doubled_ids(shape: &BucketShape, limit: i32) -> Vec<RawDocumentBuf> {
    let group = rawdoc! { "_id": "$id", "first": { "$first": "$_id" }, "last": { "$last": "$_id" } };
    vec![
        single("$project", single("id", dollar(&index::item_id_path(shape)))),
        single("$unwind", "$id"),
        single("$group", &group),
        // `$unwind` emits the items of a bucket one after the other.
        single("$match", rawdoc! { "$expr": { "$ne": ["$first", "$last"] } }),
        single("$limit", limit),
    ]
}

/// The array of items. Empty if the field is not an array.
fn array(shape: &BucketShape) -> RawDocumentBuf {
    let items = dollar(shape.items());
    rawdoc! { "$cond": [{ "$isArray": [items.as_str()] }, items.as_str(), []] }
}

fn dollar(path: &str) -> String {
    format!("${path}")
}
