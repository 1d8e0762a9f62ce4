//! The array element that made a document match a filter. The positional operator `$` of projections and
//! updates names it.
//!
//! mongod records the matching element of each condition that traverses an array, and uses the last
//! one. So the element is known only if a single condition, with a single operator, traverses an
//! array. And no document may match without a matching element, by the array as a whole or by a
//! missing element, because mongod then returns an error.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use crate::command::document::{as_flag, as_whole_number, first_field, single};

/// A condition of a filter on the values at a path.
#[derive(Clone, Copy, Debug)]
pub struct PathCondition<'a> {
    /// The path.
    pub path: &'a str,
    /// The value, or the operators.
    pub condition: RawBsonRef<'a>,
}

/// The conditions on paths that must all hold. `None` if the filter has a condition of another kind.
#[must_use]
pub fn path_conditions(filter: &RawDocument) -> Option<Vec<PathCondition<'_>>> {
    let mut conditions = Vec::new();
    append_conditions(&mut conditions, filter)?;
    Some(conditions)
}

fn append_conditions<'a>(conditions: &mut Vec<PathCondition<'a>>, filter: &'a RawDocument) -> Option<()> {
    for (name, value) in filter.iter().flatten() {
        match name.as_str() {
            "$comment" => {}
            "$and" => {
                for clause in value.as_array()?.into_iter().flatten() {
                    append_conditions(conditions, clause.as_document()?)?;
                }
            }
            name if name.starts_with('$') => return None,
            path => conditions.push(PathCondition { path, condition: value }),
        }
    }
    Some(())
}

/// A condition that an array meets only by one of its elements.
#[derive(Clone, Debug)]
pub struct ElementCondition<'a> {
    /// The path from the element, with a dot in front. Empty if the condition is on the element itself.
    pub within: &'a str,
    /// The only operator, with its argument.
    pub operator: RawDocumentBuf,
}

impl<'a> ElementCondition<'a> {
    /// Parses a condition on the array at a path, or on fields of its elements. `None`: the condition is on
    /// other values, has several operators, or does not determine an element.
    #[must_use]
    pub fn of(array: &str, condition: PathCondition<'a>) -> Option<Self> {
        let within = condition.path.strip_prefix(array)?;
        let is_on_fields = within
            .strip_prefix('.')
            .is_some_and(|path| path.split('.').all(is_field_name));
        if !is_on_fields && !within.is_empty() {
            return None;
        }
        let operator = only_operator(condition.condition)?;
        let (name, value) = first_field(&operator)?;
        let determines = if is_on_fields {
            needs_field(name, value)
        } else {
            needs_element(name, value)
        };
        determines.then_some(Self { within, operator })
    }
}

/// Whether a part of a path names a field, and not a position in an array.
#[must_use]
pub fn is_field_name(part: &str) -> bool {
    !part.is_empty() && !part.starts_with('$') && part.parse::<u32>().is_err()
}

/// The only operator of a condition, as a document.
fn only_operator(condition: RawBsonRef<'_>) -> Option<RawDocumentBuf> {
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

/// Whether an array meets this operator only by an element.
fn needs_element(operator: &str, value: RawBsonRef<'_>) -> bool {
    match operator {
        "$eq" | "$gt" | "$gte" | "$lt" | "$lte" => !meets_whole_array(value),
        "$in" => value
            .as_array()
            .is_some_and(|values| !values.into_iter().flatten().any(meets_whole_array)),
        "$type" => names_one_type(value),
        "$elemMatch" | "$regex" | "$options" | "$mod" | "$bitsAllSet" | "$bitsAnySet" | "$bitsAllClear"
        | "$bitsAnyClear" => true,
        _ => false,
    }
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

/// Whether an array meets this operator on a field of its elements only by an element.
fn needs_field(operator: &str, value: RawBsonRef<'_>) -> bool {
    if operator == "$exists" {
        return as_flag(value) == Some(true);
    }
    matches!(
        operator,
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
    )
}

#[cfg(test)]
mod tests;
