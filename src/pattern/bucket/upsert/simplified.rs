//! Filters that newer servers simplify before they read the equalities of an upsert. The rules of 6.0 in
//! [`equalities`](super::equalities) would read others.

use std::collections::HashSet;

use bson::raw::{RawArray, RawBsonRef, RawDocument};

use super::compare;
use crate::command::document::first_field;
use crate::command::server_version::ServerVersion;
use crate::pattern::bucket::field_names::is_reference;

/// A part of a filter that servers simplify since a version.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Simplified {
    since: ServerVersion,
    /// The upsert, as the subject of an error message.
    pub what: &'static str,
}

impl Simplified {
    /// Whether a server simplifies the filter, or may do so because its version is unknown.
    #[must_use]
    pub fn may_apply(self, server: ServerVersion) -> bool {
        server == ServerVersion::default() || server >= self.since
    }
}

/// The first part of a filter that may have other equalities on newer servers. `None`: all versions read the
/// same ones.
#[must_use]
pub fn simplified(filter: &RawDocument) -> Option<Simplified> {
    if negates_every_document(RawBsonRef::Document(filter)) {
        return Some(Simplified {
            // 6.0.5 keeps the equalities of such a filter, and 6.0.27 does not.
            since: ServerVersion::new(6, 0, 6),
            what: "an upsert with a $nor in its filter that matches no document",
        });
    }
    if has_empty(RawBsonRef::Document(filter), &["$in"]) {
        return Some(Simplified {
            since: ServerVersion::new(7, 1, 0),
            what: "an upsert with an empty $in in its filter",
        });
    }
    let mut seen = SeenEqualities::default();
    seen.query(filter, 0).then_some(Simplified {
        since: ServerVersion::new(8, 0, 0),
        what: "an upsert with a repeated or twice negated equality in its filter",
    })
}

/// Whether a `$nor` has an alternative that matches every document, as in `{$nor: [{}, {a: 1}]}`.
fn negates_every_document(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Document(document) => document
            .iter()
            .flatten()
            .any(|(name, value)| (name == "$nor" && has_alternative_for_all(value)) || negates_every_document(value)),
        RawBsonRef::Array(array) => array.into_iter().flatten().any(negates_every_document),
        _ => false,
    }
}

fn has_alternative_for_all(alternatives: RawBsonRef<'_>) -> bool {
    let alternatives = alternatives.as_array().into_iter().flatten().flatten();
    let mut alternatives = alternatives.filter_map(RawBsonRef::as_document);
    alternatives.any(matches_every_document)
}

/// Whether a filter matches every document by its structure.
fn matches_every_document(filter: &RawDocument) -> bool {
    filter.iter().flatten().all(|(name, value)| match name.as_str() {
        "$comment" | "$alwaysTrue" => true,
        "$or" => has_alternative_for_all(value),
        "$and" => {
            let mut parts = value.as_array().into_iter().flatten().flatten();
            parts.all(|part| part.as_document().is_some_and(matches_every_document))
        }
        _ => false,
    })
}

/// Whether one of the operators has an empty list. mongod may simplify the filter to one that never matches,
/// which has no equalities.
fn has_empty(value: RawBsonRef<'_>, operators: &[&str]) -> bool {
    match value {
        RawBsonRef::Document(document) => document.iter().flatten().any(|(name, value)| {
            let name = name.as_str();
            let is_empty = operators.contains(&name) && value.as_array().is_some_and(RawArray::is_empty);
            let within: &[&str] = match name {
                "$nor" | "$not" => &["$in", "$nin"],
                _ => operators,
            };
            is_empty || has_empty(value, within)
        }),
        RawBsonRef::Array(array) => array.into_iter().flatten().any(|value| has_empty(value, operators)),
        _ => false,
    }
}

/// The equalities of a filter, in any nesting. mongod simplifies a filter as a boolean expression. The result
/// has other equalities only if one is repeated, as in `{$or: [{a: 1}, {a: 1, b: 2}]}`, or negated twice.
#[derive(Default)]
struct SeenEqualities<'a> {
    /// Paths with the [identity](compare::identity) of the value.
    seen: HashSet<(&'a str, Vec<u8>)>,
}

impl<'a> SeenEqualities<'a> {
    /// Reads a query under some negations. Whether an equality is repeated or negated twice.
    fn query(&mut self, query: &'a RawDocument, negations: usize) -> bool {
        query.iter().flatten().any(|(name, value)| match name.as_str() {
            "$and" | "$or" => self.branches(value, negations),
            "$nor" => self.branches(value, negations.saturating_add(1)),
            operator if operator.starts_with('$') => false,
            path => self.condition(path, value, negations),
        })
    }

    fn branches(&mut self, value: RawBsonRef<'a>, negations: usize) -> bool {
        let branches = value.as_array().into_iter().flatten().flatten();
        let mut branches = branches.filter_map(RawBsonRef::as_document);
        branches.any(|branch| self.query(branch, negations))
    }

    fn condition(&mut self, path: &'a str, value: RawBsonRef<'a>, negations: usize) -> bool {
        let negated = negations.saturating_add(1);
        let Some(operators) = operators_of(value) else {
            return self.equality(path, value, negations);
        };
        operators.iter().flatten().any(|(operator, value)| {
            let values = || value.as_array().into_iter().flatten().flatten();
            match operator.as_str() {
                "$eq" => self.equality(path, value, negations),
                "$ne" => self.equality(path, value, negated),
                "$in" if values().count() == 1 => values().any(|value| self.equality(path, value, negations)),
                "$nin" if values().count() == 1 => values().any(|value| self.equality(path, value, negated)),
                "$all" => {
                    let mut values = values().filter(|value| operators_of(*value).is_none());
                    values.any(|value| self.equality(path, value, negations))
                }
                "$not" => self.condition(path, value, negated),
                _ => false,
            }
        })
    }

    fn equality(&mut self, path: &'a str, value: RawBsonRef<'_>, negations: usize) -> bool {
        if matches!(value, RawBsonRef::RegularExpression(_)) {
            return false;
        }
        // Values that are not compared count as equal.
        let identity = compare::identity(value).unwrap_or_default();
        negations > 1 || !self.seen.insert((path, identity))
    }
}

/// The operators of a condition. `None` if it is a value.
fn operators_of(condition: RawBsonRef<'_>) -> Option<&RawDocument> {
    let document = condition.as_document()?;
    let is_operator = first_field(document).is_some_and(|(name, _)| name.starts_with('$'));
    (is_operator && !is_reference(document)).then_some(document)
}
