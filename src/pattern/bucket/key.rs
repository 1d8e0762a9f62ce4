//! An item's key: groups items, is part of a statement's filter, and gives the text in a page's
//! `_id`.

use std::fmt::Write as _;

use bson::Timestamp;
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::number;
use crate::command::document::{get, put, single, type_name};
use crate::command::error::{ErrorCode, WriteError};
use crate::pattern::shapes::BucketShape;

/// The most bytes of key text in a bucket's `_id`. Longer text is cut; a suffix keeps the `_id`
/// unique.
const MAX_TEXT_BYTES: usize = 128;
const EMPTY_TIMESTAMP: RawBsonRef<'_> = RawBsonRef::Timestamp(Timestamp { time: 0, increment: 0 });

/// The values that a bucket lifts out of its items, one for each key field, in their canonical
/// types. `None` stands for `null` and missing, which have no lifted field.
#[derive(Clone, Debug)]
pub struct Key {
    lifted: Vec<Option<RawBson>>,
}

impl Key {
    /// The key of an item.
    ///
    /// # Errors
    /// A value that cannot be a key.
    pub fn of(shape: &BucketShape, item: &RawDocument) -> Result<Self, WriteError> {
        Self::of_values(shape, |field| get(item, field))
    }

    /// The key of an item. `value` returns the value of a field by its name.
    ///
    /// # Errors
    /// A value that cannot be a key.
    pub fn of_values<'a>(
        shape: &BucketShape,
        value: impl Fn(&str) -> Option<RawBsonRef<'a>>,
    ) -> Result<Self, WriteError> {
        let fields = shape.key().iter();
        let lifted = fields
            .map(|field| lift(field, value(field)))
            .collect::<Result<_, _>>()?;
        Ok(Self { lifted })
    }

    /// The lifted value of each key field.
    #[must_use]
    pub fn lifted(&self) -> &[Option<RawBson>] {
        &self.lifted
    }

    /// Bytes that are equal for two keys if and only if MongoDB compares the keys as equal.
    #[must_use]
    pub fn identity(&self) -> Vec<u8> {
        let values = self
            .lifted
            .iter()
            .map(|value| value.as_ref().map_or(RawBsonRef::Null, RawBson::as_raw_bson_ref));
        values.collect::<RawArrayBuf>().as_bytes().to_vec()
    }

    /// Appends an equality for every key field, which only this key's buckets match.
    pub fn append_filter(&self, shape: &BucketShape, filter: &mut RawDocumentBuf) {
        for (field, value) in shape.key().iter().zip(&self.lifted) {
            match value {
                // `$eq`, because a document or a regular expression would be interpreted otherwise.
                Some(value) => put(filter, field, single("$eq", value)),
                None => put(filter, field, RawBson::Null),
            }
        }
    }

    /// The filter that only this key's buckets match.
    #[must_use]
    pub fn filter(&self, shape: &BucketShape) -> RawDocumentBuf {
        let mut filter = RawDocumentBuf::new();
        self.append_filter(shape, &mut filter);
        filter
    }

    /// The key's text in a bucket's `_id`: `_` and `%` percent-encoded, fields joined by `_`.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (position, value) in self.lifted.iter().enumerate() {
            if position > 0 {
                text.push('_');
            }
            for character in value_text(value.as_ref()).chars() {
                if matches!(character, '_' | '%') || character.is_control() {
                    let mut bytes = [0; 4];
                    for byte in character.encode_utf8(&mut bytes).bytes() {
                        // Writing to a string cannot fail.
                        let _ = write!(text, "%{byte:02X}");
                    }
                } else {
                    text.push(character);
                }
            }
        }
        if text.len() > MAX_TEXT_BYTES {
            let end = (0..=MAX_TEXT_BYTES)
                .rev()
                .find(|end| text.is_char_boundary(*end))
                .unwrap_or(0);
            text.truncate(end);
        }
        text
    }
}

fn value_text(value: Option<&RawBson>) -> String {
    match value.map(RawBson::as_raw_bson_ref) {
        None => "null".to_owned(),
        Some(RawBsonRef::String(text)) => text.to_owned(),
        Some(RawBsonRef::Int32(number)) => number.to_string(),
        Some(RawBsonRef::Int64(number)) => number.to_string(),
        Some(RawBsonRef::Double(number)) => number.to_string(),
        Some(RawBsonRef::Decimal128(number)) => number.to_string(),
        Some(RawBsonRef::Boolean(flag)) => flag.to_string(),
        Some(RawBsonRef::ObjectId(id)) => id.to_hex(),
        Some(RawBsonRef::DateTime(date)) => date
            .try_to_rfc3339_string()
            .unwrap_or_else(|_| date.timestamp_millis().to_string()),
        Some(RawBsonRef::Binary(binary)) => binary.bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }),
        // Other types are rare as a key, and the text only has to be readable.
        Some(other) => type_name(other).to_owned(),
    }
}

fn lift(field: &str, value: Option<RawBsonRef<'_>>) -> Result<Option<RawBson>, WriteError> {
    match value {
        None | Some(RawBsonRef::Null) => Ok(None),
        // mongod replaces an empty timestamp at the top level of an inserted page. An inserted item
        // has none left, but an upsert keeps it.
        Some(EMPTY_TIMESTAMP) => {
            let message =
                format!("mongoshape groups this collection's items by '{field}': an empty timestamp cannot be a key");
            Err(WriteError::new(ErrorCode::BadValue, message))
        }
        // For MongoDB an array is several keys. The other types compare equal to values of another
        // type.
        Some(
            value @ (RawBsonRef::Array(_) | RawBsonRef::Undefined | RawBsonRef::Symbol(_) | RawBsonRef::DbPointer(_)),
        ) => {
            let kind = type_name(value);
            let message = format!(
                "mongoshape groups this collection's items by '{field}': a value of type {kind} cannot be a key"
            );
            Err(WriteError::new(ErrorCode::BadValue, message))
        }
        Some(value) => Ok(Some(canonical(value))),
    }
}

