//! Applies update operators to a document that will be inserted.

use std::cmp::Ordering;

use bson::raw::{RawBson, RawBsonRef};

use super::paths::PathChange;
use super::tree::{Blocked, Node};
use super::{UpsertError, arithmetic, array, compare};
use crate::command::document::{get, type_name};
use crate::command::error::ErrorCode;
use crate::command::value_text::value_text;
use crate::pattern::bucket::item::IdSource;
use crate::pattern::bucket::key::same_bytes;

/// Applies one change.
pub(super) fn apply(document: &mut Node, change: &PathChange<'_>, mint: &mut dyn IdSource) -> Result<(), UpsertError> {
    if change.parts.first() == Some(&"_id") {
        return set_id(document, change);
    }
    match change.operator {
        "$set" | "$setOnInsert" => document.set(&change.parts, Node::of(change.value)),
        "$unset" => {
            document.remove(&change.parts);
            Ok(())
        }
        "$currentDate" => document.set(&change.parts, Node::Whole(now(change.value, mint)?)),
        "$inc" | "$mul" | "$bit" | "$min" | "$max" => compute(document, change),
        "$push" | "$addToSet" => add_elements(document, change),
        "$pull" | "$pullAll" | "$pop" => take_elements(document, change),
        "$rename" => rename(document, change),
        operator => Err(UpsertError::unsupported(format!("an upsert with {operator}"))),
    }
}

/// The `_id` keeps the value that the filter set, in every bit.
fn set_id(document: &mut Node, change: &PathChange<'_>) -> Result<(), UpsertError> {
    if !matches!((change.operator, change.path), ("$set" | "$setOnInsert", "_id")) {
        let (operator, path) = (change.operator, change.path);
        return Err(UpsertError::unsupported(format!(
            "an upsert with {operator} of '{path}'"
        )));
    }
    match document.find(&change.parts) {
        Ok(Some(id)) if !same_bytes(id.to_raw().as_raw_bson_ref(), change.value) => {
            let message = "Performing an update on the path '_id' would modify the immutable field '_id'";
            Err(UpsertError::mongod(ErrorCode::ImmutableField, message))
        }
        _ => document.set(&change.parts, Node::of(change.value)),
    }
}

fn now(operand: RawBsonRef<'_>, mint: &mut dyn IdSource) -> Result<RawBson, UpsertError> {
    let kind = operand.as_document().and_then(|operand| get(operand, "$type"));
    match (operand, kind) {
        (RawBsonRef::Boolean(_), _) | (_, Some(RawBsonRef::String("date"))) => Ok(RawBson::DateTime(mint.now())),
        (_, Some(RawBsonRef::String("timestamp"))) => Ok(RawBson::Timestamp(mint.timestamp())),
        _ => Err(UpsertError::unsupported("a malformed $currentDate")),
    }
}

/// The value at the change's path.
fn current(document: &mut Node, change: &PathChange<'_>) -> Result<Option<RawBson>, UpsertError> {
    let found = document.find(&change.parts).map_err(Blocked::on_creation)?;
    Ok(found.map(|node| node.to_raw()))
}

fn compute(document: &mut Node, change: &PathChange<'_>) -> Result<(), UpsertError> {
    let value = match current(document, change)? {
        Some(current) => computed(document, change, current.as_raw_bson_ref())?,
        None => first(change)?,
    };
    document.set(&change.parts, Node::Whole(value))
}

/// The result of an operator on a missing field.
fn first(change: &PathChange<'_>) -> Result<RawBson, UpsertError> {
    const NOTHING: RawBsonRef<'_> = RawBsonRef::Int32(0);
    let malformed = || UpsertError::unsupported(format!("a malformed {}", change.operator));
    match change.operator {
        "$mul" => arithmetic::product(NOTHING, change.value)?.ok_or_else(malformed),
        "$bit" => arithmetic::bits(NOTHING, change.value.as_document().ok_or_else(malformed)?),
        "$inc" if !is_number(change.value) => Err(malformed()),
        _ => Ok(change.value.into()),
    }
}

/// The result of an operator on a value.
fn computed(document: &mut Node, change: &PathChange<'_>, current: RawBsonRef<'_>) -> Result<RawBson, UpsertError> {
    let (operator, operand) = (change.operator, change.value);
    let field = change.parts.last().copied().unwrap_or_default();
    match operator {
        "$min" | "$max" => {
            let wanted = if operator == "$min" {
                Ordering::Less
            } else {
                Ordering::Greater
            };
            let is_wanted = compare::order(operand, current)? == wanted;
            Ok(if is_wanted { operand.into() } else { current.into() })
        }
        "$bit" if !matches!(current, RawBsonRef::Int32(_) | RawBsonRef::Int64(_)) => {
            // The text of mongod's message.
            let id = match id_of(document) {
                Some(id) => format!("_id: {id}"),
                None => "INVALID-MUTABLE-ELEMENT".to_owned(),
            };
            let message = format!(
                "Cannot apply $bit to a value of non-integral type.{id} has the field {field} of non-integer type {}",
                type_name(current)
            );
            Err(UpsertError::mongod(ErrorCode::BadValue, message))
        }
        "$bit" => match operand.as_document() {
            Some(operations) => arithmetic::bits(current, operations),
            None => Err(UpsertError::unsupported("a malformed $bit")),
        },
        _ if !is_number(current) => {
            let message = format!(
                "Cannot apply {operator} to a value of non-numeric type. {} has the field '{field}' of non-numeric type {}",
                id_text(document),
                type_name(current)
            );
            Err(UpsertError::mongod(ErrorCode::TypeMismatch, message))
        }
        _ => calculated(document, change, current),
    }
}

