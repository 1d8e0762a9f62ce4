//! Classifies queries and updates: whether they depend on the array or change it. All others need
//! only base documents, at full speed.
//!
//! In doubt a command depends on the array: that costs time, not correctness.

use bson::raw::{RawArray, RawBsonRef, RawDocument};

use super::layout::{is_long, repeats_array};
use crate::command::document::{as_whole_number, first_field, get};
use crate::command::update::UpdateStatement;
use crate::pattern::shapes::OutlierShape;

/// Operators that read fields without naming them.
const SEE_ALL: &[&str] = &[
    "$where",
    "$jsonSchema",
    "$function",
    "$accumulator",
    "$getField",
    "$text",
];
/// Variables that contain the whole document.
const WHOLE: &[&str] = &["$$ROOT", "$$CURRENT"];
/// Stages of an update that do not change fields which they do not name.
const LEAVE_OTHERS: &[&str] = &["$set", "$addFields", "$unset"];

/// Whether a filter, a sort or an expression may depend on the array.
#[must_use]
pub fn depends_on_array(shape: &OutlierShape, expression: &RawDocument) -> bool {
    may_read_field_in(expression, shape.array())
}

/// Whether a filter, an update or an expression names a field that is reserved for the proxy.
#[must_use]
pub fn names_own(shape: &OutlierShape, expression: RawBsonRef<'_>) -> bool {
    names(expression, shape.flag()) || names(expression, shape.control())
}

fn may_read_field_in(expression: &RawDocument, field: &str) -> bool {
    expression.iter().flatten().any(|(name, value)| {
        let name = name.as_str();
        is_within(name, field) || SEE_ALL.contains(&name) || may_read_field(value, field)
    })
}

fn may_read_field(expression: RawBsonRef<'_>, field: &str) -> bool {
    match expression {
        RawBsonRef::Document(document) => may_read_field_in(document, field),
        RawBsonRef::Array(array) => array
            .into_iter()
            .flatten()
            .any(|element| may_read_field(element, field)),
        RawBsonRef::String(text) => is_named_in(text, field) || WHOLE.iter().any(|whole| text.starts_with(whole)),
        RawBsonRef::JavaScriptCode(_) | RawBsonRef::JavaScriptCodeWithScope(_) => true,
        _ => false,
    }
}

fn names(expression: RawBsonRef<'_>, field: &str) -> bool {
    match expression {
        RawBsonRef::Document(document) => document
            .iter()
            .flatten()
            .any(|(name, value)| is_within(name.as_str(), field) || names(value, field)),
        RawBsonRef::Array(array) => array.into_iter().flatten().any(|element| names(element, field)),
        RawBsonRef::String(text) => is_named_in(text, field),
        _ => false,
    }
}

fn is_named_in(text: &str, field: &str) -> bool {
    is_within(text.trim_start_matches('$'), field)
}

/// Whether a path is that of a field, or of a value inside it.
fn is_within(path: &str, field: &str) -> bool {
    path.strip_prefix(field)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// How much an update may grow the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Not beyond its present length, or not beyond the threshold.
    None,
    /// By at most this number of elements.
    By(u32),
    /// Only known after the update.
    Unknown,
}

/// The effect of an update on the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateEffect {
    /// None: base documents are updated as if they had no extras.
    LeavesArray,
    /// The update changes the array, or depends on it.
    TouchesArray(Growth),
    /// The update names a field that is reserved for the proxy.
    TouchesReserved,
    /// A replacement that has the array's field more than once.
    RepeatsArray,
}

impl UpdateEffect {
    /// Classifies an update: operators, a replacement, or a pipeline.
    #[must_use]
    pub fn of(shape: &OutlierShape, update: RawBsonRef<'_>) -> Self {
        if names_own(shape, update) {
            return Self::TouchesReserved;
        }
        match update {
            RawBsonRef::Document(update) => match first_field(update) {
                Some((name, _)) if name.starts_with('$') => of_operators(shape, update),
                _ if repeats_array(shape, update) => Self::RepeatsArray,
                _ => Self::TouchesArray(of_replacement(shape, update)),
            },
            RawBsonRef::Array(stages) => of_stages(shape, stages),
            // mongod refuses the update.
            _ => Self::LeavesArray,
        }
    }

