//! The `updateDescription` of an item's event.
//!
//! mongod describes the update of a page. The part below the item's position is the description of the
//! item's update, because the statements on pages contain the application's own operators. If mongod
//! describes the array of items as a whole, the description is the [difference](UpdateDescription::between)
//! between the two versions of the item.

use std::collections::HashSet;

use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::change_record::AppliedUpdate;
use super::difference::describe;
use crate::command::document::{get, put};
use crate::command::update::UpdateForm;
use crate::pattern::bucket::key::same_bytes;
use crate::pattern::bucket::number::is_nan;
use crate::pattern::shapes::BucketShape;

/// The change of an item as mongod describes it on the page.
#[derive(Clone, Debug)]
pub(super) enum ItemUpdate {
    /// Fields of the item changed.
    Fields(UpdateDescription),
    /// The item was replaced.
    Whole,
    /// mongod describes the array of items as a whole. The application's update: operators without a record.
    Unknown(AppliedUpdate),
}

/// Changed fields by path, as in mongod's `updateDescription`.
#[derive(Clone, Debug, Default)]
pub(super) struct UpdateDescription {
    updated: RawDocumentBuf,
    removed: RawArrayBuf,
    truncated: RawArrayBuf,
}

/// An item before and after an update, as the application knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemVersions<'a> {
    /// The position on the page.
    pub(super) position: usize,
    pub(super) before: &'a RawDocument,
    pub(super) after: &'a RawDocument,
}

impl ItemUpdate {
    /// Reads the change of an item from the `updateDescription` of its page. Fields of the item that have
    /// only another place in the stored item are left out.
    pub(super) fn of(shape: &BucketShape, page: &RawDocument, item: ItemVersions<'_>) -> Self {
        let own = ItemPath {
            shape,
            prefix: format!("{}.{}", shape.items(), item.position),
        };
        // Only top-level fields have another place. A path can also be the name of another field.
        let is_kept = |field: &str, value| {
            !field.contains('.')
                && !is_nan(value)
                && get(item.before, field).is_some_and(|before| same_bytes(before, value))
        };
        let mut description = UpdateDescription::default();
        for (path, value) in get(page, "updatedFields")
            .and_then(RawBsonRef::as_document)
            .into_iter()
            .flatten()
            .flatten()
        {
            if path.as_str() == own.prefix {
                return Self::Whole;
            }
            if path.as_str() == shape.items() {
                return Self::Unknown(UpdateForm::Operators.into());
            }
            if let Some(field) = own.field(path.as_str()).filter(|field| !is_kept(field, value)) {
                put(&mut description.updated, &field, value);
            }
        }
        for path in array(page, "removedFields") {
            let field = path.as_str().and_then(|path| own.field(path));
            if let Some(field) = field.filter(|field| field.contains('.') || get(item.after, field).is_none()) {
                description.removed.push(field);
            }
        }
        for truncated in array(page, "truncatedArrays").filter_map(RawBsonRef::as_document) {
            let path = get(truncated, "field").and_then(RawBsonRef::as_str);
            if let Some(field) = path.and_then(|path| own.field(path)) {
                let size = get(truncated, "newSize").unwrap_or(RawBsonRef::Null);
                description.truncate(&field, size);
            }
        }
        if description.is_empty() {
            Self::Unknown(UpdateForm::Operators.into())
        } else {
            Self::Fields(description)
        }
    }
}

/// The positions of the items in which an operator has computed a `NaN`. mongod reports a change even if the
/// value was the same `NaN` before.
pub(super) fn computed_nan(shape: &BucketShape, page: &RawDocument) -> HashSet<usize> {
    let updated = get(page, "updatedFields").and_then(RawBsonRef::as_document);
    let not_numbers = updated
        .into_iter()
        .flatten()
        .flatten()
        .filter(|(_, value)| is_nan(*value));
    let position = |path: &str| {
        let inside = path.strip_prefix(shape.items())?.strip_prefix('.')?;
        inside.split_once('.')?.0.parse().ok()
    };
    not_numbers.filter_map(|(path, _)| position(path.as_str())).collect()
}

fn array<'a>(document: &'a RawDocument, name: &str) -> impl Iterator<Item = RawBsonRef<'a>> {
    let array = get(document, name).and_then(RawBsonRef::as_array);
    array.into_iter().flatten().flatten()
}

