//! Small helpers to build and read raw BSON documents.

use bson::DateTime;
use bson::raw::{BindRawBsonRef, CStr, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::error::{CommandError, ErrorCode};

/// Appends a field whose name is only known at run time.
///
/// Names come from BSON or from checked configuration, so none contains a NUL, which is invalid in
/// a BSON name. Such a field would be left out.
pub fn put(document: &mut RawDocumentBuf, name: &str, value: impl BindRawBsonRef) {
    if let Ok(name) = <&CStr>::try_from(name) {
        document.append(name, value);
    } else {
        debug_assert!(false, "a field name with a NUL");
    }
}

/// A value that names a collection. mongod takes a symbol for a string there.
#[must_use]
pub fn as_name(value: RawBsonRef<'_>) -> Option<&str> {
    match value {
        RawBsonRef::String(name) | RawBsonRef::Symbol(name) => Some(name),
        _ => None,
    }
}

/// A document of one field.
pub fn single(name: &str, value: impl BindRawBsonRef) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    put(&mut document, name, value);
    document
}

/// The length of a value in BSON, in bytes, without its type and its name.
#[must_use]
pub fn length_of(value: RawBsonRef<'_>) -> usize {
    /// The length of a document of one field without a name and a value.
    const DOCUMENT: usize = 7;
    match value {
        RawBsonRef::Document(document) => document.as_bytes().len(),
        RawBsonRef::Array(array) => array.as_bytes().len(),
        value => single("", value).as_bytes().len().saturating_sub(DOCUMENT),
    }
}

/// Appends all fields of another document.
pub fn append_fields(document: &mut RawDocumentBuf, fields: &RawDocument) {
    for (name, value) in fields.iter().flatten() {
        document.append(name, value);
    }
}

/// An array of documents.
#[must_use]
pub fn array_of(documents: &[RawDocumentBuf]) -> RawArrayBuf {
    documents
        .iter()
        .map(RawDocumentBuf::as_ref)
        .collect::<Vec<&RawDocument>>()
        .into_iter()
        .collect()
}

/// The fields of a document, or the error for a malformed one.
pub fn fields(document: &RawDocument) -> impl Iterator<Item = Result<(&str, RawBsonRef<'_>), CommandError>> {
    document.iter().map(|field| {
        field
            .map(|(name, value)| (name.as_str(), value))
            .map_err(|error| CommandError::invalid_bson(&error.to_string()))
    })
}

/// One field of a document, as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The whole element: type, name, NUL, value.
    pub whole: &'a [u8],
}

impl<'a> Element<'a> {
    /// The bytes of the value.
    #[must_use]
    pub fn value(&self) -> &'a [u8] {
        self.whole.get(self.name.len().saturating_add(2)..).unwrap_or_default()
    }

    /// The value as a document, if it is a document or an array: an array has the bytes of a
    /// document.
    #[must_use]
    pub fn as_document(&self) -> Option<&'a RawDocument> {
        matches!(self.whole, [0x03 | 0x04, ..])
            .then(|| RawDocument::from_bytes(self.value()).ok())
            .flatten()
    }

    /// The value, if it is a date.
    #[must_use]
    pub fn as_datetime(&self) -> Option<DateTime> {
        let millis = self.value().first_chunk().map(|bytes| i64::from_le_bytes(*bytes));
        millis
            .filter(|_| matches!(self.whole, [0x09, ..]))
            .map(DateTime::from_millis)
    }

    /// The value as a whole number, if MongoDB would treat it as a number. Decimals return `None`.
    #[must_use]
    pub fn as_whole_number(&self) -> Option<i64> {
        match self.whole {
            [0x10, ..] => self
                .value()
                .first_chunk()
                .map(|bytes| i32::from_le_bytes(*bytes).into()),
            [0x12, ..] => self.value().first_chunk().map(|bytes| i64::from_le_bytes(*bytes)),
            [0x01, ..] => {
                let number = f64::from_le_bytes(*self.value().first_chunk()?);
                as_whole_number(RawBsonRef::Double(number))
            }
            _ => None,
        }
    }
}

/// The elements of a document. Ends where the document is malformed.
///
/// Fast, for whole collections: names and values are not parsed.
pub fn elements(document: &RawDocument) -> impl Iterator<Item = Element<'_>> {
    /// The size of a document's length, in bytes.
    const LENGTH: usize = 4;
    let mut rest = document.as_bytes().get(LENGTH..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (kind, behind) = rest.split_first()?;
        let name_length = behind.iter().position(|byte| *byte == 0)?;
        let (name, value) = behind.split_at_checked(name_length)?;
        // The NUL after the name is counted with the value.
        let length = value_length(*kind, value.get(1..)?)?;
        let whole_length = name_length.checked_add(length)?.checked_add(2)?;
        let (whole, next) = rest.split_at_checked(whole_length)?;
        rest = next;
        Some(Element { name, whole })
    })
}

