//! Determines the array element of the positional operator: the element that made the filter match.
//!
//! mongod records the matching element of each condition that traverses an array, and uses the last
//! one. So the element is known only if a single condition, with a single operator, can traverse an
//! array. And no document may match without a matching element, by the array as a whole or by a
//! missing element, because mongod then returns an error.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::Context;
use super::element::ELEMENT;
use crate::command::document::{as_whole_number, first_field, single};

/// The condition on a wrapped element of a field. `None` if the element is not determined.
pub(super) fn on_element(field: &str, context: Context<'_>) -> Option<RawDocumentBuf> {
    let mut conditions = Vec::new();
    append_conditions(&mut conditions, context.filter?)?;
    // An `_id` is never an array either.
    conditions.retain(|(path, _)| *path != "_id" && !(context.is_no_array)(path));
    let [(path, condition)] = conditions[..] else {
        return None;
    };
    let mut steps = path.split('.');
    let plain = |step: &str| !step.is_empty() && !step.starts_with('$') && step.parse::<u32>().is_err();
    if steps.next() != Some(field) || !path.split('.').all(plain) {
        return None;
    }
    let operator = operator(condition)?;
    if path == field {
        on_array(&operator)
    } else {
        let rest = path.get(field.len()..)?;
        within_element(&operator).then(|| single(&format!("{ELEMENT}{rest}"), &operator))
    }
}

/// The conditions that must all match. `None` if there is a condition of another kind.
fn append_conditions<'a>(conditions: &mut Vec<(&'a str, RawBsonRef<'a>)>, filter: &'a RawDocument) -> Option<()> {
    for (name, value) in filter.iter().flatten() {
        match name.as_str() {
            "$comment" => {}
            "$and" => {
                for clause in value.as_array()?.into_iter().flatten() {
                    append_conditions(conditions, clause.as_document()?)?;
                }
            }
            name if name.starts_with('$') => return None,
            name => conditions.push((name, value)),
        }
    }
    Some(())
}

/// The only operator of a condition, as a document.
fn operator(condition: RawBsonRef<'_>) -> Option<RawDocumentBuf> {
    match condition {
        RawBsonRef::RegularExpression(_) => Some(single("$regex", condition)),
        RawBsonRef::Document(document) => match first_field(document) {
            Some((name, _)) if name.starts_with('$') => {
                let mut names = document.iter().flatten().map(|(name, _)| name.as_str());
                let mut beside = names.by_ref().skip(1);
                let only = match (name, beside.next()) {
                    (_, None) => true,
                    ("$regex", Some("$options")) | ("$options", Some("$regex")) => beside.next().is_none(),
                    _ => false,
                };
                only.then(|| document.to_owned())
            }
            _ => Some(single("$eq", condition)),
        },
        value => Some(single("$eq", value)),
    }
}

/// The condition on an array, from a condition on its elements.
fn on_array(operator: &RawDocument) -> Option<RawDocumentBuf> {
    let (name, value) = first_field(operator)?;
    let only_elements = match name {
        "$elemMatch" => return Some(single(ELEMENT, operator)),
        "$eq" | "$gt" | "$gte" | "$lt" | "$lte" => !meets_whole_array(value),
        "$in" => !value.as_array()?.into_iter().flatten().any(meets_whole_array),
        "$type" => names_one_type(value),
        "$regex" | "$options" | "$mod" | "$bitsAllSet" | "$bitsAnySet" | "$bitsAllClear" | "$bitsAnyClear" => true,
        _ => false,
    };
    only_elements.then(|| single(ELEMENT, single("$elemMatch", operator)))
}

/// Whether an array itself may compare as equal, less or greater.
fn meets_whole_array(value: RawBsonRef<'_>) -> bool {
    matches!(
        value,
        RawBsonRef::Array(_)
            | RawBsonRef::MinKey
            | RawBsonRef::MaxKey
            | RawBsonRef::Undefined
            | RawBsonRef::Symbol(_)
            | RawBsonRef::DbPointer(_)
    )
}

/// Whether the value is the name or the number of one type other than array.
fn names_one_type(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::String(name) => name != "array",
        value => as_whole_number(value).is_some_and(|number| number != 4),
    }
}

/// Whether a condition on a field of elements can match only an existing field.
fn within_element(operator: &RawDocument) -> bool {
    match first_field(operator) {
        Some(("$exists", value)) => crate::command::document::as_flag(value) == Some(true),
        Some((name, _)) => matches!(
            name,
            "$eq"
                | "$gt"
                | "$gte"
                | "$lt"
                | "$lte"
                | "$in"
                | "$regex"
                | "$options"
                | "$mod"
                | "$type"
                | "$size"
                | "$elemMatch"
                | "$bitsAllSet"
                | "$bitsAnySet"
                | "$bitsAllClear"
                | "$bitsAnyClear"
        ),
        None => false,
    }
}