/// The sum or product of two numbers. If the result is equal, the present value stays: of the two
/// zeros, the present one.
fn calculated(document: &mut Node, change: &PathChange<'_>, current: RawBsonRef<'_>) -> Result<RawBson, UpsertError> {
    let (operator, operand) = (change.operator, change.value);
    let result = match operator {
        "$inc" => arithmetic::sum(current, operand)?,
        _ => arithmetic::product(current, operand)?,
    };
    let Some(result) = result else {
        let kind = if matches!(current, RawBsonRef::Int32(_)) {
            "NumberInt"
        } else {
            "NumberLong"
        };
        let message = format!(
            "Failed to apply {operator} operations to current value (({kind}){}) for document {}",
            value_text(current),
            id_text(document)
        );
        return Err(UpsertError::mongod(ErrorCode::BadValue, message));
    };
    let is_same = match (current, &result) {
        (RawBsonRef::Double(one), RawBson::Double(other)) => one.partial_cmp(other) == Some(Ordering::Equal),
        _ => false,
    };
    Ok(if is_same { current.into() } else { result })
}

fn is_number(value: RawBsonRef<'_>) -> bool {
    matches!(
        value,
        RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Decimal128(_)
    )
}

/// The document's name in mongod's messages.
fn id_text(document: &mut Node) -> String {
    id_of(document).map_or_else(|| "{no id}".to_owned(), |id| format!("{{_id: {id}}}"))
}

fn id_of(document: &mut Node) -> Option<String> {
    let id = document.find(&["_id"]).ok()??;
    Some(value_text(id.to_raw().as_raw_bson_ref()))
}

fn add_elements(document: &mut Node, change: &PathChange<'_>) -> Result<(), UpsertError> {
    let mut elements = Vec::new();
    if let Some(node) = document.find(&change.parts).map_err(Blocked::on_creation)? {
        let Some(existing) = node.elements() else {
            let kind = type_name(node.to_raw().as_raw_bson_ref());
            return Err(no_array(document, change, kind));
        };
        elements = std::mem::take(existing);
    }
    if change.operator == "$push" {
        array::push(&mut elements, change.value)?;
    } else {
        array::add_to_set(&mut elements, change.value)?;
    }
    document.set(&change.parts, Node::Array(elements))
}

fn no_array(document: &mut Node, change: &PathChange<'_>, kind: &str) -> UpsertError {
    let field = change.parts.last().copied().unwrap_or_default();
    let message = if change.operator == "$push" {
        let id = id_text(document);
        let path = change.path;
        format!("The field '{path}' must be an array but is of type {kind} in document {id}")
    } else {
        format!("Cannot apply $addToSet to non-array field. Field named '{field}' has non-array type {kind}")
    };
    UpsertError::mongod(ErrorCode::BadValue, message)
}

fn take_elements(document: &mut Node, change: &PathChange<'_>) -> Result<(), UpsertError> {
    let not_viable = |blocked: Blocked| {
        let message = format!(
            "Cannot use the part ({}) of ({}) to traverse the element ({})",
            blocked.part, change.path, blocked.element
        );
        UpsertError::mongod(ErrorCode::PathNotViable, message)
    };
    let Some(node) = document.find(&change.parts).map_err(not_viable)? else {
        return Ok(());
    };
    let Some(elements) = node.elements() else {
        return Err(if change.operator == "$pop" {
            let kind = type_name(node.to_raw().as_raw_bson_ref());
            let message = format!("Path '{}' contains an element of non-array type '{kind}'", change.path);
            UpsertError::mongod(ErrorCode::TypeMismatch, message)
        } else {
            UpsertError::mongod(ErrorCode::BadValue, "Cannot apply $pull to a non-array value")
        });
    };
    match change.operator {
        "$pop" => array::pop(elements, change.value),
        "$pullAll" => array::pull_all(elements, change.value),
        _ => array::pull(elements, change.value),
    }
}

/// Moves a field. mongod refuses paths through arrays.
fn rename(document: &mut Node, change: &PathChange<'_>) -> Result<(), UpsertError> {
    let RawBsonRef::String(from) = change.value else {
        return Err(UpsertError::unsupported("a malformed $rename"));
    };
    let from: Vec<&str> = from.split('.').collect();
    if from.first() == Some(&"_id") {
        return Err(UpsertError::unsupported("an upsert with $rename of '_id'"));
    }
    for parts in [&from, &change.parts] {
        let parents = (1..parts.len()).filter_map(|length| parts.get(..length));
        for parent in parents {
            let is_document = match document.find(parent) {
                Ok(Some(parent)) => matches!(parent.to_raw(), RawBson::Document(_)),
                Ok(None) => true,
                Err(_) => false,
            };
            if !is_document {
                return Err(UpsertError::unsupported(
                    "an upsert with $rename through a value that is not a document",
                ));
            }
        }
    }
    let Ok(Some(node)) = document.find(&from) else {
        return Ok(());
    };
    let moved = node.clone();
    document.set(&change.parts, moved)?;
    document.remove(&from);
    Ok(())
}
