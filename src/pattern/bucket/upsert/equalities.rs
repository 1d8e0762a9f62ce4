//! The fields that a filter sets equal to one value: an upserted document begins with them.
//!
//! mongod reads them from the simplified filter (`path_support.cpp`, `extractEqualityMatches`):
//! equalities, in any nesting of `$and`, in a `$or` of one alternative, a `$in` of one value and a
//! `$all`.

use std::collections::HashSet;

use bson::raw::{RawBsonRef, RawDocument};

use super::paths::{MAX_PATHS, check_path};
use super::{UpsertError, compare};
use crate::command::collection::is_of_a_language;
use crate::command::document::first_field;
use crate::command::error::{ErrorCode, WriteError};
use crate::pattern::bucket::field_names::is_reference;
use crate::pattern::bucket::key::same_bytes;
use crate::pattern::bucket::update_by_id::UpdateRequest;
use crate::pattern::exact_match::holds_text;

/// Paths with their values, sorted by path.
pub(super) type Equalities<'a> = Vec<(&'a str, RawBsonRef<'a>)>;

/// The equalities for an upsert by operators or by a pipeline. No path occurs twice or is a prefix
/// of another.
pub(super) fn of_operators(request: UpdateRequest<'_>) -> Result<Equalities<'_>, UpsertError> {
    let equalities = of(request)?;
    if equalities.len() > MAX_PATHS {
        return Err(UpsertError::unsupported(format!(
            "an upsert of more than {MAX_PATHS} paths"
        )));
    }
    equalities.iter().try_for_each(|(path, _)| check_path(path))?;
    check_conflicts(&equalities)?;
    Ok(equalities)
}

/// The `_id` for a replacement.
pub(super) fn id(request: UpdateRequest<'_>) -> Result<Option<RawBsonRef<'_>>, UpsertError> {
    let mut id = None;
    for (path, value) in of(request)? {
        if path == "_id" {
            if id.replace(value).is_some() {
                return Err(matched_twice(path));
            }
        } else if path.starts_with("_id.") {
            let message = format!("field at '_id' must be exactly specified, field at sub-path '{path}'found");
            return Err(UpsertError::mongod(ErrorCode::NotExactValueField, message));
        }
    }
    Ok(id)
}

/// The equalities that are found in a filter.
#[derive(Default)]
struct Found<'a> {
    equalities: Equalities<'a>,
    /// Whether texts are compared by the rules of a language.
    is_of_a_language: bool,
}

/// All equalities, in mongod's order.
fn of(request: UpdateRequest<'_>) -> Result<Equalities<'_>, UpsertError> {
    let mut found = Found {
        equalities: Vec::new(),
        is_of_a_language: request.collation.is_some_and(is_of_a_language),
    };
    if let Some(filter) = request.filter {
        conjunction(filter, &mut found)?;
    }
    let mut equalities = found.equalities;
    equalities.sort_by_key(|(path, _)| *path);
    Ok(equalities)
}

fn check_conflicts(equalities: &Equalities<'_>) -> Result<(), UpsertError> {
    let mut seen = HashSet::new();
    for (path, _) in equalities {
        for (end, _) in path.match_indices('.') {
            let parent = path.get(..end).unwrap_or_default();
            if seen.contains(parent) {
                let message =
                    format!("cannot infer query fields to set, both paths '{path}' and '{parent}' are matched");
                return Err(UpsertError::mongod(ErrorCode::NotSingleValueField, message));
            }
        }
        if !seen.insert(*path) {
            return Err(matched_twice(path));
        }
    }
    Ok(())
}

fn matched_twice(path: &str) -> UpsertError {
    let message = format!("cannot infer query fields to set, path '{path}' is matched twice");
    UpsertError::mongod(ErrorCode::NotSingleValueField, message)
}

fn conjunction<'a>(filter: &'a RawDocument, found: &mut Found<'a>) -> Result<(), UpsertError> {
    for (name, value) in filter.iter().flatten() {
        match (name.as_str(), value) {
            ("$and", _) => {
                for alternative in alternatives(value)? {
                    conjunction(alternative, found)?;
                }
            }
            ("$or", _) => match alternatives(value)?.as_slice() {
                [only] => conjunction(only, found)?,
                several => several.iter().try_for_each(|alternative| ignored(alternative))?,
            },
            ("$nor", _) => alternatives(value)?.into_iter().try_for_each(ignored)?,
            ("$comment" | "$where", _) => {}
            ("$expr", _) => return Err(UpsertError::Mongod(expression_is_not_allowed())),
            (operator, _) if operator.starts_with('$') => return Err(not_read(operator)),
            (path, value) => condition(path, value, found)?,
        }
    }
    Ok(())
}

fn alternatives(value: RawBsonRef<'_>) -> Result<Vec<&RawDocument>, UpsertError> {
    let elements = value.as_array().into_iter().flatten().flatten();
    let documents: Option<Vec<&RawDocument>> = elements.map(RawBsonRef::as_document).collect();
    documents
        .filter(|documents| !documents.is_empty())
        .ok_or_else(|| UpsertError::unsupported("an upsert with a malformed filter"))
}

/// Reads a part of the filter without equalities, to find operators that mongod refuses or
/// simplifies.
fn ignored(filter: &RawDocument) -> Result<(), UpsertError> {
    conjunction(filter, &mut Found::default())
}

fn condition<'a>(path: &'a str, value: RawBsonRef<'a>, found: &mut Found<'a>) -> Result<(), UpsertError> {
    let operators = match value {
        RawBsonRef::RegularExpression(_) => return Ok(()),
        RawBsonRef::Document(document)
            if first_field(document).is_some_and(|(name, _)| name.starts_with('$')) && !is_reference(document) =>
        {
            document
        }
        _ => {
            found.equalities.push((path, value));
            return Ok(());
        }
    };
    for (operator, value) in operators.iter().flatten() {
        match operator.as_str() {
            "$eq" => found.equalities.push((path, value)),
            "$in" => {
                let only = only_one(value, found)?;
                found.equalities.extend(only.map(|value| (path, value)));
            }
            "$all" => all_of(path, value, &mut found.equalities)?,
            "$not" | "$elemMatch" => check_within(value)?,
            "$gt" | "$gte" | "$lt" | "$lte" | "$ne" | "$nin" | "$exists" | "$type" | "$mod" | "$regex" | "$options"
            | "$size" | "$bitsAllSet" | "$bitsAllClear" | "$bitsAnySet" | "$bitsAnyClear" => {}
            other => return Err(not_read(other)),
        }
    }
    Ok(())
}

