//! Which index a hint names. It changes no answer, so it is not sent: the application's index must exist.

use bson::raw::{RawBsonRef, RawDocument};

use super::{Indexes, same_key};
use crate::command::document::{as_flag, as_whole_number, first_field, get, single};

/// What a hint asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IndexHint<'a> {
    /// What every collection has.
    Always,
    /// The index of that name.
    Name(&'a str),
    /// The index of that key pattern.
    Key(&'a RawDocument),
    /// `$natural` with a direction that is none, or beside a field: 6.0 takes some of these, 7.0 none. mongod
    /// has to judge it.
    Natural(&'a RawDocument),
}

/// Reads a hint; `None` for what is neither a string nor a document.
#[must_use]
pub fn hint(hint: RawBsonRef<'_>) -> Option<IndexHint<'_>> {
    let pattern = match hint {
        RawBsonRef::String(name) => return Some(IndexHint::Name(name)),
        RawBsonRef::Document(pattern) => pattern,
        _ => return None,
    };
    let only = first_field(pattern).filter(|_| pattern.iter().count() == 1);
    Some(match only {
        Some(("$natural", direction)) if is_direction(direction) => IndexHint::Always,
        _ if get(pattern, "$natural").is_some() => IndexHint::Natural(pattern),
        // A name as older clients wrapped it.
        Some(("$hint", RawBsonRef::String(name))) => IndexHint::Name(name),
        _ if pattern.is_empty() || same_key(pattern, &single("_id", 1)) => IndexHint::Always,
        _ => IndexHint::Key(pattern),
    })
}

fn is_direction(value: RawBsonRef<'_>) -> bool {
    let is_whole = !matches!(value, RawBsonRef::Double(number) if number.fract() != 0.0);
    is_whole && matches!(as_whole_number(value), Some(1 | -1))
}

impl IndexHint<'_> {
    /// Whether the application has such an index, and mongod would take it.
    #[must_use]
    pub fn is_met(&self, indexes: &Indexes) -> bool {
        let found = match self {
            Self::Always | Self::Natural(_) => return true,
            Self::Name(name) => indexes.named(name),
            Self::Key(key) => indexes.with_key(key),
        };
        // By one that is hidden mongod does not plan, whoever asks for it.
        found.is_some_and(|spec| get(spec, "hidden").and_then(as_flag) != Some(true))
    }
}
