//! Applies operators to the elements of an array.

use std::cmp::Ordering;
use std::collections::HashSet;

use bson::raw::{RawBsonRef, RawDocument};

use super::tree::Node;
use super::{UpsertError, compare};
use crate::command::document::{as_whole_number, first_field, get};
use crate::pattern::bucket::key::same_bytes;

/// The longest array that the proxy sorts.
const MAX_SORTED: usize = 500;

/// `$push`: appends the operand, or the elements of its `$each`, and applies the modifiers.
pub(super) fn push(elements: &mut Vec<Node>, operand: RawBsonRef<'_>) -> Result<(), UpsertError> {
    let modifiers = operand.as_document().filter(|operand| get(operand, "$each").is_some());
    let Some(modifiers) = modifiers else {
        elements.push(Node::of(operand));
        return Ok(());
    };
    for (name, _) in modifiers.iter().flatten() {
        if !["$each", "$position", "$sort", "$slice"].contains(&name.as_str()) {
            return Err(malformed("$push"));
        }
    }
    let position = match get(modifiers, "$position") {
        Some(position) => from_front(whole(position)?, elements.len()),
        None => elements.len(),
    };
    let tail = elements.split_off(position.min(elements.len()));
    elements.extend(each(modifiers).map(Node::of));
    elements.extend(tail);
    if let Some(by) = get(modifiers, "$sort") {
        sort(elements, by)?;
    }
    if let Some(slice) = get(modifiers, "$slice") {
        let slice = whole(slice)?;
        let cut = from_front(slice, elements.len());
        if slice < 0 {
            drop(elements.drain(..cut));
        } else {
            elements.truncate(cut);
        }
    }
    Ok(())
}

/// `$addToSet`: appends the operand, or the elements of its `$each`, unless they are in the array.
pub(super) fn add_to_set(elements: &mut Vec<Node>, operand: RawBsonRef<'_>) -> Result<(), UpsertError> {
    let several = operand
        .as_document()
        .filter(|operand| first_field(operand).is_some_and(|(name, _)| name == "$each"));
    let added: Vec<RawBsonRef<'_>> = several.map_or_else(|| vec![operand], |several| each(several).collect());
    let mut there = HashSet::new();
    for element in elements.iter() {
        there.insert(compare::identity(element.to_raw().as_raw_bson_ref())?);
    }
    for value in added {
        if there.insert(compare::identity(value)?) {
            elements.push(Node::of(value));
        }
    }
    Ok(())
}

/// `$pull` of a plain value: removes all elements that equal it.
pub(super) fn pull(elements: &mut Vec<Node>, operand: RawBsonRef<'_>) -> Result<(), UpsertError> {
    match operand {
        RawBsonRef::Document(_)
        | RawBsonRef::Array(_)
        | RawBsonRef::RegularExpression(_)
        | RawBsonRef::Null
        | RawBsonRef::Undefined => Err(UpsertError::unsupported("an upsert with $pull by conditions")),
        value => pull_all_of(elements, &[value]),
    }
}

/// `$pullAll`: removes all elements that equal one of the values.
pub(super) fn pull_all(elements: &mut Vec<Node>, operand: RawBsonRef<'_>) -> Result<(), UpsertError> {
    let values = operand.as_array().ok_or_else(|| malformed("$pullAll"))?;
    let values: Vec<RawBsonRef<'_>> = values.into_iter().flatten().collect();
    pull_all_of(elements, &values)
}

