//! Compares values of types with a simple order.

use std::cmp::Ordering;

use bson::raw::RawBsonRef;

use super::UpsertError;
use crate::command::document::single;
use crate::pattern::bucket::key::canonical;

/// 2^63, the first whole double that no `i64` holds.
const BEYOND_I64: f64 = 9_223_372_036_854_775_808.0;

/// Whether two values are equal to mongod.
pub(super) fn equal(one: RawBsonRef<'_>, other: RawBsonRef<'_>) -> Result<bool, UpsertError> {
    Ok(identity(one)? == identity(other)?)
}

/// Bytes that equal values, and no others, have in common.
pub(super) fn identity(value: RawBsonRef<'_>) -> Result<Vec<u8>, UpsertError> {
    check(value)?;
    Ok(single("", canonical(value)).into_bytes())
}

/// Refuses types that equal others, or whose comparison is peculiar.
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

/// Which of two values comes first in mongod's order.
pub(super) fn order(one: RawBsonRef<'_>, other: RawBsonRef<'_>) -> Result<Ordering, UpsertError> {
    let (rank, other_rank) = (rank(one)?, self::rank(other)?);
    if rank != other_rank {
        return Ok(rank.cmp(&other_rank));
    }
    match (one, other) {
        (RawBsonRef::String(one), RawBsonRef::String(other)) => Ok(one.as_bytes().cmp(other.as_bytes())),
        (RawBsonRef::Boolean(one), RawBsonRef::Boolean(other)) => Ok(one.cmp(&other)),
        (RawBsonRef::DateTime(one), RawBsonRef::DateTime(other)) => Ok(one.cmp(&other)),
        (RawBsonRef::ObjectId(one), RawBsonRef::ObjectId(other)) => Ok(one.bytes().cmp(&other.bytes())),
        (RawBsonRef::Timestamp(one), RawBsonRef::Timestamp(other)) => {
            Ok((one.time, one.increment).cmp(&(other.time, other.increment)))
        }
        (RawBsonRef::Null | RawBsonRef::MinKey | RawBsonRef::MaxKey, _) => Ok(Ordering::Equal),
        (one, other) => match (whole(one), whole(other)) {
            (Some(one), Some(other)) => Ok(one.cmp(&other)),
            (Some(one), None) => Ok(whole_with_double(one, double(other)?)),
            (None, Some(other)) => Ok(whole_with_double(other, double(one)?).reverse()),
            (None, None) => Ok(doubles(double(one)?, double(other)?)),
        },
    }
}

/// The place of a value's type (`canonicalizeBSONType`).
fn rank(value: RawBsonRef<'_>) -> Result<u8, UpsertError> {
    Ok(match value {
        RawBsonRef::MinKey => 0,
        RawBsonRef::Null => 5,
        RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Decimal128(_) => 10,
        RawBsonRef::String(_) => 15,
        RawBsonRef::Document(_) => 20,
        RawBsonRef::Array(_) => 25,
        RawBsonRef::Binary(_) => 30,
        RawBsonRef::ObjectId(_) => 35,
        RawBsonRef::Boolean(_) => 40,
        RawBsonRef::DateTime(_) => 45,
        RawBsonRef::Timestamp(_) => 47,
        RawBsonRef::MaxKey => 127,
        _ => return Err(not_compared()),
    })
}

fn whole(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(number) => Some(number.into()),
        RawBsonRef::Int64(number) => Some(number),
        _ => None,
    }
}

fn double(value: RawBsonRef<'_>) -> Result<f64, UpsertError> {
    value.as_f64().ok_or_else(not_compared)
}

/// NaN is less than every number.
fn doubles(one: f64, other: f64) -> Ordering {
    one.partial_cmp(&other)
        .unwrap_or_else(|| other.is_nan().cmp(&one.is_nan()))
}

fn whole_with_double(whole: i64, double: f64) -> Ordering {
    if double.is_nan() || double < -BEYOND_I64 {
        return Ordering::Greater;
    }
    if double >= BEYOND_I64 {
        return Ordering::Less;
    }
    #[expect(clippy::cast_possible_truncation, reason = "in range, and the fraction is looked at")]
    let floor = double.floor() as i64;
    whole.cmp(&floor).then(doubles(0.0, double - double.floor()))
}

fn not_compared() -> UpsertError {
    UpsertError::unsupported("an upsert that compares values of such types")
}