/// The length of the value at the beginning of `bytes` (bsonspec.org).
fn value_length(kind: u8, bytes: &[u8]) -> Option<usize> {
    let length = || usize::try_from(i32::from_le_bytes(*bytes.first_chunk()?)).ok();
    let text = |bytes: &[u8]| bytes.iter().position(|byte| *byte == 0)?.checked_add(1);
    match kind {
        // undefined, null, min key, max key
        0x06 | 0x0A | 0xFF | 0x7F => Some(0),
        // bool
        0x08 => Some(1),
        // int32
        0x10 => Some(4),
        // double, date, timestamp, int64
        0x01 | 0x09 | 0x11 | 0x12 => Some(8),
        // ObjectId
        0x07 => Some(12),
        // decimal128
        0x13 => Some(16),
        // document, array, code with scope: the length includes itself
        0x03 | 0x04 | 0x0F => length(),
        // string, code, symbol
        0x02 | 0x0D | 0x0E => length()?.checked_add(4),
        // binary: the subtype
        0x05 => length()?.checked_add(5),
        // DBPointer: an ObjectId
        0x0C => length()?.checked_add(16),
        // regular expression: pattern and options
        0x0B => {
            let pattern = text(bytes)?;
            pattern.checked_add(text(bytes.get(pattern..)?)?)
        }
        _ => None,
    }
}

/// The deepest nesting that mongod accepts (`BSONDepth::kDefaultMaxAllowableDepth`).
const MAX_DEPTH: u32 = 200;

/// Checks a document and all nested documents. After that they can be traversed by recursion, and no
/// read skips a malformed field.
///
/// # Errors
/// Nesting deeper than mongod accepts, and malformed BSON, with mongod's codes.
pub fn validate(document: &RawDocument) -> Result<(), CommandError> {
    validate_within(document, MAX_DEPTH)
}

fn validate_within(document: &RawDocument, depth: u32) -> Result<(), CommandError> {
    document.iter().try_for_each(|field| match field {
        Ok((_, value)) => validate_value(value, depth),
        Err(error) => Err(CommandError::invalid_bson(&error.to_string())),
    })
}

fn validate_value(value: RawBsonRef<'_>, depth: u32) -> Result<(), CommandError> {
    let nested = match value {
        RawBsonRef::Document(document) => document,
        RawBsonRef::JavaScriptCodeWithScope(code) => code.scope,
        RawBsonRef::Array(array) => {
            let depth = deeper(depth)?;
            return array.into_iter().try_for_each(|element| {
                let element = element.map_err(|error| CommandError::invalid_bson(&error.to_string()))?;
                validate_value(element, depth)
            });
        }
        _ => return Ok(()),
    };
    validate_within(nested, deeper(depth)?)
}

fn deeper(depth: u32) -> Result<u32, CommandError> {
    let message = || format!("BSONObj exceeded maximum nested object depth: {MAX_DEPTH}");
    depth
        .checked_sub(1)
        .ok_or_else(|| CommandError::new(ErrorCode::Overflow, message()))
}

/// The first field of a document.
#[must_use]
pub fn first_field(document: &RawDocument) -> Option<(&str, RawBsonRef<'_>)> {
    document.iter().next()?.ok().map(|(name, value)| (name.as_str(), value))
}

/// A field's value. Also `None` if the document is malformed.
#[must_use]
pub fn get<'a>(document: &'a RawDocument, name: &str) -> Option<RawBsonRef<'a>> {
    document.get(name).ok().flatten()
}

/// The value at a path through documents. Names of a path do not lead into arrays.
#[must_use]
pub fn get_path<'a>(document: &'a RawDocument, path: &str) -> Option<RawBsonRef<'a>> {
    match path.split_once('.') {
        Some((root, rest)) => get_path(get(document, root)?.as_document()?, rest),
        None => get(document, path),
    }
}

