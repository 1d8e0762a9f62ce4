//! Compares values of types with a simple order.

use std::cmp::Ordering;

use bson::raw::RawBsonRef;

use super::UpsertError;
use crate::command::document::single;
use crate::pattern::bucket::key::canonical;
use crate::pattern::bucket::value_order;

/// Whether mongod compares two values as equal.
pub(super) fn equal(one: RawBsonRef<'_>, other: RawBsonRef<'_>) -> Result<bool, UpsertError> {
    Ok(identity(one)? == identity(other)?)
}

/// Bytes that are the same for two values if and only if the values are equal.
pub(super) fn identity(value: RawBsonRef<'_>) -> Result<Vec<u8>, UpsertError> {
    check(value)?;
    Ok(single("", canonical(value)).into_bytes())
}

/// Refuses types that compare equal to other types, or have special rules.
fn check(value: RawBsonRef<'_>) -> Result<(), UpsertError> {
    match value {
        RawBsonRef::Symbol(_)
        | RawBsonRef::Undefined
        | RawBsonRef::DbPointer(_)
        | RawBsonRef::JavaScriptCodeWithScope(_) => Err(not_compared()),
        RawBsonRef::Document(document) => document.iter().flatten().try_for_each(|(_, value)| check(value)),
        RawBsonRef::Array(array) => array.into_iter().flatten().try_for_each(check),
        _ => Ok(()),
    }
}

/// The order of two values in mongod.
pub(super) fn order(one: RawBsonRef<'_>, other: RawBsonRef<'_>) -> Result<Ordering, UpsertError> {
    value_order::compare(one, other).ok_or_else(not_compared)
}

fn not_compared() -> UpsertError {
    UpsertError::unsupported("an upsert that compares values of these types")
}
