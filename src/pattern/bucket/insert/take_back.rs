//! Taking back what an ordered command stored behind an item that was refused.
//!
//! An ordered command ends with its first failure, and what stands behind that is not stored. Items of other keys may have
//! been stored by then: only where another writer took an `_id` after it had been looked up, so hardly ever.

use bson::raw::{RawArrayBuf, RawBson, RawDocumentBuf, cstr};

use crate::command::document::{array_of, put, single};
use crate::pattern::bucket::index;
use crate::pattern::bucket::layout::path;
use crate::pattern::shapes::BucketShape;

/// The element of `updates` that takes items with these `_id`s out of a bucket. The page is closed by it: it may have been
/// full, and such a page takes no more. Its bounds of time stay as they were, which is wider than need be; nothing that
/// reads them asks for more.
#[must_use]
pub fn take_back(shape: &BucketShape, bucket: &RawBson, ids: &RawArrayBuf) -> RawDocumentBuf {
    let items = format!("${}", shape.items());
    let mut query = single("_id", single("$eq", bucket));
    put(&mut query, &index::item_id_path(shape), single("$in", ids));
    let taken = array_of_two("$$item._id", &single("$literal", ids));
    let kept = single("$not", single("$in", &taken));
    let kept = over(&items, "cond", &kept);
    let lengths = over(&items, "in", &single("$bsonSize", "$$item"));
    let mut counted = single(shape.count(), single("$size", items.as_str()));
    put(&mut counted, path::BYTES, single("$sum", single("$map", &lengths)));
    put(&mut counted, path::EXCEPTION, true);
    put(&mut counted, path::SHORT, true);
    let stages = [
        single("$set", single(shape.items(), single("$filter", &kept))),
        single("$set", &counted),
    ];
    let mut statement = RawDocumentBuf::new();
    statement.append(cstr!("q"), &query);
    statement.append(cstr!("u"), array_of(&stages));
    statement
}

/// Arguments of `$filter` and of `$map` over the items.
fn over(items: &str, argument: &str, expression: &RawDocumentBuf) -> RawDocumentBuf {
    let mut arguments = single("input", items);
    put(&mut arguments, "as", "item");
    put(&mut arguments, argument, expression);
    arguments
}

fn array_of_two(first: &str, second: &RawDocumentBuf) -> RawArrayBuf {
    let mut array = RawArrayBuf::new();
    array.push(first);
    array.push(second);
    array
}