/// The value as a whole number, if MongoDB would treat it as a number. Fractions are truncated, as
/// `find` does.
#[must_use]
pub fn as_whole_number(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(number) => Some(i64::from(number)),
        RawBsonRef::Int64(number) => Some(number),
        // `as` saturates and converts NaN to 0, like the server's own conversion.
        #[expect(clippy::cast_possible_truncation, reason = "saturating is what is wanted")]
        RawBsonRef::Double(number) => Some(number as i64),
        RawBsonRef::Decimal128(number) => {
            let number: f64 = number.to_string().parse().ok()?;
            as_whole_number(RawBsonRef::Double(number))
        }
        _ => None,
    }
}

/// The value as a flag, as MongoDB reads flags and projections: a number is true if it is not 0.
#[must_use]
pub fn as_flag(value: RawBsonRef<'_>) -> Option<bool> {
    match value {
        RawBsonRef::Boolean(flag) => Some(flag),
        RawBsonRef::Double(number) => Some(number != 0.0),
        RawBsonRef::Int32(_) | RawBsonRef::Int64(_) => as_whole_number(value).map(|number| number != 0),
        RawBsonRef::Decimal128(number) => number.to_string().parse::<f64>().ok().map(|number| number != 0.0),
        _ => None,
    }
}

/// The name of the value's type in MongoDB's messages.
#[must_use]
pub fn type_name(value: RawBsonRef<'_>) -> &'static str {
    match value {
        RawBsonRef::Double(_) => "double",
        RawBsonRef::String(_) => "string",
        RawBsonRef::Document(_) => "object",
        RawBsonRef::Array(_) => "array",
        RawBsonRef::Binary(_) => "binData",
        RawBsonRef::Undefined => "undefined",
        RawBsonRef::ObjectId(_) => "objectId",
        RawBsonRef::Boolean(_) => "bool",
        RawBsonRef::DateTime(_) => "date",
        RawBsonRef::Null => "null",
        RawBsonRef::RegularExpression(_) => "regex",
        RawBsonRef::DbPointer(_) => "dbPointer",
        RawBsonRef::JavaScriptCode(_) => "javascript",
        RawBsonRef::Symbol(_) => "symbol",
        RawBsonRef::JavaScriptCodeWithScope(_) => "javascriptWithScope",
        RawBsonRef::Int32(_) => "int",
        RawBsonRef::Timestamp(_) => "timestamp",
        RawBsonRef::Int64(_) => "long",
        RawBsonRef::Decimal128(_) => "decimal",
        RawBsonRef::MinKey => "minKey",
        RawBsonRef::MaxKey => "maxKey",
    }
}

#[cfg(test)]
mod tests {
    use bson::{Bson, Document, RawDocumentBuf, bson, doc, rawdoc};

    use super::*;

    #[test]
    fn elements_are_the_fields_of_any_type() {
        let values = vec![
            bson!(1.5),
            bson!("text"),
            bson!({ "a": 1 }),
            bson!([1, "x"]),
            Bson::Binary(bson::Binary {
                subtype: bson::spec::BinarySubtype::Uuid,
                bytes: vec![7; 16],
            }),
            Bson::Undefined,
            bson!(bson::oid::ObjectId::from_bytes([3; 12])),
            bson!(true),
            bson!(bson::DateTime::from_millis(5)),
            Bson::Null,
            Bson::RegularExpression(bson::Regex {
                pattern: "^a".try_into().unwrap(),
                options: "i".try_into().unwrap(),
            }),
            Bson::JavaScriptCode("f()".to_owned()),
            Bson::Symbol("s".to_owned()),
            Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope {
                code: "g()".to_owned(),
                scope: doc! { "b": 2 },
            }),
            bson!(7),
            Bson::Timestamp(bson::Timestamp { time: 1, increment: 2 }),
            bson!(8_i64),
            Bson::Decimal128("1.25".parse().unwrap()),
            Bson::MinKey,
            Bson::MaxKey,
        ];
        let fields = values
            .into_iter()
            .enumerate()
            .map(|(number, value)| (format!("field{number}"), value));
        let mut document: Document = fields.collect();
        document.insert("", "no name");
        let raw = RawDocumentBuf::try_from(&document).unwrap();
        let found: Vec<Element<'_>> = elements(&raw).collect();
        let names: Vec<&str> = raw.iter().map(|field| field.unwrap().0.as_str()).collect();
        assert_eq!(
            found.iter().map(|element| element.name).collect::<Vec<_>>(),
            names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>()
        );
        let together: Vec<u8> = found.iter().flat_map(|element| element.whole.iter().copied()).collect();
        assert_eq!(together, raw.as_bytes()[4..raw.as_bytes().len() - 1]);
    }

    #[test]
    fn elements_end_with_the_document() {
        assert_eq!(elements(&rawdoc! {}).count(), 0);
    }
}