    /// How much the update may grow the array.
    #[must_use]
    pub fn growth(self) -> Growth {
        match self {
            Self::TouchesArray(growth) => growth,
            Self::LeavesArray | Self::TouchesReserved | Self::RepeatsArray => Growth::None,
        }
    }

    /// Classifies a statement of an `update`.
    #[must_use]
    pub fn of_statement(shape: &OutlierShape, statement: &UpdateStatement<'_>) -> Self {
        Self::of_upsert(
            shape,
            statement.change,
            Some(statement.filter).filter(|_| statement.upsert),
        )
    }

    /// Classifies an update that may insert a document. `inserted` is the filter of an upsert,
    /// because the inserted document has the filter's values, too.
    #[must_use]
    pub fn of_upsert(shape: &OutlierShape, update: RawBsonRef<'_>, inserted: Option<&RawDocument>) -> Self {
        match inserted.map(RawBsonRef::Document) {
            Some(filter) if names_own(shape, filter) => Self::TouchesReserved,
            _ => Self::of(shape, update),
        }
    }
}

/// Whether the values in a filter may make an array with more elements than a base document may
/// have.
#[must_use]
pub fn may_insert_long(shape: &OutlierShape, filter: &RawDocument) -> bool {
    holds_long(shape, RawBsonRef::Document(filter))
}

fn holds_long(shape: &OutlierShape, expression: RawBsonRef<'_>) -> bool {
    match expression {
        RawBsonRef::Array(array) => {
            is_long(shape, array) || array.into_iter().flatten().any(|value| holds_long(shape, value))
        }
        RawBsonRef::Document(document) => document.iter().flatten().any(|(_, value)| holds_long(shape, value)),
        _ => false,
    }
}

fn of_replacement(shape: &OutlierShape, document: &RawDocument) -> Growth {
    match get(document, shape.array()) {
        Some(RawBsonRef::Array(array)) if is_long(shape, array) => Growth::Unknown,
        _ => Growth::None,
    }
}

fn of_stages(shape: &OutlierShape, stages: &RawArray) -> UpdateEffect {
    let leaves_array = stages.into_iter().flatten().all(|stage| {
        let stage = stage.as_document();
        let name = stage.and_then(first_field).map(|(name, _)| name);
        name.is_some_and(|name| LEAVE_OTHERS.contains(&name))
            && stage.is_some_and(|stage| !depends_on_array(shape, stage))
    });
    if leaves_array {
        UpdateEffect::LeavesArray
    } else {
        UpdateEffect::TouchesArray(Growth::Unknown)
    }
}

fn of_operators(shape: &OutlierShape, update: &RawDocument) -> UpdateEffect {
    let mut change = UpdateEffect::LeavesArray;
    for (operator, paths) in update.iter().flatten() {
        let RawBsonRef::Document(paths) = paths else { continue };
        for (path, value) in paths.iter().flatten() {
            let Some(growth) = growth(shape, operator.as_str(), path.as_str(), value) else {
                continue;
            };
            change = match change {
                UpdateEffect::LeavesArray | UpdateEffect::TouchesArray(Growth::None) => {
                    UpdateEffect::TouchesArray(growth)
                }
                UpdateEffect::TouchesArray(_) if growth == Growth::None => change,
                _ => UpdateEffect::TouchesArray(Growth::Unknown),
            };
        }
    }
    change
}