/// Whether `$in` compares with the value itself. A regular expression would match as a pattern, and
/// mongod refuses a document that begins like an operator.
#[must_use]
pub fn is_value_under_in(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::RegularExpression(_) => false,
        RawBsonRef::Document(document) => match document.iter().next() {
            Some(Ok((name, _))) => !name.as_str().starts_with('$'),
            _ => true,
        },
        _ => true,
    }
}

/// Bytes that are equal for two values if and only if MongoDB compares the values as equal.
#[must_use]
pub fn value_identity(value: RawBsonRef<'_>) -> Vec<u8> {
    single("", canonical(value)).into_bytes()
}

/// The value with every number in its canonical type and every symbol as a string. MongoDB compares
/// both as equal, and equal values get equal bytes.
#[must_use]
pub fn canonical(value: RawBsonRef<'_>) -> RawBson {
    match value {
        RawBsonRef::Int32(number) => RawBson::Int32(number),
        RawBsonRef::Int64(number) => number::whole(number),
        RawBsonRef::Double(number) => number::double(number),
        RawBsonRef::Decimal128(number) => number::decimal(number),
        RawBsonRef::Symbol(text) => RawBson::String(text.to_owned()),
        RawBsonRef::Document(document) => RawBson::Document(
            document
                .iter()
                .flatten()
                .map(|(name, value)| (name, canonical(value)))
                .collect(),
        ),
        RawBsonRef::Array(array) => RawBson::Array(array.into_iter().flatten().map(canonical).collect()),
        other => other.into(),
    }
}

/// Whether two values are the same in type and in every bit. `==` on doubles would miss NaN and the
/// sign of zero.
#[must_use]
pub fn same_bytes(one: RawBsonRef<'_>, other: RawBsonRef<'_>) -> bool {
    match (one, other) {
        (RawBsonRef::Int32(one), RawBsonRef::Int32(other)) => return one == other,
        (RawBsonRef::String(one), RawBsonRef::String(other)) => return one == other,
        (RawBsonRef::ObjectId(one), RawBsonRef::ObjectId(other)) => return one == other,
        _ => {}
    }
    let bytes = |value: RawBsonRef<'_>| {
        let mut document = RawDocumentBuf::new();
        document.append(cstr!(""), value);
        document.into_bytes()
    };
    bytes(one) == bytes(other)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    fn shape(key: &[&str]) -> BucketShape {
        let key = key.iter().map(|field| (*field).to_owned()).collect();
        BucketShape::new(BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), key)).unwrap()
    }

    fn identity(item: &RawDocument) -> Vec<u8> {
        Key::of(&shape(&["k"]), item).unwrap().identity()
    }

    #[test]
    fn equal_keys_have_one_identity() {
        let one = identity(&rawdoc! { "k": 1 });
        for equal in [
            rawdoc! { "k": 1.0 },
            rawdoc! { "k": 1_i64 },
            rawdoc! { "k": "1.00".parse::<bson::Decimal128>().unwrap() },
        ] {
            assert_eq!(identity(&equal), one, "{equal:?}");
        }
        assert_eq!(identity(&rawdoc! { "k": null }), identity(&rawdoc! {}));
        assert_eq!(
            identity(&rawdoc! { "k": { "a": 1.0 } }),
            identity(&rawdoc! { "k": { "a": 1 } })
        );
        assert_eq!(
            identity(&rawdoc! { "k": { "a": [RawBson::Symbol("s".into())] } }),
            identity(&rawdoc! { "k": { "a": ["s"] } })
        );
    }

    #[test]
    fn different_keys_have_different_identities() {
        let keys = [
            rawdoc! { "k": 123 },
            rawdoc! { "k": "123" },
            rawdoc! { "k": "12" },
            rawdoc! { "k": "12_3" },
            rawdoc! { "k": "a.*^$" },
            rawdoc! { "k": true },
            rawdoc! {},
            rawdoc! { "k": 1.5 },
            rawdoc! { "k": bson::oid::ObjectId::from_bytes([1; 12]) },
        ];
        for (position, one) in keys.iter().enumerate() {
            for other in &keys[..position] {
                assert_ne!(identity(one), identity(other), "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn invalid_key_is_refused() {
        for item in [
            rawdoc! { "k": [1] },
            rawdoc! { "k": RawBson::Undefined },
            rawdoc! { "k": RawBson::Symbol("s".into()) },
        ] {
            assert_eq!(Key::of(&shape(&["k"]), &item).unwrap_err().code, 2, "{item:?}");
        }
    }

    #[test]
    fn text_is_readable_and_keeps_fields_apart() {
        let text = |item: &RawDocument| Key::of(&shape(&["a", "b"]), item).unwrap().text();
        assert_eq!(text(&rawdoc! { "a": 123, "b": "x" }), "123_x");
        assert_eq!(text(&rawdoc! { "a": "12_3", "b": "50%" }), "12%5F3_50%25");
        assert_eq!(text(&rawdoc! { "b": 1.5 }), "null_1.5");
        assert!(text(&rawdoc! { "a": "é".repeat(500) }).len() <= MAX_TEXT_BYTES);
    }
}
