//! The stored paths of fields of items.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::geo_index::GeoKind;
use crate::command::document::put;
use crate::pattern::bucket::layout::path;
use crate::pattern::bucket::predicate_pushdown::key_position;
use crate::pattern::shapes::BucketShape;
use crate::pattern::unsupported::Unsupported;

/// The first field of most stored key patterns.
pub(super) const PREFIX: &str = path::VERSION;
/// The most fields of a key pattern.
pub(super) const MAX_FIELDS: usize = 32;

/// The stored paths of a key pattern, without a prefix.
pub(super) fn key_of_items(shape: &BucketShape, key: &RawDocument) -> Result<RawDocumentBuf, Unsupported> {
    let mut stored = RawDocumentBuf::new();
    for (path, value) in key.iter().flatten() {
        let path = path.as_str();
        if let RawBsonRef::String(kind) = value
            && GeoKind::of(value).is_none()
        {
            return Err(format!("a {kind} index").into());
        }
        let path = stored_path(shape, path);
        if is_place_in_page(shape, &path) {
            return Err("an index on a field whose name is a number (it would be a position in the page)".into());
        }
        put(&mut stored, &path, value);
    }
    Ok(stored)
}

/// Whether a stored path begins with a number inside the array of items. mongod takes the number
/// for the position of an element.
fn is_place_in_page(shape: &BucketShape, path: &str) -> bool {
    let inside = in_items(shape, path).filter(|_| key_position(shape, path).is_none());
    let root = inside.and_then(|inside| inside.split('.').next());
    root.is_some_and(|root| root.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The part of a path after the name of the array of items.
#[must_use]
pub fn in_items<'a>(shape: &BucketShape, path: &'a str) -> Option<&'a str> {
    path.strip_prefix(shape.items())?.strip_prefix('.')
}

/// The stored path of a path in items.
#[must_use]
pub fn stored_path(shape: &BucketShape, path: &str) -> String {
    if key_position(shape, path).is_some() {
        return path.to_owned();
    }
    let stored = with_root(path, |root| shape.rename().stored(root));
    format!("{}.{stored}", shape.items())
}

/// The path in items of a stored path.
pub(super) fn application_path(shape: &BucketShape, stored: &str) -> Option<String> {
    if key_position(shape, stored).is_some() {
        return Some(stored.to_owned());
    }
    let path = with_root(in_items(shape, stored)?, |root| shape.rename().item(root));
    // The index was created without the proxy: on a key field inside the items, where no item is
    // looked up.
    (stored_path(shape, &path) == stored).then_some(path)
}

fn with_root<'a>(path: &'a str, rename: impl FnOnce(&'a str) -> &'a str) -> String {
    match path.split_once('.') {
        Some((root, rest)) => format!("{}.{rest}", rename(root)),
        None => rename(path).to_owned(),
    }
}
