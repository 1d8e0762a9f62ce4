//! Conditions of a filter on items, by the names under which buckets store the fields.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::key_position;
use crate::command::document::{append_fields, array_of, put, single};
use crate::pattern::shapes::BucketShape;
use crate::pattern::unwound::{asks_for_nearness, names_nothing};

/// A condition on items by stored names, for an `$elemMatch`. `None` if an `$elemMatch` cannot express the
/// condition.
pub(super) fn item_condition(shape: &BucketShape, name: &str, value: RawBsonRef<'_>) -> Option<RawDocumentBuf> {
    match name {
        "$or" | "$nor" | "$and" => {
            let branches = value.as_array()?.into_iter().map(|branch| {
                let mut renamed = RawDocumentBuf::new();
                for field in branch.ok()?.as_document()? {
                    let (name, value) = field.ok()?;
                    if key_position(shape, name.as_str()).is_some() {
                        return None;
                    }
                    append_fields(&mut renamed, &item_condition(shape, name.as_str(), value)?);
                }
                Some(renamed)
            });
            let branches: Vec<RawDocumentBuf> = branches.collect::<Option<_>>()?;
            Some(single(name, array_of(&branches)))
        }
        // `$expr`, `$where`, `$text`, `$jsonSchema` and others do not apply to an element of an array.
        name if name.starts_with('$') => None,
        _ if asks_for_nearness(value) => None,
        // mongod 6.0.5 crashes on some conditions on a field with an empty name inside an `$elemMatch` (in
        // `PlanEnumerator::getIndexedPreds`), so these conditions are not sent.
        name if name.split('.').any(str::is_empty) || names_nothing(value) => None,
        name => {
            let (root, rest) = name
                .split_once('.')
                .map_or((name, None), |(root, rest)| (root, Some(rest)));
            let root = shape.rename().stored(root);
            let path = rest.map_or_else(|| root.to_owned(), |rest| format!("{root}.{rest}"));
            Some(single(&path, value))
        }
    }
}

/// The conditions with `path` as a prefix of each field name.
pub(super) fn below(path: &str, conditions: &RawDocument) -> RawDocumentBuf {
    let mut moved = RawDocumentBuf::new();
    for (name, value) in conditions.iter().flatten() {
        match (name.as_str(), value) {
            (name @ ("$and" | "$or" | "$nor"), RawBsonRef::Array(branches)) => {
                let branches = branches.into_iter().flatten().filter_map(RawBsonRef::as_document);
                let branches: Vec<RawDocumentBuf> = branches.map(|branch| below(path, branch)).collect();
                put(&mut moved, name, array_of(&branches));
            }
            (name, value) => put(&mut moved, &format!("{path}.{name}"), value),
        }
    }
    moved
}
