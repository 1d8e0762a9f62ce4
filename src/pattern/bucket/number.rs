//! One canonical type for numbers that MongoDB compares as equal.
//!
//! Rules of the server's `compareNumbers` (`src/mongo/base/compare_numbers.h`): numbers of all
//! types compare by value. A double is compared with a decimal after rounding to 34 digits. All NaN
//! are equal, and so are both zeros.

use std::cmp::{Ordering, Reverse};

use bson::Decimal128;
use bson::raw::{RawBson, RawBsonRef};

/// 2^63, the first whole double beyond the range of `i64`.
const BEYOND_I64: f64 = 9_223_372_036_854_775_808.0;

/// Whether a value is a NaN of either type.
pub(super) fn is_nan(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Double(number) => number.is_nan(),
        RawBsonRef::Decimal128(number) => number.to_string() == "NaN",
        _ => false,
    }
}

/// A whole number in its canonical type: the narrowest that holds it.
pub(super) fn whole(number: i64) -> RawBson {
    i32::try_from(number).map_or(RawBson::Int64(number), RawBson::Int32)
}

/// A double in its canonical type: whole numbers as such, one NaN.
pub(super) fn double(number: f64) -> RawBson {
    if number.is_nan() {
        return RawBson::Double(f64::NAN);
    }
    if number.fract() == 0.0 && (-BEYOND_I64..BEYOND_I64).contains(&number) {
        #[expect(clippy::cast_possible_truncation, reason = "whole and in range, so exact")]
        return whole(number as i64);
    }
    RawBson::Double(number)
}

/// A decimal in its canonical type: the whole number or the double that is equal to it, else a
/// decimal without trailing zeros.
pub(super) fn decimal(number: Decimal128) -> RawBson {
    let text = number.to_string();
    let nearest: f64 = text.parse().unwrap_or(f64::NAN);
    let Some(scientific) = Scientific::parse(&text) else {
        return double(nearest); // NaN and the infinities
    };
    if let Some(number) = scientific.as_whole() {
        return whole(number);
    }
    // A decimal has this many digits, and Rust prints a double exactly.
    if nearest.is_finite() && Scientific::parse(&format!("{nearest:.33e}")).as_ref() == Some(&scientific) {
        return double(nearest);
    }
    RawBson::Decimal128(scientific.to_string().parse().unwrap_or(number))
}

/// The order of two numbers of any types. NaN is less than every other number.
pub(super) fn compare(one: RawBsonRef<'_>, other: RawBsonRef<'_>) -> Ordering {
    Position::of(one).cmp(&Position::of(other))
}

/// The power of ten of the first digit, and the digits as those of a number with [`Scientific::MAX_DIGITS`].
type Magnitude = (i64, u128);

/// The position of a number among all numbers, in the order of the variants. It costs several allocations to
/// compute, and none to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Position {
    NotANumber,
    NegativeInfinity,
    Negative(Reverse<Magnitude>),
    Zero,
    Positive(Magnitude),
    Infinity,
}

impl Position {
    /// `None`: the value has no type of numbers.
    pub(super) fn of(value: RawBsonRef<'_>) -> Option<Self> {
        let text = match value {
            RawBsonRef::Int32(number) => number.to_string(),
            RawBsonRef::Int64(number) => number.to_string(),
            RawBsonRef::Double(number) => format!("{number:.33e}"),
            RawBsonRef::Decimal128(number) => number.to_string(),
            _ => return None,
        };
        Some(match Scientific::parse(&text) {
            Some(finite) if finite.digits.is_empty() => Self::Zero,
            Some(finite) if finite.negative => Self::Negative(Reverse(finite.magnitude())),
            Some(finite) => Self::Positive(finite.magnitude()),
            None if text.ends_with("NaN") => Self::NotANumber,
            None if text.starts_with('-') => Self::NegativeInfinity,
            None => Self::Infinity,
        })
    }
}

/// A decimal number as its digits and a power of ten, without leading or trailing zeros, so that
/// equal numbers are equal values.
#[derive(Debug, PartialEq, Eq)]
struct Scientific {
    negative: bool,
    /// Empty for zero.
    digits: String,
    /// The power of ten that the digits, read as a whole number, are multiplied by.
    exponent: i64,
}

impl Scientific {
    /// The most digits: those of a decimal. A double is printed with as many.
    const MAX_DIGITS: u32 = 34;

    /// Parses `-12.5E+3`. `None` if the text is not a finite number.
    fn parse(text: &str) -> Option<Self> {
        let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let exponent: i64 = exponent.parse().ok()?;
        let all = format!("{before}{after}");
        if all.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let digits = all.trim_start_matches('0').trim_end_matches('0').to_owned();
        if digits.is_empty() {
            return Some(Self {
                negative: false,
                digits,
                exponent: 0,
            });
        }
        let trailing = all.len().checked_sub(all.trim_end_matches('0').len())?;
        let shift = i64::try_from(trailing)
            .ok()?
            .checked_sub(i64::try_from(after.len()).ok()?)?;
        Some(Self {
            negative,
            digits,
            exponent: exponent.checked_add(shift)?,
        })
    }