/// The value of a `$in` with one value. mongod removes values that are equal under the collation
/// (`InMatchExpression::_doSetCollator`).
fn only_one<'a>(values: RawBsonRef<'a>, found: &Found<'a>) -> Result<Option<RawBsonRef<'a>>, UpsertError> {
    let values: Vec<RawBsonRef<'_>> = values.as_array().into_iter().flatten().flatten().collect();
    let Some((first, rest)) = values.split_first() else {
        return Ok(None);
    };
    if values
        .iter()
        .any(|value| matches!(value, RawBsonRef::RegularExpression(_)))
    {
        return Ok(None);
    }
    if rest.iter().all(|value| same_bytes(*first, *value)) {
        return Ok(Some(*first));
    }
    // A value without text is equal to no value with text.
    if found.is_of_a_language && values.iter().all(|value| holds_text(*value)) {
        return Err(UpsertError::unsupported(
            "an upsert with $in of several texts under a collation",
        ));
    }
    for value in rest {
        if !compare::equal(*first, *value)? {
            return Ok(None);
        }
    }
    // mongod treats the values as one, and which of them it uses is not defined.
    Err(UpsertError::unsupported(
        "an upsert with $in of equal values of several types",
    ))
}

fn all_of<'a>(path: &'a str, values: RawBsonRef<'a>, found: &mut Equalities<'a>) -> Result<(), UpsertError> {
    let before = found.len();
    let mut is_empty = true;
    for value in values.as_array().into_iter().flatten().flatten() {
        is_empty = false;
        match value {
            RawBsonRef::RegularExpression(_) => {}
            RawBsonRef::Document(document) => match first_field(document) {
                Some(("$elemMatch", condition)) => check_within(condition)?,
                Some((operator, _)) if operator.starts_with('$') && !is_reference(document) => {
                    return Err(not_read(operator));
                }
                _ => found.push((path, value)),
            },
            _ => found.push((path, value)),
        }
    }
    if is_empty && found.len() == before {
        return Err(empty_all());
    }
    Ok(())
}

/// Refuses operators that mongod may simplify to a filter that never matches, because such a filter
/// has no equalities.
fn check_within(value: RawBsonRef<'_>) -> Result<(), UpsertError> {
    let check = |name: &str, value: RawBsonRef<'_>| {
        let is_empty = value.as_array().is_some_and(bson::RawArray::is_empty);
        match name {
            "$all" if is_empty => Err(empty_all()),
            "$alwaysFalse" | "$alwaysTrue" | "$expr" | "$jsonSchema" => Err(not_read(name)),
            _ => check_within(value),
        }
    };
    match value {
        RawBsonRef::Document(document) => document
            .iter()
            .flatten()
            .try_for_each(|(name, value)| check(name.as_str(), value)),
        RawBsonRef::Array(array) => array.into_iter().flatten().try_for_each(check_within),
        _ => Ok(()),
    }
}

/// mongod's refusal of a `$expr`.
pub(super) fn expression_is_not_allowed() -> WriteError {
    let message = "$expr is not allowed in the query predicate for an upsert";
    WriteError::new(ErrorCode::QueryFeatureNotAllowed, message)
}

fn empty_all() -> UpsertError {
    UpsertError::unsupported("an upsert with an empty $all in its filter")
}

fn not_read(operator: &str) -> UpsertError {
    UpsertError::unsupported(format!("an upsert with {operator} in its filter"))
}
