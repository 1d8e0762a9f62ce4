//! Values as text for messages.

use std::fmt::Write as _;

use bson::raw::{RawBsonRef, RawDocument};

use super::document::{first_field, get, type_name};

/// The most bytes of a document that mongod builds (`BSONObjMaxInternalSize`).
pub const MAX_OBJECT_BYTES: usize = (16 << 20) + (16 << 10);

/// mongod's message for a document of more than [`MAX_OBJECT_BYTES`].
#[must_use]
pub fn too_large_text(document: &RawDocument) -> String {
    let size = document.as_bytes().len();
    let first = first_field(document).map(|(name, value)| format!("{name}: {}", value_text(value)));
    let first = first.unwrap_or_default();
    format!(
        "BSONObj size: {size} (0x{size:X}) is invalid. Size must be between 0 and {MAX_OBJECT_BYTES}(16MB) First element: {first}"
    )
}

/// The most characters of an `_id` in a message. A longer one is cut.
const MAX_ID_CHARACTERS: usize = 200;

/// A value as in mongod's own messages.
#[must_use]
pub fn value_text(value: RawBsonRef<'_>) -> String {
    let mut text = String::new();
    write_value(&mut text, value);
    text
}

/// The `_id` of a document as text.
#[must_use]
pub fn id_text(document: &RawDocument) -> String {
    let text = get(document, "_id").map_or_else(|| "missing".to_owned(), value_text);
    match text.char_indices().nth(MAX_ID_CHARACTERS) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// Writes a value as mongod's `BSONElement::toString` does, for the types that are used as an
/// `_id`. Writing to a string cannot fail, so the results are ignored.
fn write_value(text: &mut String, value: RawBsonRef<'_>) {
    let _ = match value {
        RawBsonRef::String(string) => write!(text, "\"{string}\""),
        RawBsonRef::Int32(number) => write!(text, "{number}"),
        RawBsonRef::Int64(number) => write!(text, "{number}"),
        RawBsonRef::Double(number) if number.fract() == 0.0 && number.abs() < 1e15 => write!(text, "{number:.1}"),
        RawBsonRef::Double(number) if number.is_nan() => write!(text, "nan.0"),
        RawBsonRef::Double(number) if number.is_infinite() => write!(text, "{number}.0"),
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
        RawBsonRef::Document(document) if document.is_empty() => write!(text, "{{}}"),
        RawBsonRef::Document(document) => {
            let _ = write!(text, "{{ ");
            for (position, (name, value)) in document.iter().flatten().enumerate() {
                let _ = write!(text, "{}{name}: ", if position > 0 { ", " } else { "" });
                write_value(text, value);
            }
            write!(text, " }}")
        }
        RawBsonRef::Array(array) if array.is_empty() => write!(text, "[]"),
        RawBsonRef::Array(array) => {
            let _ = write!(text, "[ ");
            for (position, value) in array.into_iter().flatten().enumerate() {
                let _ = write!(text, "{}", if position > 0 { ", " } else { "" });
                write_value(text, value);
            }
            write!(text, " ]")
        }
        RawBsonRef::RegularExpression(regex) => write!(text, "/{}/{}", regex.pattern, regex.options),
        RawBsonRef::MinKey => write!(text, "MinKey"),
        RawBsonRef::MaxKey => write!(text, "MaxKey"),
        other => write!(text, "{}", type_name(other)),
    };
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::rawdoc;

    use super::*;

    #[test]
    fn ids_read_as_in_a_shell_and_are_cut() {
        assert_eq!(
            id_text(&rawdoc! { "_id": "123_1698335223", "k": 1 }),
            "\"123_1698335223\""
        );
        let id = ObjectId::from_bytes([7; 12]);
        assert_eq!(id_text(&rawdoc! { "_id": id }), "ObjectId('070707070707070707070707')");
        assert_eq!(id_text(&rawdoc! { "_id": { "a": 1 } }), "{ a: 1 }");
        assert_eq!(id_text(&rawdoc! {}), "missing");
        let long = id_text(&rawdoc! { "_id": "\u{e9}".repeat(300) });
        assert_eq!(long.chars().count(), MAX_ID_CHARACTERS + 3);
    }
}
