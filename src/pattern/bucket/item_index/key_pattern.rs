//! Names and key patterns in the specifications of indexes.

use bson::raw::{CStr, RawBsonRef, RawDocument};

use super::options::same_options;
use crate::command::document::{as_flag, as_whole_number, get};
use crate::pattern::shapes::BucketShape;

/// The name of the index on `_id`, which every collection has.
pub const ID: &str = "_id_";
/// A field of an index.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexedField {
    /// Its path in items.
    pub path: String,
    /// Its path in buckets.
    pub stored: String,
    /// Whether the index is ascending on the field.
    pub is_ascending: bool,
}

/// The name in a specification.
#[must_use]
pub fn name(spec: &RawDocument) -> &str {
    get(spec, "name").and_then(RawBsonRef::as_str).unwrap_or_default()
}

/// The key pattern in a specification. mongod refuses a specification without one; then this
/// returns the specification itself.
#[must_use]
pub fn key(spec: &RawDocument) -> &RawDocument {
    let key = get(spec, "key").and_then(RawBsonRef::as_document);
    key.unwrap_or(spec)
}

/// Whether a key pattern is that of the index on `_id`, in either direction
/// (`index_descriptor.cpp`).
#[must_use]
pub fn is_id_key(key: &RawDocument) -> bool {
    let number = get(key, "_id").and_then(as_whole_number);
    matches!(number, Some(1 | -1)) && key.iter().count() == 1
}

/// Whether the index clusters the collection. It is then the index on `_id`, whatever its name, and
/// is not in the index catalog.
#[must_use]
pub fn is_clustered(spec: &RawDocument) -> bool {
    get(spec, "clustered").and_then(as_flag).unwrap_or(false)
}

/// Whether the index is unique.
#[must_use]
pub fn is_unique(spec: &RawDocument) -> bool {
    get(spec, "unique").and_then(as_flag) == Some(true)
}

/// Whether mongod treats two specifications as the same index, whatever their names.
#[must_use]
pub fn same_index(one: &RawDocument, other: &RawDocument) -> bool {
    same_key(key(one), key(other)) && is_unique(one) == is_unique(other) && same_options(one, other)
}

/// Whether a stored path is a key field.
pub(super) fn is_key(shape: &BucketShape, stored: &str) -> bool {
    shape.key().iter().any(|field| field == stored)
}

/// Whether mongod treats two key patterns as the same. The order of fields matters, the type of a
/// number does not.
#[must_use]
pub fn same_key(one: &RawDocument, other: &RawDocument) -> bool {
    let same = |(one, other): (Field<'_>, Field<'_>)| match (one, other) {
        (Ok((name, value)), Ok((other_name, other_value))) => name == other_name && same_direction(value, other_value),
        _ => false,
    };
    one.iter().count() == other.iter().count() && one.iter().zip(other.iter()).all(same)
}

/// A field as a document's iterator returns it.
type Field<'a> = Result<(&'a CStr, RawBsonRef<'a>), bson::error::Error>;

fn same_direction(one: RawBsonRef<'_>, other: RawBsonRef<'_>) -> bool {
    match (as_number(one), as_number(other)) {
        #[expect(clippy::float_cmp, reason = "equal is what mongod asks, too")]
        (Some(one), Some(other)) => one == other,
        (None, None) => one == other,
        _ => false,
    }
}

/// The value of a number of any type. `None` for other types.
pub(super) fn as_number(value: RawBsonRef<'_>) -> Option<f64> {
    match value {
        RawBsonRef::Double(number) => Some(number),
        RawBsonRef::Int32(number) => Some(f64::from(number)),
        #[expect(clippy::cast_precision_loss, reason = "a direction is 1 or -1 but for odd ones")]
        RawBsonRef::Int64(number) => Some(number as f64),
        RawBsonRef::Decimal128(number) => number.to_string().parse().ok(),
        _ => None,
    }
}
