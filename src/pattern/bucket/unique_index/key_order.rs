//! The order of values in an index, without a collation (mongod's `KeyString`).
//!
//! mongod adds the keys of a document in this order. So the error of a second document names the first key
//! that another one has.

use std::cmp::Ordering;

use bson::raw::{RawArray, RawBinaryRef, RawBsonRef, RawDocument, RawRegexRef};

use crate::command::document::single;
use crate::pattern::bucket::{number, value_order};

/// The order of two values in their [canonical](crate::pattern::bucket::key::canonical) types.
pub(super) fn compare(one: RawBsonRef<'_>, other: RawBsonRef<'_>) -> Ordering {
    rank(one)
        .cmp(&rank(other))
        .then_with(|| compare_of_one_rank(one, other))
}

/// The position of a value's type.
fn rank(value: RawBsonRef<'_>) -> u8 {
    match value {
        RawBsonRef::MinKey => 10,
        RawBsonRef::Undefined => 15,
        RawBsonRef::Null => 20,
        RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Decimal128(_) => 30,
        RawBsonRef::String(_) | RawBsonRef::Symbol(_) => 60,
        RawBsonRef::Document(_) => 70,
        RawBsonRef::Array(_) => 80,
        RawBsonRef::Binary(_) => 90,
        RawBsonRef::ObjectId(_) => 100,
        RawBsonRef::Boolean(_) => 110,
        RawBsonRef::DateTime(_) => 120,
        RawBsonRef::Timestamp(_) => 130,
        RawBsonRef::RegularExpression(_) => 140,
        RawBsonRef::DbPointer(_) => 150,
        RawBsonRef::JavaScriptCode(_) => 160,
        RawBsonRef::JavaScriptCodeWithScope(_) => 170,
        RawBsonRef::MaxKey => 240,
    }
}

fn compare_of_one_rank(one: RawBsonRef<'_>, other: RawBsonRef<'_>) -> Ordering {
    match (one, other) {
        (RawBsonRef::Decimal128(_), _) | (_, RawBsonRef::Decimal128(_)) => number::compare(one, other),
        (RawBsonRef::Document(one), RawBsonRef::Document(other)) => documents(one, other),
        (RawBsonRef::Array(one), RawBsonRef::Array(other)) => arrays(one, other),
        (RawBsonRef::Binary(one), RawBsonRef::Binary(other)) => {
            let parts = |binary: RawBinaryRef<'_>| (binary.bytes.len(), u8::from(binary.subtype));
            parts(one).cmp(&parts(other)).then_with(|| one.bytes.cmp(other.bytes))
        }
        (RawBsonRef::RegularExpression(one), RawBsonRef::RegularExpression(other)) => regexes(one, other),
        (RawBsonRef::JavaScriptCode(one), RawBsonRef::JavaScriptCode(other)) => one.cmp(other),
        (RawBsonRef::JavaScriptCodeWithScope(one), RawBsonRef::JavaScriptCodeWithScope(other)) => {
            one.code.cmp(other.code).then_with(|| documents(one.scope, other.scope))
        }
        (one, other) => value_order::compare(one, other).unwrap_or_else(|| bytes(one).cmp(&bytes(other))),
    }
}

/// Documents are compared field by field: types, names, then values.
fn documents(one: &RawDocument, other: &RawDocument) -> Ordering {
    let mut others = other.iter().flatten();
    for (name, value) in one.iter().flatten() {
        let Some((other_name, other_value)) = others.next() else {
            return Ordering::Greater;
        };
        let order = rank(value)
            .cmp(&rank(other_value))
            .then_with(|| name.as_str().cmp(other_name.as_str()))
            .then_with(|| compare_of_one_rank(value, other_value));
        if order.is_ne() {
            return order;
        }
    }
    others.next().map_or(Ordering::Equal, |_| Ordering::Less)
}

fn arrays(one: &RawArray, other: &RawArray) -> Ordering {
    let mut others = other.into_iter().flatten();
    for value in one.into_iter().flatten() {
        let Some(other_value) = others.next() else {
            return Ordering::Greater;
        };
        let order = compare(value, other_value);
        if order.is_ne() {
            return order;
        }
    }
    others.next().map_or(Ordering::Equal, |_| Ordering::Less)
}

fn regexes(one: RawRegexRef<'_>, other: RawRegexRef<'_>) -> Ordering {
    let patterns = one.pattern.as_str().cmp(other.pattern.as_str());
    patterns.then_with(|| one.options.as_str().cmp(other.options.as_str()))
}

fn bytes(value: RawBsonRef<'_>) -> Vec<u8> {
    single("", value).into_bytes()
}
