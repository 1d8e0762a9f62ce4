//! The indexes of a bucket collection.
//!
//! * page: unique {key…, control.page}. No two pages of a key have the same number: concurrent
//!   writers depend on it.
//! * exceptions: {key…, control.page, count, control.late}, only of pages that position arithmetic
//!   must take into account.
//! * item id: {control.v, items._id}, unique with `item_ids = "unique"`, and not with `"unique_in_key"`. Partial,
//!   because empty pages would collide. The leading field makes the index readable backward from any
//!   `_id` ([decision](../../../docs/decisions/0028-an-index-is-read-a-bucket-at-a-time.md)). An
//!   earlier version created it [without that field](is_item_id_without_prefix).
//! * key and item id: unique {key…, items._id}, with `item_ids = "unique_in_key"`. Partial, too.
//! * from: {key…, control.from}, and to: {key…, control.to}, if items have a time. A push usually
//!   changes only `to`, so with two indexes it changes one entry of one index, and `from` has its
//!   own order. Both are partial on a condition that every page satisfies: mongod uses them only
//!   for queries that [demand the condition](every_page). An entry that moves during a read along
//!   the index could be missed or read twice. Page scans handle that; a pipeline could not.
//! * shape: contains no page. Its filter is the [shape marker](shape_marker) of the
//!   [fingerprint](BucketShape::stored_as).

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::fence::is_fence;
use super::layout::{VERSION, path};
use crate::command::document::{as_flag, first_field, get, put, single};
use crate::pattern::shape_marker;
use crate::pattern::shapes::{BucketShape, ItemIds};

/// Name of the index on key and page number. A statement with this hint fails if the index is
/// missing.
pub const PAGE: &str = "mongoshape_page";
/// Name of the partial index of exceptions.
pub const EXCEPTIONS: &str = "mongoshape_exceptions";
/// Name of the index on the items' `_id`.
pub const ITEM_ID: &str = "mongoshape_item_id";
/// Name of the index on key and the items' `_id`.
pub const KEY_ITEM_ID: &str = "mongoshape_key_item_id";
/// Name of the index on key and lower time bound.
pub const FROM: &str = "mongoshape_from";
/// Name of the index on key and upper time bound.
pub const TO: &str = "mongoshape_to";

/// Whether an index of that name is the shape's own. The application does not see such an index.
#[must_use]
pub fn is_own(name: &str) -> bool {
    [PAGE, EXCEPTIONS, ITEM_ID, KEY_ITEM_ID, FROM, TO, shape_marker::INDEX].contains(&name) || is_fence(name)
}

/// The indexes of a shape, as in the `indexes` of a `createIndexes`.
#[must_use]
pub fn specs(shape: &BucketShape) -> Vec<RawDocumentBuf> {
    let mut specs = vec![page(shape), exceptions(shape)];
    if shape.item_ids().are_indexed() {
        specs.push(item_id(shape));
    }
    if shape.item_ids() == ItemIds::UniqueInKey {
        specs.push(key_item_id(shape));
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

/// The index on the items' `_id`.
#[must_use]
pub fn item_id(shape: &BucketShape) -> RawDocumentBuf {
    let mut key = single(path::VERSION, 1);
    put(&mut key, &item_id_path(shape), 1);
    let mut spec = named(ITEM_ID, &key);
    if shape.item_ids() == ItemIds::Unique {
        spec.append(cstr!("unique"), true);
    }
    spec.append(cstr!("partialFilterExpression"), has_items(shape));
    spec
}

fn key_item_id(shape: &BucketShape) -> RawDocumentBuf {
    let mut spec = named(KEY_ITEM_ID, &key_and(shape, &[&item_id_path(shape)]));
    spec.append(cstr!("unique"), true);
    spec.append(cstr!("partialFilterExpression"), has_items(shape));
    spec
}

/// The condition that a page with items satisfies. A query without a hint must contain it for mongod to use
/// the index on the items' `_id`.
#[must_use]
pub fn has_items(shape: &BucketShape) -> RawDocumentBuf {
    single(shape.count(), single("$gt", 0))
}

/// Whether a key pattern is that of an index of the shape on the items' `_id`, in its current form or in that of
/// an earlier version.
#[must_use]
pub fn is_item_id_key(shape: &BucketShape, key: &RawDocument) -> bool {
    let path = item_id_path(shape);
    let names: Vec<&str> = key.iter().flatten().map(|(name, _)| name.as_str()).collect();
    match names.as_slice() {
        [version, id] if *version == path::VERSION => *id == path,
        [before @ .., id] if shape.item_ids() == ItemIds::UniqueInKey => *id == path && before == shape.key(),
        names => names == [&*path],
    }
}

/// Whether a specification is the index on the items' `_id` of an earlier version: unique, sparse
/// {items._id}. It serves the same queries, except reads backward from an `_id`.
#[must_use]
pub fn is_item_id_without_prefix(shape: &BucketShape, spec: &RawDocument) -> bool {
    let is_set = |option| get(spec, option).and_then(as_flag) == Some(true);
    let key = get(spec, "key").and_then(RawBsonRef::as_document);
    let first = key.and_then(first_field).map(|(name, _)| name);
    let is_named = get(spec, "name").and_then(RawBsonRef::as_str) == Some(ITEM_ID);
    is_named && first == Some(&item_id_path(shape)) && is_set("unique") && is_set("sparse")
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
