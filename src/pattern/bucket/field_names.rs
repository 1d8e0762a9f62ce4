//! Field names that begin with `$`: where mongod 6.0.5 stores them.
//!
//! An item is in an array of its bucket, where mongod checks no names. So the proxy checks the
//! top-level names of an item, and all names within its `_id`.

use bson::raw::{RawBsonRef, RawDocument};

use crate::command::document::type_name;
use crate::command::error::{ErrorCode, WriteError};

/// Checks an `_id` (`storageValidIdField` and `BSONObj::storageValidEmbedded` in mongod).
///
/// # Errors
/// mongod's errors: a type that cannot be an `_id`, or a `$`-prefixed field at any depth that is
/// not part of a `DBRef`.
pub fn check_id(id: RawBsonRef<'_>) -> Result<RawBsonRef<'_>, WriteError> {
    if matches!(
        id,
        RawBsonRef::Array(_) | RawBsonRef::RegularExpression(_) | RawBsonRef::Undefined
    ) {
        let message = format!("The '_id' value cannot be of type {}", type_name(id));
        return Err(WriteError::new(ErrorCode::InvalidIdField, message));
    }
    match embedded(id).and_then(invalid_within) {
        Some(name) => {
            let message = format!("_id fields may not contain '$'-prefixed fields: {name} is not valid for storage.");
            Err(WriteError::new(ErrorCode::DollarPrefixedFieldName, message))
        }
        None => Ok(id),
    }
}

/// The document inside a value of any type.
fn embedded(value: RawBsonRef<'_>) -> Option<&RawDocument> {
    match value {
        RawBsonRef::Document(document) => Some(document),
        RawBsonRef::Array(array) => RawDocument::from_bytes(array.as_bytes()).ok(),
        RawBsonRef::JavaScriptCodeWithScope(code) => Some(code.scope),
        _ => None,
    }
}

/// The first name that mongod refuses within an `_id`.
fn invalid_within(document: &RawDocument) -> Option<&str> {
    let mut fields = document.iter().flatten().map(|(name, value)| (name.as_str(), value));
    let mut is_first = true;
    while let Some((mut name, mut value)) = fields.next() {
        if name.starts_with('$') {
            let begins_reference = is_first && name == "$ref" && matches!(value, RawBsonRef::String(_));
            if !begins_reference || fields.next().is_none_or(|(second, _)| second != "$id") {
                return Some(name);
            }
            // mongod does not check inside `$id`.
            (name, value) = fields.next()?;
            let is_database = name == "$db" && matches!(value, RawBsonRef::String(_));
            if name.starts_with('$') && !is_database {
                return Some(name);
            }
        }
        is_first = false;
        if let Some(found) = embedded(value).and_then(invalid_within) {
            return Some(found);
        }
    }
    None
}

/// Checks the top-level fields of a document that an update has changed
/// (`storage_validation::scanDocument` in mongod). Only fields for which `is_changed` returns true
/// are checked. An insert, an upsert and a pipeline may store any top-level name.
///
/// # Errors
/// mongod's errors: a `$`-prefixed field that is not part of a `DBRef`, or part of a malformed one.
pub fn check_changed(document: &RawDocument, is_changed: impl Fn(&str) -> bool) -> Result<(), WriteError> {
    let fields: Vec<(&str, RawBsonRef<'_>)> = document
        .iter()
        .flatten()
        .map(|(name, value)| (name.as_str(), value))
        .collect();
    let mut changed = (0..fields.len()).filter(|position| {
        let name = fields.get(*position).map_or("", |(name, _)| name);
        name.starts_with('$') && is_changed(name)
    });
    changed.try_for_each(|position| check_reference(&fields, position))
}

/// Checks one `$`-prefixed field among its siblings (`validateDollarPrefixElement` in mongod).
fn check_reference(fields: &[(&str, RawBsonRef<'_>)], position: usize) -> Result<(), WriteError> {
    let invalid = |message: String| Err(WriteError::new(ErrorCode::InvalidDbRef, message));
    let at = |position: Option<usize>| position.and_then(|position| fields.get(position).copied());
    let Some((name, _)) = at(Some(position)) else {
        return Ok(());
    };
    let mut current = Some(position);
    if name == "$db" {
        if let Some((_, value)) = at(current)
            && !matches!(value, RawBsonRef::String(_))
        {
            let kind = type_name(value);
            return invalid(format!("The DBRef $db field must be a String, not a {kind}"));
        }
        current = position.checked_sub(1);
        if at(current).is_none_or(|(name, _)| name != "$id") {
            return invalid("Found $db field without a $id before it, which is invalid.".to_owned());
        }
    }
    if at(current).is_some_and(|(name, _)| name == "$id") {
        current = current.and_then(|position| position.checked_sub(1));
        if at(current).is_none_or(|(name, _)| name != "$ref") {
            return invalid("Found $id field without a $ref before it, which is invalid.".to_owned());
        }
    }
    match at(current) {
        Some(("$ref", RawBsonRef::String(_))) => {
            let next = current.and_then(|position| position.checked_add(1));
            if at(next).is_none_or(|(name, _)| name != "$id") {
                return invalid("The DBRef $ref field must be followed by a $id field".to_owned());
            }
            Ok(())
        }
        Some(("$ref", value)) => {
            let kind = type_name(value);
            invalid(format!("The DBRef $ref field must be a String, not a {kind}"))
        }
        _ => {
            let message = format!(
                "The dollar ($) prefixed field '{name}' in '{name}' is not allowed in the context of an update's \
                 replacement document. Consider using an aggregation pipeline with $replaceWith."
            );
            Err(WriteError::new(ErrorCode::DollarPrefixedFieldName, message))
        }
    }
}

/// Whether a document in a filter is a `DBRef`, and so a value (`isDBRefDocument` in mongod). In
/// any other document whose first field begins with `$`, the fields are operators.
#[must_use]
pub fn is_reference(document: &RawDocument) -> bool {
    let has = |wanted: &str| document.iter().flatten().any(|(name, _)| name.as_str() == wanted);
    has("$ref") && has("$id")
}

/// Whether a part of an update's path is a positional operator and not a field name.
#[must_use]
pub fn is_positional(part: &str) -> bool {
    part == "$" || (part.starts_with("$[") && part.ends_with(']'))
}

#[cfg(test)]
mod tests {
    use bson::raw::RawDocumentBuf;
    use bson::rawdoc;

    use super::*;

    #[test]
    fn an_id_has_no_dollar_but_a_reference_s() {
        let check = |id: RawDocumentBuf, code: Option<i32>| {
            let found = check_id(RawBsonRef::Document(&id)).err().map(|error| error.code);
            assert_eq!(found, code, "{id:?}");
        };
        check(rawdoc! { "a": { "b": [1] } }, None);
        check(rawdoc! { "$ref": "c", "$id": { "$x": 1 }, "$db": "d", "x": 1 }, None);
        check(rawdoc! { "a": [[{ "$ref": "c", "$id": 1 }]] }, None);
        check(rawdoc! { "$b": 1 }, Some(52));
        check(rawdoc! { "a": [[{ "x": { "$b": 1 } }]] }, Some(52));
        check(rawdoc! { "$ref": "c", "$db": "d", "$id": 1 }, Some(52));
        check(rawdoc! { "$ref": "c", "$id": 1, "$db": 1 }, Some(52));
        check(rawdoc! { "x": 1, "$ref": "c", "$id": 1 }, Some(52));
    }

    #[test]
    fn a_changed_field_at_the_top_is_part_of_a_reference() {
        let check = |document: RawDocumentBuf, changed: &str, code: Option<i32>| {
            let found = check_changed(&document, |name| name == changed).err();
            assert_eq!(found.map(|error| error.code), code, "{document:?} {changed}");
        };
        let whole = rawdoc! { "_id": 1, "$ref": "c", "$id": 1, "$db": "d", "$f": 1 };
        check(whole.clone(), "$ref", None);
        check(whole.clone(), "$id", None);
        check(whole.clone(), "$db", None);
        check(whole.clone(), "_id", None);
        check(whole, "$f", Some(52));
        check(rawdoc! { "$ref": 1, "$id": 1 }, "$id", Some(55));
        check(rawdoc! { "$ref": "c" }, "$ref", Some(55));
        check(rawdoc! { "$id": 1 }, "$id", Some(55));
        check(rawdoc! { "$id": 1, "$db": 1 }, "$db", Some(55));
        check(rawdoc! { "$db": "d" }, "$db", Some(55));
    }
}
