//! Indexes that depend on all elements of the array, while mongod indexes only those of the base document.

use bson::raw::{RawBsonRef, RawDocument};

use super::classify::{depends_on_array, names_own};
use crate::command::document::{as_flag, get, single};
use crate::pattern::shapes::OutlierShape;
use crate::pattern::unsupported::Unsupported;

/// The reason why an outlier collection cannot have an index. `None`: the index is correct.
#[must_use]
pub fn unsupported(shape: &OutlierShape, index: &RawDocument) -> Option<Unsupported> {
    let kind = kind(shape, index)?;
    Some(format!("{kind} on {}", shape.array()).into())
}

/// Whether the value of an expression may depend on the array.
#[must_use]
pub fn sees_array(shape: &OutlierShape, expression: &RawDocument) -> bool {
    depends_on_array(shape, expression) || names_own(shape, RawBsonRef::Document(expression))
}

fn kind(shape: &OutlierShape, index: &RawDocument) -> Option<&'static str> {
    let document = |name| get(index, name).and_then(RawBsonRef::as_document);
    let key = document("key")?;
    let is = |name| get(index, name).and_then(as_flag) == Some(true);
    let is_text = |(name, value): (&str, RawBsonRef<'_>)| {
        value == RawBsonRef::String("text") && (name == "$**" || sees_array(shape, &single(name, 1)))
    };
    let fields: Vec<_> = key
        .iter()
        .flatten()
        .map(|(name, value)| (name.as_str(), value))
        .collect();
    // An index on the array itself contains every document that has the array, whatever its
    // elements.
    let is_of_elements = fields
        .iter()
        .any(|(name, _)| *name != shape.array() && sees_array(shape, &single(name, 1)));
    if (is("unique") || is("prepareUnique")) && sees_array(shape, key) {
        Some("a unique index")
    } else if fields.into_iter().any(is_text) || document("weights").is_some_and(|weights| sees_array(shape, weights)) {
        Some("a text index")
    } else if is("sparse") && is_of_elements {
        Some("a sparse index")
    } else if get(index, "expireAfterSeconds").is_some() && sees_array(shape, key) {
        Some("a TTL index")
    } else if document("partialFilterExpression").is_some_and(|partial| sees_array(shape, partial)) {
        Some("a partial index that depends")
    } else {
        None
    }
}
