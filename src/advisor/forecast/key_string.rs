//! The bytes of index entries. mongod stores a key as bytes that sort like the values (`key_string.cpp`).
//!
//! Lengths and common beginnings are exact for the types that keys and times usually have. Decimals, regular
//! expressions and code are approximated.

use bson::raw::{RawBsonRef, RawDocument};

use crate::advisor::rounding::{count, real};
use crate::pattern::bucket::layout::VERSION;

/// Types, in their order. A whole number's byte is `ZERO` plus or minus its length.
const NULL: u8 = 20;
const UNDEFINED: u8 = 15;
const SMALL_NEGATIVE: u8 = 40;
const ZERO: u8 = 41;
const SMALL_POSITIVE: u8 = 42;
const LARGE: u8 = 51;
const STRING: u8 = 60;
const OBJECT: u8 = 70;
const ARRAY: u8 = 80;
const BINARY: u8 = 90;
const OBJECT_ID: u8 = 100;
const FALSE: u8 = 110;
const DATE: u8 = 120;
const TIMESTAMP: u8 = 130;
const OTHER: u8 = 140;
/// Ends the values.
const END: u8 = 4;
/// Doubles from here on are stored whole.
const BEYOND_WHOLE: f64 = 9_223_372_036_854_775_808.0;

/// The values of an index entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyString {
    bytes: Vec<u8>,
    /// Bits that record the types of values whose types compare as equal.
    type_bits: u32,
}

impl KeyString {
    /// Appends a value. `None`: the document does not have it.
    pub(super) fn push(&mut self, value: Option<RawBsonRef<'_>>) {
        match value {
            None | Some(RawBsonRef::Null) => self.bytes.push(NULL),
            Some(RawBsonRef::Undefined) => self.bytes.push(UNDEFINED),
            Some(RawBsonRef::Int32(number)) => self.push_whole(i64::from(number)),
            Some(RawBsonRef::Int64(number)) => {
                self.type_bits += 2;
                self.push_whole(number);
            }
            Some(RawBsonRef::Double(number)) => {
                self.type_bits += 2;
                self.push_double(number);
            }
            Some(RawBsonRef::String(text) | RawBsonRef::Symbol(text)) => {
                self.bytes.push(STRING);
                self.push_text(text);
            }
            Some(RawBsonRef::ObjectId(id)) => {
                self.bytes.push(OBJECT_ID);
                self.bytes.extend_from_slice(&id.bytes());
            }
            Some(RawBsonRef::Boolean(flag)) => self.bytes.push(FALSE + u8::from(flag)),
            Some(RawBsonRef::DateTime(time)) => {
                self.bytes.push(DATE);
                // The sign is inverted, so that negative numbers come first.
                let millis = time.timestamp_millis() ^ i64::MIN;
                self.bytes.extend_from_slice(&millis.to_be_bytes());
            }
            Some(RawBsonRef::Timestamp(time)) => {
                self.bytes.push(TIMESTAMP);
                self.bytes.extend_from_slice(&time.time.to_be_bytes());
                self.bytes.extend_from_slice(&time.increment.to_be_bytes());
            }
            Some(RawBsonRef::Binary(binary)) => {
                self.bytes.extend_from_slice(&[BINARY, 0, 0]);
                self.bytes.extend_from_slice(binary.bytes);
            }
            Some(RawBsonRef::Document(document)) => self.push_fields(OBJECT, document),
            Some(RawBsonRef::Array(array)) => {
                self.bytes.push(ARRAY);
                for element in array.into_iter().flatten() {
                    self.push(Some(element));
                }
                self.bytes.push(0);
            }
            Some(RawBsonRef::Decimal128(decimal)) => {
                self.type_bits += 2;
                self.bytes.push(LARGE);
                self.bytes.extend_from_slice(&decimal.bytes());
            }
            Some(_) => self.bytes.push(OTHER),
        }
    }

    /// The same values behind the layout version, with which the proxy begins some indexes.
    pub(super) fn behind_version(&self) -> Self {
        let mut behind = Self::default();
        behind.push(Some(RawBsonRef::Int32(VERSION)));
        behind.bytes.extend_from_slice(&self.bytes);
        behind.type_bits = self.type_bits;
        behind
    }

    /// Ends the values.
    pub(super) fn end(&mut self) {
        self.bytes.push(END);
    }

    /// The bytes of the values.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes that mongod stores for the types of numbers. 0 if all are int32.
    pub(super) fn type_bytes(&self) -> u64 {
        match self.type_bits {
            0 => 0,
            1..=7 => 1,
            bits => 1 + u64::from(bits.div_ceil(8)),
        }
    }

    fn push_fields(&mut self, kind: u8, document: &RawDocument) {
        self.bytes.push(kind);
        for (name, value) in document.iter().flatten() {
            // The type stands before the name, too.
            self.bytes.push(kind);
            self.push_text(name.as_str());
            self.push(Some(value));
        }
        self.bytes.push(0);
    }

    fn push_text(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
    }

    fn push_whole(&mut self, number: i64) {
        if number == 0 {
            self.bytes.push(ZERO);
        } else {
            // The lowest bit states that there is no fraction.
            self.push_magnitude(u128::from(number.unsigned_abs()) << 1, number < 0);
        }
    }

