//! Options of the application's indexes.

use bson::raw::{RawBsonRef, RawDocument};

use super::key_pattern::as_number;
use crate::command::document::{as_flag, get};

/// The option with the condition of a partial index.
pub(super) const PARTIAL: &str = "partialFilterExpression";

/// Whether a collation is the simple one.
#[must_use]
pub fn is_simple(collation: RawBsonRef<'_>) -> bool {
    let locale = collation.as_document().and_then(|collation| get(collation, "locale"));
    locale == Some(RawBsonRef::String("simple"))
}

/// Whether two specifications have the same options that distinguish indexes with the same key pattern
/// (`index_descriptor.cpp`). Their collations are complete.
pub(super) fn same_options(one: &RawDocument, other: &RawDocument) -> bool {
    let is_sparse = |spec| get(spec, "sparse").and_then(as_flag).unwrap_or(false);
    is_sparse(one) == is_sparse(other)
        && same(get(one, PARTIAL), get(other, PARTIAL))
        && same(collation(one), collation(other))
        && projected(one) == projected(other)
}

/// The collation of an index, unless it is the simple one.
pub(super) fn collation(spec: &RawDocument) -> Option<RawBsonRef<'_>> {
    get(spec, "collation").filter(|collation| !is_simple(*collation))
}

/// Whether two values are equal. As in a filter, numbers of different types are equal.
pub(super) fn same(one: Option<RawBsonRef<'_>>, other: Option<RawBsonRef<'_>>) -> bool {
    match (one, other) {
        (Some(RawBsonRef::Document(one)), Some(RawBsonRef::Document(other))) => same_fields(one, other),
        (Some(RawBsonRef::Array(one)), Some(RawBsonRef::Array(other))) => {
            one.into_iter().count() == other.into_iter().count()
                && one
                    .into_iter()
                    .zip(other)
                    .all(|(one, other)| same(one.ok(), other.ok()))
        }
        (Some(one), Some(other)) => one == other || as_number(one).is_some_and(|one| Some(one) == as_number(other)),
        (None, None) => true,
        _ => false,
    }
}

fn same_fields(one: &RawDocument, other: &RawDocument) -> bool {
    let mut fields = one.iter().flatten();
    let is_there = |name: &str, value| get(other, name).is_some_and(|found| same(Some(value), Some(found)));
    one.iter().count() == other.iter().count() && fields.all(|(name, value)| is_there(name.as_str(), value))
}

/// The paths of a `wildcardProjection`, sorted, with whether they are included. Its `_id` is excluded anyway.
fn projected(spec: &RawDocument) -> Vec<(&str, bool)> {
    let projection = get(spec, "wildcardProjection").and_then(RawBsonRef::as_document);
    let paths = projection.into_iter().flat_map(RawDocument::iter).flatten();
    let paths = paths.map(|(path, value)| (path.as_str(), as_flag(value).unwrap_or(true)));
    let mut paths: Vec<(&str, bool)> = paths.filter(|path| *path != ("_id", false)).collect();
    paths.sort_unstable();
    paths
}
