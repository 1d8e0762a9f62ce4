//! Small helpers to build and read raw BSON documents.

use bson::raw::{BindRawBsonRef, CStr, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::error::{CommandError, ErrorCode};

/// Appends a field whose name is only known at run time.
///
/// Names come from BSON or from checked configuration, so none holds a NUL, which a BSON name cannot; one that did
/// would be left out.
pub fn put(document: &mut RawDocumentBuf, name: &str, value: impl BindRawBsonRef) {
    if let Ok(name) = <&CStr>::try_from(name) {
        document.append(name, value);
    } else {
        debug_assert!(false, "a field name with a NUL");
    }
}

/// A document of one field.
pub fn single(name: &str, value: impl BindRawBsonRef) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    put(&mut document, name, value);
    document
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

/// The fields of a document, or the error that a malformed one is answered with.
pub fn fields(document: &RawDocument) -> impl Iterator<Item = Result<(&str, RawBsonRef<'_>), CommandError>> {
    document.iter().map(|field| {
        field
            .map(|(name, value)| (name.as_str(), value))
            .map_err(|error| CommandError::invalid_bson(&error.to_string()))
    })
}

/// The deepest nesting that mongod takes (`BSONDepth::kDefaultMaxAllowableDepth`).
const MAX_DEPTH: u32 = 200;

/// Checks a document and all that is nested in it. What was checked may be walked by recursion, and has no malformed field
/// that reading would pass over.
///
/// # Errors
/// Nesting deeper than mongod takes, and bytes that are no BSON, with mongod's codes.
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

/// A field's value; `None` also for a malformed document.
#[must_use]
pub fn get<'a>(document: &'a RawDocument, name: &str) -> Option<RawBsonRef<'a>> {
    document.get(name).ok().flatten()
}

/// The value as a whole number where MongoDB would take it for one: numbers are truncated as `find` truncates them.
#[must_use]
pub fn as_whole_number(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(number) => Some(i64::from(number)),
        RawBsonRef::Int64(number) => Some(number),
        // `as` saturates and takes NaN for 0, as the server's own conversion does.
        #[expect(clippy::cast_possible_truncation, reason = "saturating is what is wanted")]
        RawBsonRef::Double(number) => Some(number as i64),
        RawBsonRef::Decimal128(number) => {
            let number: f64 = number.to_string().parse().ok()?;
            as_whole_number(RawBsonRef::Double(number))
        }
        _ => None,
    }
}

/// The value's truth, as MongoDB takes flags and projections: numbers by being non-zero.
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

/// What MongoDB calls the value's type in its messages.
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