    fn as_whole(&self) -> Option<i64> {
        if self.digits.is_empty() {
            return Some(0);
        }
        let power = 10_i128.checked_pow(u32::try_from(self.exponent).ok()?)?;
        let number = self.digits.parse::<i128>().ok()?.checked_mul(power)?;
        i64::try_from(if self.negative { number.checked_neg()? } else { number }).ok()
    }

    fn magnitude(&self) -> Magnitude {
        let length = u32::try_from(self.digits.len()).unwrap_or(u32::MAX);
        let digits: u128 = self.digits.parse().unwrap_or(u128::MAX);
        let padding = 10_u128.saturating_pow(Self::MAX_DIGITS.saturating_sub(length));
        let exponent = self.exponent.saturating_add(length.into());
        (exponent, digits.saturating_mul(padding))
    }
}

impl std::fmt::Display for Scientific {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.negative { "-" } else { "" };
        let digits = if self.digits.is_empty() { "0" } else { &self.digits };
        write!(f, "{sign}{digits}E{}", self.exponent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_decimal(text: &str, expected: &RawBson) {
        assert_eq!(&decimal(text.parse().unwrap()), expected, "{text}");
    }

    #[test]
    fn decimals_become_the_number_they_equal() {
        check_decimal("1", &RawBson::Int32(1));
        check_decimal("1.00", &RawBson::Int32(1));
        check_decimal("-0", &RawBson::Int32(0));
        check_decimal("1E+3", &RawBson::Int32(1000));
        check_decimal("9223372036854775807", &RawBson::Int64(i64::MAX));
        check_decimal("-9223372036854775808", &RawBson::Int64(i64::MIN));
        check_decimal("9223372036854775808", &RawBson::Double(BEYOND_I64));
        check_decimal("1.5", &RawBson::Double(1.5));
        check_decimal("0.1000000000000000055511151231257827", &RawBson::Double(0.1));
        check_decimal("Infinity", &RawBson::Double(f64::INFINITY));
        check_decimal("-Infinity", &RawBson::Double(f64::NEG_INFINITY));
        check_decimal("0.1", &RawBson::Decimal128("0.1".parse().unwrap()));
    }

    #[test]
    fn decimals_lose_trailing_zeros() {
        let canonical = |text: &str| decimal(text.parse().unwrap());
        assert_eq!(canonical("0.10"), canonical("0.1"));
        assert_eq!(canonical("1.10E+2"), RawBson::Int32(110));
        assert_ne!(canonical("0.1"), canonical("0.2"));
        assert!(matches!(canonical("NaN"), RawBson::Double(number) if number.is_nan()));
    }

    #[test]
    fn numbers_of_all_types_have_one_order() {
        let decimal = |text: &str| RawBson::Decimal128(text.parse().unwrap());
        let ascending = [
            decimal("NaN"),
            decimal("-Infinity"),
            decimal("-1E+40"),
            RawBson::Int64(i64::MIN),
            decimal("-2.5"),
            RawBson::Double(-2.25),
            decimal("-1E-10"),
            decimal("0"),
            decimal("0.099"),
            RawBson::Double(0.1),
            decimal("0.11"),
            RawBson::Int32(2),
            decimal("2.5"),
            decimal("12"),
            RawBson::Double(1e300),
            RawBson::Double(f64::INFINITY),
        ];
        for (place, one) in ascending.iter().enumerate() {
            for (other_place, other) in ascending.iter().enumerate() {
                let order = compare(one.as_raw_bson_ref(), other.as_raw_bson_ref());
                assert_eq!(order, place.cmp(&other_place), "{one:?} {other:?}");
            }
        }
        // The double is a little more than the decimal.
        let tenth = (decimal("0.1"), RawBson::Double(0.1));
        assert_eq!(
            compare(tenth.0.as_raw_bson_ref(), tenth.1.as_raw_bson_ref()),
            Ordering::Less
        );
    }

    #[test]
    fn doubles_become_whole_numbers() {
        assert_eq!(double(1.0), RawBson::Int32(1));
        assert_eq!(double(-0.0), RawBson::Int32(0));
        assert_eq!(double(4_294_967_296.0), RawBson::Int64(4_294_967_296));
        assert_eq!(double(BEYOND_I64), RawBson::Double(BEYOND_I64));
        assert_eq!(double(-BEYOND_I64), RawBson::Int64(i64::MIN));
        assert_eq!(double(0.5), RawBson::Double(0.5));
    }
}
