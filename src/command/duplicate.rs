//! mongod's error for a second document with an `_id` that is taken.

use std::fmt::Write as _;

use bson::raw::{RawBsonRef, RawDocumentBuf, cstr};

use super::document::single;
use super::error::{ErrorCode, WriteError};
use super::namespace::Namespace;

/// The error of an insert whose `_id` another document of the namespace has.
#[must_use]
pub fn duplicate_id(namespace: Namespace<'_>, id: RawBsonRef<'_>) -> WriteError {
    let mut key = String::new();
    write_value(&mut key, id);
    let mut detail = RawDocumentBuf::new();
    detail.append(cstr!("keyPattern"), single("_id", 1));
    detail.append(cstr!("keyValue"), single("_id", id));
    let message = format!("E11000 duplicate key error collection: {namespace} index: _id_ dup key: {{ _id: {key} }}");
    WriteError {
        code: ErrorCode::DuplicateKey.number(),
        message,
        detail,
    }
}

/// Writes a value as mongod's `BSONElement::toString` does, for the types that are used as an `_id`. Writing to a string
/// cannot fail, so the results are dropped.
fn write_value(text: &mut String, value: RawBsonRef<'_>) {
    let _ = match value {
        RawBsonRef::String(string) => write!(text, "\"{string}\""),
        RawBsonRef::Int32(number) => write!(text, "{number}"),
        RawBsonRef::Int64(number) => write!(text, "{number}"),
        RawBsonRef::Double(number) if number.fract() == 0.0 && number.abs() < 1e15 => write!(text, "{number:.1}"),
        RawBsonRef::Double(number) => write!(text, "{number}"),
        RawBsonRef::Decimal128(number) => write!(text, "{number}"),
        RawBsonRef::Boolean(flag) => write!(text, "{flag}"),
        RawBsonRef::Null => write!(text, "null"),
        RawBsonRef::ObjectId(id) => write!(text, "ObjectId('{id}')"),
        RawBsonRef::DateTime(date) => write!(text, "new Date({})", date.timestamp_millis()),
        RawBsonRef::Timestamp(stamp) => write!(text, "Timestamp({}, {})", stamp.time, stamp.increment),
        RawBsonRef::Binary(binary) if binary.subtype == bson::spec::BinarySubtype::Uuid => {
            match binary.bytes.try_into() {
                Ok(bytes) => write!(text, "UUID(\"{}\")", bson::Uuid::from_bytes(bytes)),
                Err(_) => write!(text, "UUID()"),
            }
        }
        RawBsonRef::Binary(binary) => {
            let _ = write!(text, "BinData({}, ", u8::from(binary.subtype));
            for byte in binary.bytes {
                let _ = write!(text, "{byte:02X}");
            }
            write!(text, ")")
        }
        RawBsonRef::Document(document) => {
            let _ = write!(text, "{{ ");
            for (position, (name, value)) in document.iter().flatten().enumerate() {
                let _ = write!(text, "{}{name}: ", if position > 0 { ", " } else { "" });
                write_value(text, value);
            }
            write!(text, " }}")
        }
        RawBsonRef::MinKey => write!(text, "MinKey"),
        RawBsonRef::MaxKey => write!(text, "MaxKey"),
        other => write!(text, "{}", super::document::type_name(other)),
    };
}
