//! The difference between two versions of a nested value, as mongod computes it for the result of a pipeline.
//!
//! mongod describes the fields of a nested document, and the elements of a nested array, unless the value
//! itself is shorter. The lengths are those of its oplog's format (`document_diff_calculator.cpp`,
//! `document_diff_serialization.h`).

use bson::raw::{RawArray, RawBsonRef, RawDocument};

use super::update_description::{UpdateDescription, joined};
use crate::command::document::length_of;
use crate::pattern::bucket::key::same_bytes;

/// The length of a difference without changes.
const EMPTY_DOCUMENT: usize = 5;
const EMPTY_ARRAY: usize = 9;
/// The length of the document that contains all updated, inserted or removed fields.
const SECTION: usize = 8;
/// The length of the new size of an array.
const NEW_SIZE: usize = 7;
/// What a field of the difference has besides its name and its value: a type and a NUL.
const FIELD: usize = 2;

/// The changes of a value, and their length in bytes.
struct Difference<'a> {
    changes: Vec<ValueChange<'a>>,
    length: usize,
}

enum ValueChange<'a> {
    Updated { path: String, value: RawBsonRef<'a> },
    Removed { path: String },
    Truncated { path: String, size: i32 },
}

/// Adds the change of a value to a description.
pub(super) fn describe(description: &mut UpdateDescription, path: &str, old: RawBsonRef<'_>, new: RawBsonRef<'_>) {
    if same_bytes(old, new) {
        return;
    }
    let Some(difference) = Difference::of(path, old, new) else {
        return description.update(path, new);
    };
    for change in difference.changes {
        match change {
            ValueChange::Updated { path, value } => description.update(&path, value),
            ValueChange::Removed { path } => description.remove(path),
            ValueChange::Truncated { path, size } => description.truncate(&path, RawBsonRef::Int32(size)),
        }
    }
}

impl<'a> Difference<'a> {
    /// `None` if the new value is described as a whole.
    fn of(path: &str, old: RawBsonRef<'a>, new: RawBsonRef<'a>) -> Option<Self> {
        let difference = match (old, new) {
            (RawBsonRef::Document(old), RawBsonRef::Document(new)) => Self::of_documents(path, old, new),
            (RawBsonRef::Array(old), RawBsonRef::Array(new)) => Self::of_arrays(path, old, new),
            _ => return None,
        };
        (difference.length < length_of(new)).then_some(difference)
    }

    /// Fields that come in another order are inserted again.
    fn of_documents(path: &str, old: &'a RawDocument, new: &'a RawDocument) -> Self {
        let mut olds = old.iter().flatten().peekable();
        let mut news = new.iter().flatten().peekable();
        let (mut updated, mut inserted) = (FieldSection::default(), FieldSection::default());
        let mut removed: Vec<&str> = Vec::new();
        let mut nested = Self {
            changes: Vec::new(),
            length: EMPTY_DOCUMENT,
        };
        while let (Some((name, old)), Some((new_name, new))) = (olds.peek().copied(), news.peek().copied()) {
            olds.next();
            if name != new_name {
                removed.push(name.as_str());
                continue;
            }
            news.next();
            if same_bytes(old, new) {
                continue;
            }
            let path = joined(path, name.as_str());
            match Self::of(&path, old, new) {
                Some(inner) => nested.add(name.as_str().len().saturating_add(1), inner),
                None => updated.add(path, name.as_str(), new),
            }
        }
        removed.extend(olds.map(|(name, _)| name.as_str()));
        for (name, value) in news {
            removed.retain(|removed| *removed != name.as_str());
            inserted.add(joined(path, name.as_str()), name.as_str(), value);
        }
        let removals = removed
            .iter()
            .map(|name| name.len().saturating_add(FIELD).saturating_add(1));
        let section = if removed.is_empty() { 0 } else { SECTION };
        let lengths = [
            updated.length(),
            inserted.length(),
            section,
            removals.sum(),
            nested.length,
        ];
        let removed = removed.iter().map(|name| ValueChange::Removed {
            path: joined(path, name),
        });
        let changes = removed.chain(updated.changes).chain(inserted.changes);
        Self {
            changes: changes.chain(nested.changes).collect(),
            length: lengths.iter().sum(),
        }
    }

