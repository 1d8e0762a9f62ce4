//! Taking back what an ordered command stored behind an item that was refused.
//!
//! An ordered command ends with its first failure, and what stands behind that is not stored. Items of other keys may have
//! been stored by then: only where another writer took an `_id` after it had been looked up, so hardly ever.

use bson::raw::{RawArrayBuf, RawBson, RawDocumentBuf, cstr};

use crate::command::document::{array_of, put, single};
use crate::pattern::bucket::expression::{call, field, literal};
use crate::pattern::bucket::index;
use crate::pattern::bucket::layout::{Bounds, path};
use crate::pattern::shapes::BucketShape;

/// The element of `updates` that takes items with these `_id`s out of a bucket. The page is closed by it: it may have been
/// full, and such a page takes no more.
#[must_use]
pub fn take_back(shape: &BucketShape, bucket: &RawBson, ids: &RawArrayBuf) -> RawDocumentBuf {
    let items = field(shape.items());
    let mut query = single("_id", single("$eq", bucket));
    put(&mut query, &index::item_id_path(shape), single("$in", ids));
    let taken = call("$in", "$$item._id", literal(ids));
    let kept = single("$not", &taken);
    let kept = over(&items, "cond", &kept);
    let lengths = over(&items, "in", &single("$bsonSize", "$$item"));
    let mut counted = single(shape.count(), single("$size", items.as_str()));
    put(&mut counted, path::BYTES, single("$sum", single("$map", &lengths)));
    put(&mut counted, path::EXCEPTION, true);
    put(&mut counted, path::SHORT, true);
    if let Some(time) = shape.time() {
        let time = format!("$$item.{}", shape.rename().stored(time));
        for (path, bound, undated) in [
            (path::FROM, "$min", Bounds::Open.from()),
            (path::TO, "$max", Bounds::Open.to()),
        ] {
            put(&mut counted, path, bound_of_times(&items, &time, (bound, undated)));
        }
    }
    let stages = [
        single("$set", single(shape.items(), single("$filter", &kept))),
        single("$set", &counted),
    ];
    let mut statement = RawDocumentBuf::new();
    statement.append(cstr!("q"), &query);
    statement.append(cstr!("u"), array_of(&stages));
    statement
}

/// The least or greatest of the items' times, with `undated` for what is no date; nothing where there are no items.
fn bound_of_times(items: &str, time: &str, (bound, undated): (&str, RawBson)) -> RawDocumentBuf {
    let is_date = call("$eq", "date", single("$type", time));
    let mut date = single("if", &is_date);
    put(&mut date, "then", time);
    put(&mut date, "else", undated);
    let times = single("$map", over(items, "in", &single("$cond", &date)));
    let bound = single(bound, &times);
    // Which leaves the field out.
    call("$ifNull", &bound, "$$REMOVE")
}

/// Arguments of `$filter` and of `$map` over the items.
fn over(items: &str, argument: &str, expression: &RawDocumentBuf) -> RawDocumentBuf {
    let mut arguments = single("input", items);
    put(&mut arguments, "as", "item");
    put(&mut arguments, argument, expression);
    arguments
}
