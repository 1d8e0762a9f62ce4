//! The entries of an index for one document: one for each combination of values, if a path leads through an
//! array.

use std::collections::BTreeSet;

use bson::raw::{RawBsonRef, RawDocument};

use super::key_string::KeyString;
use crate::command::document::get;

/// Entries of one document, at most. mongod has no limit; a forecast needs no more.
const MOST: usize = 10_000;

/// The distinct entries of a document in an index on these paths.
pub(super) fn entries(paths: &[String], document: &RawDocument) -> BTreeSet<KeyString> {
    let cursors = paths
        .iter()
        .map(|path| PathCursor {
            path,
            at: 0,
            value: Some(RawBsonRef::Document(document)),
            is_element: false,
        })
        .collect();
    let mut found = BTreeSet::new();
    expand(cursors, &mut found);
    found
}

/// Whether a path leads to `true`.
pub(super) fn is_true(document: &RawDocument, path: &str) -> bool {
    let cursor = PathCursor {
        path,
        at: 0,
        value: Some(RawBsonRef::Document(document)),
        is_element: false,
    };
    cursor.follow().value == Some(RawBsonRef::Boolean(true))
}

/// A path that has been followed for some of its parts.
#[derive(Clone, Copy)]
struct PathCursor<'a> {
    path: &'a str,
    /// Bytes of the path that have been followed.
    at: usize,
    value: Option<RawBsonRef<'a>>,
    /// Whether the value is an element of an array at the end of the path.
    is_element: bool,
}

impl<'a> PathCursor<'a> {
    /// The part of the path that is left.
    fn rest(&self) -> &'a str {
        self.path.get(self.at..).unwrap_or_default()
    }

    /// The part of the path that has been followed.
    fn followed(&self) -> &'a str {
        self.path.get(..self.at).unwrap_or_default()
    }

    /// Follows the path to its end or to an array.
    fn follow(mut self) -> Self {
        while !self.rest().is_empty() {
            let Some(RawBsonRef::Document(document)) = self.value else {
                if !matches!(self.value, Some(RawBsonRef::Array(_))) || self.is_element {
                    self.value = None;
                    self.at = self.path.len();
                }
                return self;
            };
            let name = self.rest().split('.').next().unwrap_or_default();
            self.value = get(document, name);
            self.at = (self.at + name.len() + 1).min(self.path.len());
            self.is_element = false;
        }
        self
    }

    fn array(&self) -> Option<&'a bson::raw::RawArray> {
        match self.value {
            Some(RawBsonRef::Array(array)) if !self.is_element => Some(array),
            _ => None,
        }
    }
}

fn expand(cursors: Vec<PathCursor<'_>>, found: &mut BTreeSet<KeyString>) {
    if found.len() >= MOST {
        return;
    }
    let cursors: Vec<_> = cursors.into_iter().map(PathCursor::follow).collect();
    let Some((array, followed)) = cursors
        .iter()
        .find_map(|cursor| Some((cursor.array()?, cursor.followed())))
    else {
        let mut key = KeyString::default();
        for cursor in &cursors {
            key.push(cursor.value);
        }
        key.end();
        found.insert(key);
        return;
    };
    // Paths through the same array take the same element.
    let with = |value: Option<RawBsonRef<'_>>, found: &mut BTreeSet<KeyString>| {
        let cursors = cursors.iter().map(|cursor| {
            let is_through = cursor.array().is_some() && cursor.followed() == followed;
            if is_through {
                PathCursor {
                    value,
                    is_element: true,
                    ..*cursor
                }
            } else {
                *cursor
            }
        });
        expand(cursors.collect(), found);
    };
    let mut is_empty = true;
    for element in array.into_iter().flatten() {
        is_empty = false;
        with(Some(element), found);
    }
    if is_empty {
        with(Some(RawBsonRef::Undefined), found);
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn an_array_has_an_entry_for_each_distinct_combination() {
        let document = rawdoc! {
            "k": 1, "items": [{ "a": 1, "b": 2 }, { "a": 1, "b": 3 }, { "a": 1, "b": 2 }], "tags": ["x", "y"], "none": [],
            "nested": [[1, 2]],
        };
        let check = |paths: &[&str], expected: usize| {
            let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
            assert_eq!(entries(&paths, &document).len(), expected, "{paths:?}");
        };
        check(&["k"], 1);
        check(&["missing.path"], 1);
        check(&["items.a"], 1);
        check(&["k", "items.b"], 2);
        check(&["items.a", "items.b"], 2);
        check(&["tags"], 2);
        check(&["tags", "k.x"], 1 + 1);
        check(&["none"], 1);
        check(&["items.a.c"], 1);
        check(&["nested"], 1);
    }
}