/// The path of an item on its page.
struct ItemPath<'a> {
    shape: &'a BucketShape,
    prefix: String,
}

impl ItemPath<'_> {
    /// The application's path of a field of the item. `None` for a path that is not inside the item.
    fn field(&self, path: &str) -> Option<String> {
        let inside = path.strip_prefix(&self.prefix)?.strip_prefix('.')?;
        let (first, rest) = inside
            .split_once('.')
            .map_or((inside, None), |(first, rest)| (first, Some(rest)));
        let first = self.shape.rename().item(first);
        Some(rest.map_or_else(|| first.to_owned(), |rest| format!("{first}.{rest}")))
    }
}

impl UpdateDescription {
    /// The difference between two versions of an item: changed fields of nested documents and elements of
    /// arrays by their own paths, unless an operator stored the whole value. After a pipeline, mongod describes
    /// a short value [as a whole](describe).
    pub(super) fn between(before: &RawDocument, after: &RawDocument, update: &AppliedUpdate) -> Self {
        let mut description = Self::default();
        if update.form != UpdateForm::Pipeline {
            description.add_fields("", Versions { before, after }, &update.assigned);
            return description;
        }
        // The stored item may have its fields in another order.
        description.remove_fields("", before, after);
        for (name, new) in after.iter().flatten() {
            match get(before, name.as_str()) {
                Some(old) => describe(&mut description, name.as_str(), old, new),
                None => description.update(name.as_str(), new),
            }
        }
        description
    }

    pub(super) fn update(&mut self, path: &str, value: RawBsonRef<'_>) {
        put(&mut self.updated, path, value);
    }

    pub(super) fn remove(&mut self, path: String) {
        self.removed.push(path);
    }

    /// `{updatedFields, removedFields, truncatedArrays}`
    pub(super) fn document(&self) -> RawDocumentBuf {
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("updatedFields"), &self.updated);
        document.append(cstr!("removedFields"), &self.removed);
        document.append(cstr!("truncatedArrays"), &self.truncated);
        document
    }

    fn is_empty(&self) -> bool {
        self.updated.is_empty() && self.removed.is_empty() && self.truncated.is_empty()
    }

    pub(super) fn truncate(&mut self, field: &str, size: RawBsonRef<'_>) {
        let mut truncated = RawDocumentBuf::new();
        truncated.append(cstr!("field"), field);
        truncated.append(cstr!("newSize"), size);
        self.truncated.push(truncated);
    }

    fn remove_fields(&mut self, prefix: &str, before: &RawDocument, after: &RawDocument) {
        for (name, _) in before.iter().flatten() {
            if get(after, name.as_str()).is_none() {
                self.removed.push(joined(prefix, name.as_str()));
            }
        }
    }

    /// Adds the changes of the fields of a document. `assigned`: the paths that are described as a whole.
    fn add_fields(&mut self, prefix: &str, Versions { before, after }: Versions<&RawDocument>, assigned: &[String]) {
        self.remove_fields(prefix, before, after);
        for (name, after) in after.iter().flatten() {
            let path = joined(prefix, name.as_str());
            match get(before, name.as_str()) {
                Some(before) => self.add_value(&path, Versions { before, after }, assigned),
                None => put(&mut self.updated, &path, after),
            }
        }
    }

    fn add_elements(&mut self, path: &str, Versions { before, after }: Versions<&RawArray>, assigned: &[String]) {
        let mut old = before.into_iter().flatten();
        let mut size = 0_i32;
        for after in after.into_iter().flatten() {
            let path = format!("{path}.{size}");
            match old.next() {
                Some(before) => self.add_value(&path, Versions { before, after }, assigned),
                None => put(&mut self.updated, &path, after),
            }
            size = size.saturating_add(1);
        }
        if old.next().is_some() {
            self.truncate(path, RawBsonRef::Int32(size));
        }
    }

    fn add_value(&mut self, path: &str, Versions { before, after }: Versions<RawBsonRef<'_>>, assigned: &[String]) {
        let is_assigned = assigned.iter().any(|assigned| assigned == path);
        match (before, after) {
            _ if same_bytes(before, after) => {}
            (RawBsonRef::Document(before), RawBsonRef::Document(after)) if !is_assigned && !after.is_empty() => {
                self.add_fields(path, Versions { before, after }, assigned);
            }
            (RawBsonRef::Array(before), RawBsonRef::Array(after)) if !is_assigned && !after.is_empty() => {
                self.add_elements(path, Versions { before, after }, assigned);
            }
            _ => put(&mut self.updated, path, after),
        }
    }
}

