//! The lifted key: its canonical type, the key fields that items keep, and its text.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::{items, value};
use crate::shape::Shape;

/// Bytes that are equal for buckets of one key: the lifted values are canonical, which [`check`] checks.
pub(super) fn identity(bucket: &RawDocument, shape: &Shape) -> Vec<u8> {
    let values = shape
        .key
        .iter()
        .map(|field| value(bucket, field).unwrap_or(RawBsonRef::Null));
    values.collect::<RawArrayBuf>().as_bytes().to_vec()
}

pub(super) fn check(bucket: &RawDocument, shape: &Shape, report: &mut impl FnMut(String)) {
    for field in &shape.key {
        let lifted = value(bucket, field);
        match lifted {
            Some(RawBsonRef::Null) => report(format!("{field} is lifted as null, not absent")),
            Some(RawBsonRef::Array(_)) => report(format!("{field} is lifted as an array")),
            Some(value) if !is_canonical(value) => {
                report(format!(
                    "{field} is lifted as {value:?}, which is not its canonical type"
                ));
            }
            _ => {}
        }
        for (position, item) in items(bucket, shape).into_iter().enumerate() {
            match (value(item, field), lifted) {
                (Some(own), Some(lifted)) if bytes(own) == bytes(lifted) => {
                    report(format!("item {position} keeps a {field} that is the lifted one"));
                }
                (Some(own), None) if own != RawBsonRef::Null => {
                    report(format!(
                        "item {position} has the {field} {own:?} in the group of null and missing"
                    ));
                }
                (Some(RawBsonRef::Null), Some(_)) => {
                    report(format!("item {position} has no {field}, and its page has"));
                }
                _ => {}
            }
        }
    }
}

fn bytes(value: RawBsonRef<'_>) -> Vec<u8> {
    let mut document = RawDocumentBuf::new();
    document.append(bson::raw::cstr!(""), value);
    document.into_bytes()
}

/// A whole number is an int32 where it fits, else an int64 where it fits; a decimal is one only if no other
/// type holds it.
fn is_canonical(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Int64(number) => i32::try_from(number).is_err(),
        RawBsonRef::Double(number) => number.is_nan() || number.fract() != 0.0 || !(-9.2e18..9.2e18).contains(&number),
        RawBsonRef::Decimal128(number) => {
            let text = number.to_string();
            let digits = text.split(['E', 'e']).next().unwrap_or_default();
            let trailing_zero = digits.ends_with('0') || digits.ends_with('.');
            // Beyond the greatest exponent of its own, a decimal grows by zeros, and has no other form.
            let padded = text
                .split(['E', 'e'])
                .nth(1)
                .is_some_and(|exponent| exponent.parse().is_ok_and(|exponent: i32| exponent > 6111));
            let is_whole = text.parse::<i64>().is_ok();
            text.bytes().any(|byte| byte.is_ascii_digit()) && (!trailing_zero || padded) && !is_whole
        }
        RawBsonRef::Document(document) => document.iter().flatten().all(|(_, value)| is_canonical(value)),
        RawBsonRef::Array(array) => array.into_iter().flatten().all(is_canonical),
        _ => true,
    }
}

/// The key as it begins a bucket's `_id`; `None` for a type that only has to read as something, and for a
/// long one.
pub(super) fn text(bucket: &RawDocument, shape: &Shape) -> Option<String> {
    let texts = shape.key.iter().map(|field| {
        let text = match value(bucket, field) {
            None => "null".to_owned(),
            Some(RawBsonRef::String(text)) => text.to_owned(),
            Some(RawBsonRef::Int32(number)) => number.to_string(),
            Some(RawBsonRef::Int64(number)) => number.to_string(),
            Some(RawBsonRef::Boolean(flag)) => flag.to_string(),
            Some(RawBsonRef::ObjectId(id)) => id.to_hex(),
            _ => return None,
        };
        Some(text.replace('%', "%25").replace('_', "%5F"))
    });
    let text = texts.collect::<Option<Vec<_>>>()?.join("_");
    (text.len() <= 128 && !text.contains(char::is_control)).then_some(text)
}
