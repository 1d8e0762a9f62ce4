//! The indexes of a bucket collection.
//!
//! * page: unique {key…, control.page}. No two pages of a key have one number: this is what makes racing writers safe.
//! * exceptions: {key…, control.page, count, control.late}, only of buckets that position arithmetic must know of.
//! * item id: unique, sparse {items._id}, with `item_ids = "unique"`. Sparse, since emptied pages would collide.
//! * time: {key…, control.from, control.to}, where items have a time.

use bson::raw::{RawDocumentBuf, cstr};

use super::layout::path;
use crate::command::document::{put, single};
use crate::pattern::shapes::{BucketShape, ItemIds};

/// Name of the index on key and page number. A statement that names it as its hint fails where it is missing.
pub const PAGE: &str = "mongoshape_page";
/// Name of the partial index of exceptions.
pub const EXCEPTIONS: &str = "mongoshape_exceptions";
/// Name of the index on the items' `_id`.
pub const ITEM_ID: &str = "mongoshape_item_id";
/// Name of the index on key and time bounds.
pub const TIME: &str = "mongoshape_time";

/// The indexes of a shape, as the `indexes` of a `createIndexes` lists them.
#[must_use]
pub fn specs(shape: &BucketShape) -> Vec<RawDocumentBuf> {
    let mut specs = vec![page(shape), exceptions(shape)];
    if shape.item_ids() == ItemIds::Unique {
        specs.push(item_id(shape));
    }
    if shape.time().is_some() {
        specs.push(named(TIME, &key_and(shape, &[path::FROM, path::TO])));
    }
    specs
}

fn page(shape: &BucketShape) -> RawDocumentBuf {
    let mut spec = named(PAGE, &key_and(shape, &[path::PAGE]));
    spec.append(cstr!("unique"), true);
    spec
}

fn exceptions(shape: &BucketShape) -> RawDocumentBuf {
    let mut spec = named(EXCEPTIONS, &key_and(shape, &[path::PAGE, shape.count(), path::LATE]));
    spec.append(cstr!("partialFilterExpression"), single(path::EXCEPTION, true));
    spec
}

fn item_id(shape: &BucketShape) -> RawDocumentBuf {
    let mut spec = named(ITEM_ID, &single(&item_id_path(shape), 1));
    spec.append(cstr!("unique"), true);
    spec.append(cstr!("sparse"), true);
    spec
}

/// The stored path of the items' `_id`.
#[must_use]
pub fn item_id_path(shape: &BucketShape) -> String {
    format!("{}._id", shape.items())
}

fn named(name: &str, key: &RawDocumentBuf) -> RawDocumentBuf {
    let mut spec = RawDocumentBuf::new();
    spec.append(cstr!("key"), key);
    spec.append(cstr!("name"), name);
    spec
}

fn key_and(shape: &BucketShape, paths: &[&str]) -> RawDocumentBuf {
    let mut key = RawDocumentBuf::new();
    for field in shape.key().iter().map(String::as_str).chain(paths.iter().copied()) {
        put(&mut key, field, 1);
    }
    key
}
