//! The indexes of a bucket collection.
//!
//! * page: unique {key…, control.page}. No two pages of a key have the same number: concurrent
//!   writers depend on it.
//! * exceptions: {key…, control.page, count, control.late}, only of pages that position arithmetic
//!   must take into account.
//! * item id: unique, sparse {items._id}, with `item_ids = "unique"`. Sparse, because empty pages
//!   would collide.
//! * from: {key…, control.from}, and to: {key…, control.to}, if items have a time. A push usually
//!   changes only `to`, so with two indexes it changes one entry of one index, and `from` has its
//!   own order. Both are partial on a condition that every page satisfies: mongod uses them only
//!   for queries that [demand the condition](every_page). An entry that moves during a read along
//!   the index could be missed or read twice. Page scans handle that; a pipeline could not.
//! * shape: contains no page. Its filter is the [shape marker](shape_marker) of the
//!   [fingerprint](BucketShape::stored_as).

use bson::raw::{RawDocumentBuf, cstr};

use super::fence::is_fence;
use super::layout::{VERSION, path};
use crate::command::document::{put, single};
use crate::pattern::shape_marker;
use crate::pattern::shapes::{BucketShape, ItemIds};

/// Name of the index on key and page number. A statement with this hint fails if the index is
/// missing.
pub const PAGE: &str = "mongoshape_page";
/// Name of the partial index of exceptions.
pub const EXCEPTIONS: &str = "mongoshape_exceptions";
/// Name of the index on the items' `_id`.
pub const ITEM_ID: &str = "mongoshape_item_id";
/// Name of the index on key and lower time bound.
pub const FROM: &str = "mongoshape_from";
/// Name of the index on key and upper time bound.
pub const TO: &str = "mongoshape_to";

/// Whether an index of that name is the shape's own. The application does not see such an index.
#[must_use]
pub fn is_own(name: &str) -> bool {
    [PAGE, EXCEPTIONS, ITEM_ID, FROM, TO, shape_marker::INDEX].contains(&name) || is_fence(name)
}

/// The indexes of a shape, as in the `indexes` of a `createIndexes`.
#[must_use]
pub fn specs(shape: &BucketShape) -> Vec<RawDocumentBuf> {
    let mut specs = vec![page(shape), exceptions(shape)];
    if shape.item_ids() == ItemIds::Unique {
        specs.push(item_id(shape));
    }
    if shape.time().is_some() {
        specs.push(bounds(shape, FROM, path::FROM));
        specs.push(bounds(shape, TO, path::TO));
    }
    specs.push(shape_marker::index(shape.stored_as()));
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

fn bounds(shape: &BucketShape, name: &str, path: &str) -> RawDocumentBuf {
    let mut spec = named(name, &key_and(shape, &[path]));
    spec.append(cstr!("partialFilterExpression"), every_page());
    spec
}

/// The condition that every page satisfies. A query must contain it for mongod to use an index on
/// time bounds.
#[must_use]
pub fn every_page() -> RawDocumentBuf {
    single(path::VERSION, VERSION)
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
