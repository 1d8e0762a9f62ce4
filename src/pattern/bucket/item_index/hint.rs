//! Finds the index that a hint names. A hint of an index does not change the result, so it is not sent
//! upstream, but the application's index must exist.

use bson::raw::{RawBsonRef, RawDocument};

use super::Indexes;
use super::key_pattern::same_key;
use super::recorded::omits_items;
use crate::command::document::{as_flag, as_whole_number, first_field, get, single};

/// The index that a hint names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IndexHint<'a> {
    /// An index that every collection has.
    Always,
    /// The index with that name.
    Name(&'a str),
    /// The index with that key pattern.
    Key(&'a RawDocument),
    /// `$natural` with an invalid direction, or together with another field. 6.0 accepts some of
    /// these, 7.0 none, so mongod must check the hint.
    Natural(&'a RawDocument),
}

/// What a hint means for a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintedIndex {
    /// There is no such index, or mongod does not use it.
    Missing,
    /// An index that contains all items: it does not change the result.
    Complete,
    /// An index that may leave items out of the result.
    OmitsItems,
    /// Several indexes have the key pattern.
    Ambiguous,
}

/// Parses a hint. `None` if it is neither a string nor a document.
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
        // Older clients wrap a name like this.
        Some(("$hint", RawBsonRef::String(name))) => IndexHint::Name(name),
        _ if pattern.is_empty() || same_key(pattern, &single("_id", 1)) => IndexHint::Always,
        _ => IndexHint::Key(pattern),
    })
}

/// Whether a hint makes mongod read the collection from its end.
#[must_use]
pub fn reads_backward(hint: RawBsonRef<'_>) -> bool {
    let direction = hint.as_document().and_then(|pattern| get(pattern, "$natural"));
    direction.and_then(as_whole_number).is_some_and(i64::is_negative)
}

fn is_direction(value: RawBsonRef<'_>) -> bool {
    let is_whole = !matches!(value, RawBsonRef::Double(number) if number.fract() != 0.0);
    is_whole && matches!(as_whole_number(value), Some(1 | -1))
}

impl IndexHint<'_> {
    /// The index that mongod would use.
    #[must_use]
    pub fn resolve(&self, indexes: &Indexes) -> HintedIndex {
        let mut found = match self {
            Self::Always | Self::Natural(_) => return HintedIndex::Complete,
            Self::Name(name) => indexes.named(name).into_iter().collect(),
            Self::Key(key) => indexes.with_key(key),
        };
        // mongod does not plan with a hidden index.
        found.retain(|spec| get(spec, "hidden").and_then(as_flag) != Some(true));
        match *found {
            [] => HintedIndex::Missing,
            [spec] if omits_items(spec) => HintedIndex::OmitsItems,
            [_] => HintedIndex::Complete,
            _ => HintedIndex::Ambiguous,
        }
    }
}
