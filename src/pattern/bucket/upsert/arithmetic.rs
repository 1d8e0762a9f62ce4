//! `$inc`, `$mul` and `$bit` on numbers, except decimals. An int32 overflow becomes an int64, as in
//! mongod's `SafeNum`.

use bson::raw::{RawBson, RawBsonRef, RawDocument};

use super::UpsertError;

/// An operation on whole numbers, and on doubles.
struct Operation {
    whole: fn(i64, i64) -> Option<i64>,
    double: fn(f64, f64) -> f64,
}

/// The sum. `None` if it overflows the largest type.
pub(super) fn sum(one: RawBsonRef<'_>, other: RawBsonRef<'_>) -> Result<Option<RawBson>, UpsertError> {
    let sum = Operation {
        whole: i64::checked_add,
        double: |one, other| one + other,
    };
    sum.of(one, other)
}

/// The product. `None` if it overflows the largest type.
pub(super) fn product(one: RawBsonRef<'_>, other: RawBsonRef<'_>) -> Result<Option<RawBson>, UpsertError> {
    let product = Operation {
        whole: i64::checked_mul,
        double: |one, other| one * other,
    };
    product.of(one, other)
}

impl Operation {
    fn of(&self, one: RawBsonRef<'_>, other: RawBsonRef<'_>) -> Result<Option<RawBson>, UpsertError> {
        let whole = |one: i64, other: i64| (self.whole)(one, other);
        Ok(match (one, other) {
            (RawBsonRef::Int32(one), RawBsonRef::Int32(other)) => whole(one.into(), other.into())
                .map(|number| i32::try_from(number).map_or(RawBson::Int64(number), RawBson::Int32)),
            (RawBsonRef::Double(_), _) | (_, RawBsonRef::Double(_)) => {
                Some(RawBson::Double((self.double)(as_double(one)?, as_double(other)?)))
            }
            _ => whole(as_whole(one)?, as_whole(other)?).map(RawBson::Int64),
        })
    }
}

/// Applies the operations of a `$bit` in order.
pub(super) fn bits(number: RawBsonRef<'_>, operations: &RawDocument) -> Result<RawBson, UpsertError> {
    let mut bits: RawBson = number.into();
    for (operation, operand) in operations.iter().flatten() {
        let (one, other) = (as_whole(bits.as_raw_bson_ref())?, as_whole(operand)?);
        let both = match operation.as_str() {
            "and" => one & other,
            "or" => one | other,
            "xor" => one ^ other,
            _ => return Err(not_simple()),
        };
        bits = match (&bits, operand, i32::try_from(both)) {
            (RawBson::Int32(_), RawBsonRef::Int32(_), Ok(both)) => RawBson::Int32(both),
            _ => RawBson::Int64(both),
        };
    }
    Ok(bits)
}

fn as_whole(value: RawBsonRef<'_>) -> Result<i64, UpsertError> {
    match value {
        RawBsonRef::Int32(number) => Ok(number.into()),
        RawBsonRef::Int64(number) => Ok(number),
        _ => Err(not_simple()),
    }
}

fn as_double(value: RawBsonRef<'_>) -> Result<f64, UpsertError> {
    match value {
        RawBsonRef::Double(number) => Ok(number),
        #[expect(clippy::cast_precision_loss, reason = "as mongod does it")]
        _ => Ok(as_whole(value)? as f64),
    }
}

fn not_simple() -> UpsertError {
    UpsertError::unsupported("an upsert that computes with decimals, or with values that are not numbers")
}