    fn push_double(&mut self, number: f64) {
        let magnitude = number.abs();
        if magnitude.is_nan() || magnitude >= BEYOND_WHOLE {
            self.bytes.push(LARGE);
            self.bytes.extend_from_slice(&number.to_bits().to_be_bytes());
        } else if magnitude == 0.0 {
            self.bytes.push(ZERO);
        } else if magnitude < 1.0 {
            let kind = if number < 0.0 { SMALL_NEGATIVE } else { SMALL_POSITIVE };
            self.bytes.push(kind);
            self.bytes.extend_from_slice(&magnitude.to_bits().to_be_bytes());
        } else {
            self.push_above_one(number);
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the magnitude is below 2^63 and not negative"
    )]
    fn push_above_one(&mut self, number: f64) {
        let magnitude = number.abs();
        let whole = magnitude.trunc() as u64;
        let fraction = magnitude.fract();
        let has_fraction = fraction > 0.0;
        let before = self.bytes.len();
        self.push_magnitude(u128::from(whole) << 1 | u128::from(has_fraction), number < 0.0);
        if has_fraction {
            // The number takes nine bytes together with its type.
            let rest = 9_usize.saturating_sub(self.bytes.len() - before);
            let scaled = fraction * real(1_u64.checked_shl(u32::try_from(8 * rest).unwrap_or(0)).unwrap_or(0));
            let bytes = (scaled as u64).to_be_bytes();
            self.bytes.extend_from_slice(bytes.get(8 - rest..).unwrap_or_default());
        }
    }

    fn push_magnitude(&mut self, magnitude: u128, is_negative: bool) {
        let bytes = magnitude.to_be_bytes();
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let significant = bytes.get(zeros..).unwrap_or_default();
        let length = u8::try_from(significant.len()).unwrap_or(0);
        if is_negative {
            self.bytes.push(SMALL_NEGATIVE.saturating_sub(length));
            self.bytes.extend(significant.iter().map(|byte| !byte));
        } else {
            self.bytes.push(SMALL_POSITIVE.saturating_add(length));
            self.bytes.extend_from_slice(significant);
        }
    }
}

/// The bytes of a record's number, which stands at the end of an entry. Its length is in the first and in the
/// last three bits.
pub(super) fn record(number: u64) -> Vec<u8> {
    let middle = (0..7).find(|middle| number >> (10 + 8 * middle) == 0).unwrap_or(7);
    let length = count(middle);
    let shifted = u128::from(number) << 3 | u128::from(length) | u128::from(length) << (13 + 8 * length);
    let bytes = shifted.to_be_bytes();
    bytes.get(bytes.len() - 2 - middle..).unwrap_or_default().to_vec()
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{DateTime, rawdoc};

    use super::*;

    fn of(document: &RawDocument) -> KeyString {
        let mut key = KeyString::default();
        key.push(document.iter().flatten().next().map(|(_, value)| value));
        key
    }

    #[test]
    fn values_have_mongods_lengths() {
        let check = |document: &RawDocument, length: usize, type_bytes: u64| {
            let key = of(document);
            assert_eq!(
                (key.bytes().len(), key.type_bytes()),
                (length, type_bytes),
                "{document:?}"
            );
        };
        check(&rawdoc! {}, 1, 0);
        check(&rawdoc! { "a": 0 }, 1, 0);
        check(&rawdoc! { "a": 63 }, 2, 0);
        check(&rawdoc! { "a": 127 }, 2, 0);
        check(&rawdoc! { "a": 128 }, 3, 0);
        check(&rawdoc! { "a": -70_000 }, 4, 0);
        check(&rawdoc! { "a": 7_i64 }, 2, 1);
        check(&rawdoc! { "a": 7.0 }, 2, 1);
        check(&rawdoc! { "a": 7.5 }, 9, 1);
        check(&rawdoc! { "a": 0.5 }, 9, 1);
        check(&rawdoc! { "a": f64::INFINITY }, 9, 1);
        check(&rawdoc! { "a": "text" }, 6, 0);
        check(&rawdoc! { "a": ObjectId::from_bytes([1; 12]) }, 13, 0);
        check(&rawdoc! { "a": DateTime::from_millis(5) }, 9, 0);
    }

    #[test]
    fn keys_sort_like_their_values() {
        let ascending = [
            rawdoc! { "a": null },
            rawdoc! { "a": -300 },
            rawdoc! { "a": -2.5 },
            rawdoc! { "a": -2 },
            rawdoc! { "a": 0 },
            rawdoc! { "a": 0.25 },
            rawdoc! { "a": 2.5 },
            rawdoc! { "a": 2.75 },
            rawdoc! { "a": 300 },
            rawdoc! { "a": "a" },
            rawdoc! { "a": "ab" },
            rawdoc! { "a": true },
            rawdoc! { "a": DateTime::from_millis(-5) },
            rawdoc! { "a": DateTime::from_millis(5) },
        ];
        assert!(ascending.is_sorted_by_key(|document| of(document).bytes().to_vec()));
    }

    #[test]
    fn a_record_takes_two_bytes_and_more() {
        let lengths = [1, 1023, 1024, 262_143, 262_144].map(|number| record(number).len());
        assert_eq!(lengths, [2, 2, 3, 3, 4]);
        assert!(record(5) < record(6) && record(1023) < record(1024));
    }
}
