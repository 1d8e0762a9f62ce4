//! The order of BSON values (`canonicalizeBSONType`, `BSONElement::compareElements`), without a collation.

use std::cmp::Ordering;

use bson::raw::RawBsonRef;

/// 2^63, the first whole double beyond the range of `i64`.
const BEYOND_I64: f64 = 9_223_372_036_854_775_808.0;

/// The order of two values in mongod. `None` if both have the same rank and are documents, arrays,
/// decimals or of a type that equals another type.
#[must_use]
pub fn compare(one: RawBsonRef<'_>, other: RawBsonRef<'_>) -> Option<Ordering> {
    let (rank, other_rank) = (rank(one)?, self::rank(other)?);
    if rank != other_rank {
        return Some(rank.cmp(&other_rank));
    }
    match (one, other) {
        (RawBsonRef::String(one), RawBsonRef::String(other)) => Some(one.as_bytes().cmp(other.as_bytes())),
        (RawBsonRef::Boolean(one), RawBsonRef::Boolean(other)) => Some(one.cmp(&other)),
        (RawBsonRef::DateTime(one), RawBsonRef::DateTime(other)) => Some(one.cmp(&other)),
        (RawBsonRef::ObjectId(one), RawBsonRef::ObjectId(other)) => Some(one.bytes().cmp(&other.bytes())),
        (RawBsonRef::Timestamp(one), RawBsonRef::Timestamp(other)) => {
            Some((one.time, one.increment).cmp(&(other.time, other.increment)))
        }
        (RawBsonRef::Null | RawBsonRef::MinKey | RawBsonRef::MaxKey, _) => Some(Ordering::Equal),
        (one, other) => match (whole(one), whole(other)) {
            (Some(one), Some(other)) => Some(one.cmp(&other)),
            (Some(one), None) => Some(whole_with_double(one, double(other)?)),
            (None, Some(other)) => Some(whole_with_double(other, double(one)?).reverse()),
            (None, None) => Some(doubles(double(one)?, double(other)?)),
        },
    }
}

/// The position of a value's type in mongod's order of types. `None` for types that compare equal
/// to other types, and for types that the proxy does not compare.
#[must_use]
pub fn rank(value: RawBsonRef<'_>) -> Option<u8> {
    Some(match value {
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
        _ => return None,
    })
}

/// Whether a value can be compared with any other: both [`rank`] and [`compare`] return a result
/// for it.
#[must_use]
pub fn is_comparable(value: RawBsonRef<'_>) -> bool {
    compare(value, value).is_some()
}

fn whole(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(number) => Some(number.into()),
        RawBsonRef::Int64(number) => Some(number),
        _ => None,
    }
}

fn double(value: RawBsonRef<'_>) -> Option<f64> {
    value.as_f64()
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

/// Whether an equality with this value in a filter on buckets matches the pages of all items whose key field
/// equals it.
#[must_use]
pub fn is_simple(value: RawBsonRef<'_>) -> bool {
    matches!(
        value,
        RawBsonRef::Int32(_)
            | RawBsonRef::Int64(_)
            | RawBsonRef::Double(_)
            | RawBsonRef::String(_)
            | RawBsonRef::ObjectId(_)
            | RawBsonRef::Boolean(_)
            | RawBsonRef::DateTime(_)
    )
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering::{Equal, Greater, Less};

    use bson::{Bson, bson};

    use super::*;

    #[test]
    fn numbers_compare_by_value() {
        let check = |one: Bson, other: Bson, expected: Ordering| {
            let raw = |value: &Bson| bson::raw::RawBson::try_from(value.clone()).unwrap();
            let (left, right) = (raw(&one), raw(&other));
            let order = |one: &bson::raw::RawBson, other: &bson::raw::RawBson| {
                compare(one.as_raw_bson_ref(), other.as_raw_bson_ref()).unwrap()
            };
            assert_eq!(order(&left, &right), expected, "{one} {other}");
            assert_eq!(order(&right, &left), expected.reverse(), "{other} {one}");
        };
        check(bson!(1), bson!(1.0), Equal);
        check(bson!(-1), bson!(-1.5), Greater);
        check(bson!(i64::MAX), bson!(9_223_372_036_854_775_808.0), Less);
        check(bson!(i64::MAX), bson!(f64::INFINITY), Less);
        check(bson!(i64::MIN), bson!(f64::NEG_INFINITY), Greater);
        check(bson!(f64::NAN), bson!(i64::MIN), Less);
        check(bson!(f64::NAN), bson!(f64::NAN), Equal);
        check(bson!(0), bson!(-0.0), Equal);
        check(Bson::Null, bson!(1), Less);
        check(bson!("b"), bson!("ab"), Greater);
    }
}