fn pull_all_of(elements: &mut Vec<Node>, values: &[RawBsonRef<'_>]) -> Result<(), UpsertError> {
    let pulled: HashSet<Vec<u8>> = values
        .iter()
        .map(|value| compare::identity(*value))
        .collect::<Result<_, _>>()?;
    let mut kept = Vec::new();
    for element in elements.drain(..) {
        if !pulled.contains(&compare::identity(element.to_raw().as_raw_bson_ref())?) {
            kept.push(element);
        }
    }
    *elements = kept;
    Ok(())
}

/// `$pop`: removes the first or the last element.
pub(super) fn pop(elements: &mut Vec<Node>, operand: RawBsonRef<'_>) -> Result<(), UpsertError> {
    if whole(operand)? > 0 {
        elements.pop();
    } else if !elements.is_empty() {
        elements.remove(0);
    }
    Ok(())
}

fn each(modifiers: &RawDocument) -> impl Iterator<Item = RawBsonRef<'_>> {
    let each = get(modifiers, "$each").and_then(RawBsonRef::as_array);
    each.into_iter().flatten().flatten()
}

/// Sorts by the elements themselves, or by their fields. Refuses different elements that are equal
/// in the sort, because their order in mongod is not defined.
fn sort(elements: &mut Vec<Node>, by: RawBsonRef<'_>) -> Result<(), UpsertError> {
    if elements.len() < 2 {
        return Ok(());
    }
    let fields = match by {
        RawBsonRef::Document(fields) => {
            let fields = fields.iter().flatten();
            fields
                .map(|(name, direction)| Ok((Some(name.as_str()), whole(direction)?)))
                .collect::<Result<Vec<_>, UpsertError>>()?
        }
        direction => vec![(None, whole(direction)?)],
    };
    if elements.len() > MAX_SORTED {
        return Err(UpsertError::unsupported(format!(
            "an upsert with $sort of more than {MAX_SORTED} elements"
        )));
    }
    // An insertion sort, because a comparison may fail.
    let mut sorted: Vec<Node> = Vec::with_capacity(elements.len());
    for element in elements.drain(..) {
        let mut position = 0;
        for before in &sorted {
            if compare_by(&fields, before, &element)? == Ordering::Greater {
                break;
            }
            position = usize::saturating_add(position, 1);
        }
        sorted.insert(position, element);
    }
    *elements = sorted;
    Ok(())
}

fn compare_by(fields: &[(Option<&str>, i64)], one: &Node, other: &Node) -> Result<Ordering, UpsertError> {
    let (one, other) = (one.to_raw(), other.to_raw());
    let (one, other) = (one.as_raw_bson_ref(), other.as_raw_bson_ref());
    for (field, direction) in fields {
        let ordering = compare::order(sorted_by(one, *field)?, sorted_by(other, *field)?)?;
        if ordering != Ordering::Equal {
            return Ok(if *direction < 0 { ordering.reverse() } else { ordering });
        }
    }
    if same_bytes(one, other) {
        return Ok(Ordering::Equal);
    }
    Err(UpsertError::unsupported("an upsert with $sort of equal elements"))
}

/// The sort key of an element: the element itself, or the value of a top-level field that it must
/// have.
fn sorted_by<'a>(element: RawBsonRef<'a>, field: Option<&str>) -> Result<RawBsonRef<'a>, UpsertError> {
    let Some(field) = field else {
        return Ok(element);
    };
    let value = element.as_document().and_then(|element| get(element, field));
    value
        .filter(|_| !field.contains('.'))
        .ok_or_else(|| UpsertError::unsupported("an upsert with $sort by a field that not all elements have"))
}

/// A position that is counted from the end if it is negative, limited to the length.
fn from_front(place: i64, length: usize) -> usize {
    let distance = usize::try_from(place.unsigned_abs()).unwrap_or(usize::MAX);
    if place < 0 {
        length.saturating_sub(distance)
    } else {
        length.min(distance)
    }
}

fn whole(value: RawBsonRef<'_>) -> Result<i64, UpsertError> {
    let number = as_whole_number(value);
    number.ok_or_else(|| UpsertError::unsupported("an upsert with a modifier that is not a number"))
}

fn malformed(operator: &str) -> UpsertError {
    UpsertError::unsupported(format!("a malformed {operator}"))
}