/// A value before and after an update.
#[derive(Clone, Copy)]
struct Versions<T> {
    before: T,
    after: T,
}

pub(super) fn joined(prefix: &str, name: &str) -> String {
    if prefix.is_empty() {
        name.to_owned()
    } else {
        format!("{prefix}.{name}")
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    #[test]
    fn the_part_of_a_page_below_an_item() {
        let namespace = NamespacePattern::parse("d.c").unwrap();
        let mut options = BucketOptions::new(namespace, vec!["k".to_owned()]);
        options.rename.insert("quantity".to_owned(), "qty".to_owned());
        let shape = BucketShape::new(options).unwrap();
        let page = rawdoc! {
            "updatedFields": { "count": 3, "history.1.qty": 4, "history.1.a.b": 5, "history.1.x": 1, "history.10.x": 6 },
            "removedFields": ["history.1.qty.x", "history.1.x", "history.2.y"],
            "truncatedArrays": [{ "field": "history.1.list", "newSize": 2 }, { "field": "history", "newSize": 2 }],
        };
        let same = rawdoc! { "x": 1 };
        let item = |position| ItemVersions {
            position,
            before: &same,
            after: &same,
        };
        let ItemUpdate::Fields(description) = ItemUpdate::of(&shape, &page, item(1)) else {
            panic!("not fields");
        };
        let expected = rawdoc! {
            "updatedFields": { "quantity": 4, "a.b": 5 },
            "removedFields": ["quantity.x"],
            "truncatedArrays": [{ "field": "list", "newSize": 2 }],
        };
        assert_eq!(description.document(), expected);
        assert!(matches!(ItemUpdate::of(&shape, &page, item(3)), ItemUpdate::Unknown(_)));
        let whole = rawdoc! { "updatedFields": { "history.1": { "_id": 1 } } };
        assert!(matches!(ItemUpdate::of(&shape, &whole, item(1)), ItemUpdate::Whole));
    }

    #[test]
    fn a_computed_nan_is_a_change() {
        let namespace = NamespacePattern::parse("d.c").unwrap();
        let shape = BucketShape::new(BucketOptions::new(namespace, vec!["k".to_owned()])).unwrap();
        let nan = f64::NAN;
        let page = rawdoc! { "updatedFields": { "history.3.n": nan, "history.5.a.b": nan, "history.7.n": 1, "history.8": nan, "count": nan } };
        assert_eq!(computed_nan(&shape, &page), HashSet::from([3, 5]));
    }

    #[test]
    fn differences_have_paths() {
        let before = rawdoc! { "_id": 1, "a": { "b": 1, "c": 2 }, "list": [1, 2, 3], "x": 5, "same": { "y": [1] } };
        let after =
            rawdoc! { "_id": 1, "a": { "b": 1, "d": 3 }, "list": [1, 4], "x": 5.0, "same": { "y": [1] }, "new": [] };
        let expected = rawdoc! {
            "updatedFields": { "a.d": 3, "list.1": 4, "x": 5.0, "new": [] },
            "removedFields": ["a.c"],
            "truncatedArrays": [{ "field": "list", "newSize": 2 }],
        };
        let between = |update: &AppliedUpdate| UpdateDescription::between(&before, &after, update).document();
        assert_eq!(between(&UpdateForm::Operators.into()), expected);
        let whole = rawdoc! {
            "updatedFields": { "a": { "b": 1, "d": 3 }, "list": [1, 4], "x": 5.0, "new": [] },
            "removedFields": [],
            "truncatedArrays": [],
        };
        assert_eq!(between(&UpdateForm::Pipeline.into()), whole);
        let operators = rawdoc! {
            "$set": { "a": { "b": 1, "d": 3 }, "x": 5.0, "new": [] },
            "$pull": { "list": { "$gt": 1 } },
            "$push": { "list": 4 },
        };
        assert_eq!(between(&AppliedUpdate::of_operators(&operators)), whole);
    }
}
