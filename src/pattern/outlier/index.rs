//! The indexes of the extras' collection.
//!
//! * pages: {reference, control.generation, control.from}, for the pages of a document in order.
//! * shape: contains no page. Its filter is the [shape marker](shape_marker) of the
//!   [fingerprint](OutlierShape::stored_as). The collection of base documents has only the
//!   application's indexes.

use bson::raw::{RawDocumentBuf, cstr};

use super::layout::path;
use crate::command::document::{put, single};
use crate::pattern::shape_marker;
use crate::pattern::shapes::OutlierShape;

/// Name of the index on pages.
pub const PAGES: &str = "mongoshape_extras";

/// The indexes of a shape, as in the `indexes` of a `createIndexes`.
#[must_use]
pub fn specs(shape: &OutlierShape) -> Vec<RawDocumentBuf> {
    vec![pages(shape), shape_marker::index(shape.stored_as())]
}

fn pages(shape: &OutlierShape) -> RawDocumentBuf {
    let mut key = single(shape.reference(), 1);
    put(&mut key, path::GENERATION, 1);
    put(&mut key, path::FROM, 1);
    let mut index = single("key", key);
    index.append(cstr!("name"), PAGES);
    index
}