    fn of_arrays(path: &str, old: &'a RawArray, new: &'a RawArray) -> Self {
        let mut difference = Self {
            changes: Vec::new(),
            length: EMPTY_ARRAY,
        };
        let mut olds = old.into_iter().flatten();
        let mut size = 0_i32;
        for new in new.into_iter().flatten() {
            let path = format!("{path}.{size}");
            // A letter before the position.
            let name = size.to_string().len().saturating_add(1);
            size = size.saturating_add(1);
            let old = olds.next();
            if old.is_some_and(|old| same_bytes(old, new)) {
                continue;
            }
            let inner = old.and_then(|old| Self::of(&path, old, new));
            let inner = inner.unwrap_or_else(|| Self {
                changes: vec![ValueChange::Updated { path, value: new }],
                length: length_of(new),
            });
            difference.add(name, inner);
        }
        if olds.next().is_some() {
            difference.length = difference.length.saturating_add(NEW_SIZE);
            difference.changes.push(ValueChange::Truncated {
                path: path.to_owned(),
                size,
            });
        }
        difference
    }

    /// Adds the difference of an inner value. `name`: the length of its name.
    fn add(&mut self, name: usize, inner: Self) {
        let parts = [self.length, name, FIELD, inner.length];
        self.length = parts.iter().sum();
        self.changes.extend(inner.changes);
    }
}

/// The updated or the inserted fields of a document.
#[derive(Default)]
struct FieldSection<'a> {
    changes: Vec<ValueChange<'a>>,
    fields: usize,
}

impl<'a> FieldSection<'a> {
    fn add(&mut self, path: String, name: &str, value: RawBsonRef<'a>) {
        let parts = [self.fields, name.len(), FIELD, length_of(value)];
        self.fields = parts.iter().sum();
        self.changes.push(ValueChange::Updated { path, value });
    }

    fn length(&self) -> usize {
        if self.changes.is_empty() {
            0
        } else {
            self.fields.saturating_add(SECTION)
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::raw::RawDocumentBuf;
    use bson::rawdoc;

    use super::*;

    fn check(old: &RawDocument, new: &RawDocument, expected: &RawDocument) {
        let mut description = UpdateDescription::default();
        describe(
            &mut description,
            "a",
            RawBsonRef::Document(old),
            RawBsonRef::Document(new),
        );
        assert_eq!(*description.document(), *expected, "{old:?} {new:?}");
    }

    fn updated(fields: RawDocumentBuf) -> RawDocumentBuf {
        rawdoc! { "updatedFields": fields, "removedFields": [], "truncatedArrays": [] }
    }

    #[test]
    fn a_short_value_is_described_as_a_whole() {
        // Sections and names make the difference 20 bytes long, one more than the value.
        check(
            &rawdoc! { "x": 1, "y": 2 },
            &rawdoc! { "x": 1, "y": 3 },
            &updated(rawdoc! { "a": { "x": 1, "y": 3 } }),
        );
        check(
            &rawdoc! { "x": 1_i64, "y": 2 },
            &rawdoc! { "x": 1_i64, "y": 3 },
            &updated(rawdoc! { "a.y": 3 }),
        );
        check(&rawdoc! { "x": 1 }, &rawdoc! {}, &updated(rawdoc! { "a": {} }));
        let text = "a text that is long enough";
        let expected = rawdoc! { "updatedFields": {}, "removedFields": ["a.x"], "truncatedArrays": [] };
        check(&rawdoc! { "x": 1, "y": text }, &rawdoc! { "y": text }, &expected);
        check(
            &rawdoc! { "x": 1, "y": text },
            &rawdoc! { "y": text, "x": 1 },
            &updated(rawdoc! { "a.x": 1 }),
        );
    }

    #[test]
    fn elements_of_arrays_have_positions() {
        let text = "a text that is long enough";
        let old = rawdoc! { "list": [text, 2, { "text": text, "n": 1 }, 4], "z": text };
        let new = rawdoc! { "list": [text, 3, { "text": text, "n": 2 }], "z": text };
        let expected = rawdoc! {
            "updatedFields": { "a.list.1": 3, "a.list.2.n": 2 },
            "removedFields": [],
            "truncatedArrays": [{ "field": "a.list", "newSize": 3 }],
        };
        check(&old, &new, &expected);
    }
}
