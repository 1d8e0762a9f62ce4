//! Classifies queries and updates: whether they depend on the array or change it. Base documents alone answer
//! the others, at full speed.
//!
//! In doubt a command depends on the array: that costs time, not correctness.

use bson::raw::{RawArray, RawBsonRef, RawDocument};

use super::layout::is_long;
use crate::command::document::{first_field, get};
use crate::command::update::UpdateStatement;
use crate::pattern::shapes::OutlierShape;

/// Operators by which an expression or a filter sees fields that it does not name.
const SEE_ALL: &[&str] = &[
    "$where",
    "$jsonSchema",
    "$function",
    "$accumulator",
    "$getField",
    "$text",
];
/// Variables that stand for the whole document.
const WHOLE: &[&str] = &["$$ROOT", "$$CURRENT"];
/// Stages of an update that leave all fields which they do not name.
const LEAVE_OTHERS: &[&str] = &["$set", "$addFields", "$unset"];

/// Whether a filter, a sort or an expression may depend on the array.
#[must_use]
pub fn depends_on_array(shape: &OutlierShape, words: &RawDocument) -> bool {
    fields_see(words, shape.array())
}

/// Whether words name a field of the proxy's own.
#[must_use]
pub fn names_own(shape: &OutlierShape, words: RawBsonRef<'_>) -> bool {
    names(words, shape.flag()) || names(words, shape.control())
}

fn fields_see(words: &RawDocument, field: &str) -> bool {
    words.iter().flatten().any(|(name, value)| {
        let name = name.as_str();
        is_within(name, field) || SEE_ALL.contains(&name) || sees(value, field)
    })
}

fn sees(words: RawBsonRef<'_>, field: &str) -> bool {
    match words {
        RawBsonRef::Document(document) => fields_see(document, field),
        RawBsonRef::Array(array) => array.into_iter().flatten().any(|element| sees(element, field)),
        RawBsonRef::String(text) => is_named_in(text, field) || WHOLE.iter().any(|whole| text.starts_with(whole)),
        RawBsonRef::JavaScriptCode(_) | RawBsonRef::JavaScriptCodeWithScope(_) => true,
        _ => false,
    }
}

fn names(words: RawBsonRef<'_>, field: &str) -> bool {
    match words {
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

/// Whether a path is that of a field, or of something in it.
fn is_within(path: &str, field: &str) -> bool {
    path.strip_prefix(field)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// By how much a change may let the array grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Not beyond what it was, or beyond the threshold.
    None,
    /// By so many elements at its end, if by any.
    By(u32),
    /// Nobody knows before it is done.
    Unknown,
}

/// What a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateEffect {
    /// Not the array: base documents are changed as they would be without extras.
    LeavesArray,
    /// The array, or what depends on it.
    TouchesArray(Growth),
    /// Fields of the proxy's own.
    TouchesReserved,
}

impl UpdateEffect {
    /// What an update is about: operators, a replacement, or a pipeline.
    #[must_use]
    pub fn of(shape: &OutlierShape, update: RawBsonRef<'_>) -> Self {
        if names_own(shape, update) {
            return Self::TouchesReserved;
        }
        match update {
            RawBsonRef::Document(update) => match first_field(update) {
                Some((name, _)) if name.starts_with('$') => of_operators(shape, update),
                _ => Self::TouchesArray(of_replacement(shape, update)),
            },
            RawBsonRef::Array(stages) => of_stages(shape, stages),
            // mongod's to refuse.
            _ => Self::LeavesArray,
        }
    }

    /// What a statement is about.
    #[must_use]
    pub fn of_statement(shape: &OutlierShape, statement: &UpdateStatement<'_>) -> Self {
        Self::of_upsert(
            shape,
            statement.change,
            Some(statement.filter).filter(|_| statement.upsert),
        )
    }

    /// What an update is about that may insert a document: that has what its filter says, too.
    #[must_use]
    pub fn of_upsert(shape: &OutlierShape, update: RawBsonRef<'_>, inserted: Option<&RawDocument>) -> Self {
        match inserted.map(RawBsonRef::Document) {
            Some(filter) if names_own(shape, filter) => Self::TouchesReserved,
            _ => Self::of(shape, update),
        }
    }
}

/// Whether what a filter says may make an array of more elements than a base document may hold.
#[must_use]
pub fn may_insert_long(shape: &OutlierShape, filter: &RawDocument) -> bool {
    holds_long(shape, RawBsonRef::Document(filter))
}

fn holds_long(shape: &OutlierShape, words: RawBsonRef<'_>) -> bool {
    match words {
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

/// By how much one operator lets the array grow; `None` where it is about another field.
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
        ("$push" | "$addToSet", None) => pushed(shape, value),
        (_, None) => match value {
            RawBsonRef::Array(value) if is_long(shape, value) => Growth::Unknown,
            _ => Growth::None,
        },
        (_, Some(rest)) => {
            let step = rest.split('.').next().unwrap_or_default();
            match step.parse::<u32>() {
                Ok(position) if position >= shape.threshold() => Growth::Unknown,
                // An element that is there, by its position or as `$` and its like find it, or one within the
                // threshold.
                _ => Growth::None,
            }
        }
    })
}

fn pushed(shape: &OutlierShape, value: RawBsonRef<'_>) -> Growth {
    let each = value.as_document().and_then(|modifiers| {
        let each = get(modifiers, "$each")?;
        Some((each, modifiers.iter().count() == 1))
    });
    match each {
        None => Growth::By(1),
        Some((RawBsonRef::Array(each), true)) => {
            let count = u32::try_from(each.into_iter().count()).unwrap_or(u32::MAX);
            if count <= shape.threshold() {
                Growth::By(count)
            } else {
                Growth::Unknown
            }
        }
        Some(_) => Growth::Unknown,
    }
}
