//! The changes of update operators in mongod's order: by path, whatever the operator.

use std::cmp::Ordering;
use std::collections::HashSet;

use bson::raw::{RawBsonRef, RawDocument};

use super::UpsertError;
use crate::command::error::ErrorCode;
use crate::pattern::bucket::field_names::is_positional;

/// The most parts of a path. A deeper document could not be stored.
const MAX_PARTS: usize = 180;
/// The most paths of one update, and of one filter. Each is searched among the existing fields.
pub(super) const MAX_PATHS: usize = 5_000;

/// The change of one operator at one path.
#[derive(Clone, Debug)]
pub(super) struct PathChange<'a> {
    /// The operator's name, with the `$`.
    pub(super) operator: &'a str,
    /// The path. For `$rename`, the new path of the field.
    pub(super) path: &'a str,
    /// The parts of the path.
    pub(super) parts: Vec<&'a str>,
    /// The operand. For `$rename`, the old path of the field.
    pub(super) value: RawBsonRef<'a>,
}

impl<'a> PathChange<'a> {
    fn new(operator: &'a str, path: &'a str, value: RawBsonRef<'a>) -> Self {
        Self {
            operator,
            path,
            parts: path.split('.').collect(),
            value,
        }
    }
}

/// Parses an update's operators.
pub(super) fn in_order(operators: &RawDocument) -> Result<Vec<PathChange<'_>>, UpsertError> {
    let mut changes = Vec::new();
    let mut taken = ChangedPaths::default();
    for (operator, paths) in operators.iter().flatten() {
        let Some(paths) = paths.as_document() else {
            return Err(UpsertError::unsupported(format!("a malformed {operator}")));
        };
        for (path, value) in paths.iter().flatten() {
            let (operator, path) = (operator.as_str(), path.as_str());
            check_path(path)?;
            taken.take(path)?;
            let change = match (operator, value) {
                ("$rename", RawBsonRef::String(to)) => {
                    check_path(to)?;
                    taken.take(to)?;
                    PathChange::new(operator, to, RawBsonRef::String(path))
                }
                _ => PathChange::new(operator, path, value),
            };
            changes.push(change);
        }
    }
    if changes.len() > MAX_PATHS {
        return Err(UpsertError::unsupported(format!(
            "an upsert of more than {MAX_PATHS} paths"
        )));
    }
    check_names(&changes)?;
    changes.sort_by(|one, other| compare(&one.parts, &other.parts));
    Ok(changes)
}

/// Refuses paths for which mongod has special rules, or which it refuses.
pub(super) fn check_path(path: &str) -> Result<(), UpsertError> {
    let parts = || path.split('.');
    if parts().any(str::is_empty) {
        return Err(UpsertError::unsupported("an upsert of a field without a name"));
    }
    // The filter has matched no document, so a positional operator has no element.
    if parts().any(is_positional) {
        return Err(UpsertError::unsupported(format!("an upsert with the path '{path}'")));
    }
    if parts().count() > MAX_PARTS {
        return Err(UpsertError::unsupported(format!(
            "an upsert of a path of more than {MAX_PARTS} parts"
        )));
    }
    Ok(())
}

/// The changed paths. No two may be the same or be a prefix of one another.
#[derive(Default)]
struct ChangedPaths<'a> {
    whole: HashSet<&'a str>,
    led_through: HashSet<&'a str>,
}

impl<'a> ChangedPaths<'a> {
    fn take(&mut self, path: &'a str) -> Result<(), UpsertError> {
        let parents = || path.match_indices('.').filter_map(|(end, _)| path.get(..end));
        let at = parents()
            .chain([path])
            .find(|parent| self.whole.contains(parent))
            .or_else(|| self.led_through.contains(path).then_some(path));
        if let Some(at) = at {
            let message = format!("Updating the path '{path}' would create a conflict at '{at}'");
            return Err(UpsertError::mongod(ErrorCode::ConflictingUpdateOperators, message));
        }
        self.led_through.extend(parents());
        self.whole.insert(path);
        Ok(())
    }
}

fn is_number(part: &str) -> bool {
    part.bytes().all(|byte| byte.is_ascii_digit())
}

/// mongod orders numeric names by value, all other names by their bytes. Both are one order only if
/// no other name begins with a digit.
fn check_names(changes: &[PathChange<'_>]) -> Result<(), UpsertError> {
    let parts = || changes.iter().flat_map(|change| change.parts.iter().copied());
    if !parts().any(is_number) {
        return Ok(());
    }
    let is_odd = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_digit())
            && (!is_number(part) || (part.len() > 1 && part.starts_with('0')))
    };
    match parts().find(|part| is_odd(part)) {
        Some(part) => Err(UpsertError::unsupported(format!(
            "an upsert of a field '{part}' beside numbers"
        ))),
        None => Ok(()),
    }
}

fn compare(one: &[&str], other: &[&str]) -> Ordering {
    let differing = one.iter().zip(other).find(|(one, other)| one != other);
    let Some((one_part, other_part)) = differing else {
        return one.len().cmp(&other.len());
    };
    let by_bytes = one_part.cmp(other_part);
    if is_number(one_part) && is_number(other_part) {
        // Without leading zeros, the longer number is the larger one.
        return one_part.len().cmp(&other_part.len()).then(by_bytes);
    }
    by_bytes
}