/// How much one operator may grow the array. `None` if it changes another field.
fn growth(shape: &OutlierShape, operator: &str, path: &str, value: RawBsonRef<'_>) -> Option<Growth> {
    let array = shape.array();
    if operator == "$rename" {
        let is_target = value.as_str().is_some_and(|target| is_within(target, array));
        return match (is_within(path, array), is_target) {
            (_, true) => Some(Growth::Unknown),
            (true, false) => Some(Growth::None),
            (false, false) => None,
        };
    }
    if !is_within(path, array) {
        return None;
    }
    let rest = path.get(array.len()..).and_then(|rest| rest.strip_prefix('.'));
    Some(match (operator, rest) {
        ("$pull" | "$pullAll" | "$pop" | "$unset", _) => Growth::None,
        // mongod may add a document with more fields than `$each` as one element.
        ("$addToSet", None) if !only_appends(value) => Growth::Unknown,
        ("$push" | "$addToSet", None) => pushed(shape, value),
        (_, None) => match value {
            RawBsonRef::Array(value) if is_long(shape, value) => Growth::Unknown,
            _ => Growth::None,
        },
        (_, Some(rest)) => {
            let step = rest.split('.').next().unwrap_or_default();
            match step.parse::<u32>() {
                Ok(position) if position >= shape.threshold() => Growth::Unknown,
                // An existing element, by its position or by `$` and similar operators, or a
                // position within the threshold.
                _ => Growth::None,
            }
        }
    })
}

fn pushed(shape: &OutlierShape, value: RawBsonRef<'_>) -> Growth {
    let each = value
        .as_document()
        .and_then(|modifiers| get(modifiers, "$each").map(|each| (modifiers, each)));
    match each {
        None => Growth::By(1),
        Some((modifiers, RawBsonRef::Array(each))) => {
            let count = u32::try_from(each.into_iter().count()).unwrap_or(u32::MAX);
            if keeps_few(shape, modifiers) {
                Growth::None
            } else {
                Growth::By(count)
            }
        }
        Some(_) => Growth::Unknown,
    }
}

/// Whether the modifiers of a push leave at most as many elements as a base document may have.
fn keeps_few(shape: &OutlierShape, modifiers: &RawDocument) -> bool {
    let kept = get(modifiers, "$slice").and_then(as_whole_number);
    kept.is_some_and(|kept| kept.unsigned_abs() <= u64::from(shape.threshold()))
}

/// Whether the operand of a push has no modifier but `$each`. Elements are then appended to the array.
#[must_use]
pub fn only_appends(operand: RawBsonRef<'_>) -> bool {
    operand
        .as_document()
        .is_none_or(|modifiers| get(modifiers, "$each").is_none() || modifiers.iter().count() == 1)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::pattern::outlier::sample;

    #[test]
    fn push_with_modifiers_grows_the_array_by_a_known_number_of_elements() {
        let check = |operator: &str, operand: &RawDocument, expected| {
            let found = growth(&sample(), operator, "buyers", RawBsonRef::Document(operand));
            assert_eq!(found, Some(expected), "{operator}: {operand:?}");
        };
        check("$push", &rawdoc! { "$each": [1, 2] }, Growth::By(2));
        let many: bson::RawArrayBuf = (0..51).collect();
        check("$push", &rawdoc! { "$each": many }, Growth::By(51));
        check("$push", &rawdoc! { "$each": [1, 2], "$position": 0 }, Growth::By(2));
        check("$push", &rawdoc! { "$each": [1], "$sort": -1 }, Growth::By(1));
        check("$push", &rawdoc! { "$each": [1], "$slice": -51 }, Growth::By(1));
        check("$push", &rawdoc! { "$each": [1], "$slice": -50 }, Growth::None);
        check("$push", &rawdoc! { "$each": [1], "$slice": 0 }, Growth::None);
        check("$push", &rawdoc! { "$each": 1, "$slice": 10 }, Growth::Unknown);
        check("$addToSet", &rawdoc! { "$each": [1, 2] }, Growth::By(2));
        check("$addToSet", &rawdoc! { "$slice": 1, "$each": [] }, Growth::Unknown);
    }
}
