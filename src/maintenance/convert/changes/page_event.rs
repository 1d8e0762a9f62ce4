//! The items that an event of a page concerns. The event contains the `_id`s of the page's items before the
//! change, and the description of the update. The items are read when the change is applied, so the server
//! returns no image of the page.

use bson::raw::{RawBson, RawBsonRef, RawDocument};
use bson::{Document, doc};

use crate::command::document::{as_whole_number, get};
use crate::maintenance::convert::ids::Ids;
use crate::pattern::shapes::BucketShape;

/// The items that an event concerns.
#[derive(Debug, Default)]
pub(super) struct ConcernedItems {
    pub(super) ids: Ids,
    /// The page, if the event does not determine all items: those that it contains later are concerned, too.
    pub(super) page: Option<RawBson>,
}

/// The stage that reduces an event to the fields that [`concerned_items`] reads.
pub(super) fn projection(shape: &BucketShape) -> Document {
    let items = |image: &str| format!("${image}.{}", shape.items());
    let before = items("fullDocumentBeforeChange");
    let count = doc! { "$cond": [{ "$isArray": &before }, { "$size": &before }, 0] };
    doc! { "$project": {
        "operationType": 1, "documentKey": 1, "clusterTime": 1, "updateDescription": 1, "count": count,
        "before": format!("{before}._id"), "after": format!("{}._id", items("fullDocument")),
    } }
}

/// The items that an event concerns, in the form of [`projection`].
pub(super) fn concerned_items(shape: &BucketShape, event: &RawDocument) -> ConcernedItems {
    let ids = |name| get(event, name).and_then(RawBsonRef::as_array).into_iter().flatten();
    let before: Vec<_> = ids("before").flatten().collect();
    let count = get(event, "count").and_then(as_whole_number).unwrap_or_default();
    let mut event_items = EventItems {
        shape,
        concerned: ConcernedItems::default(),
        // An item without an `_id` would shift the positions.
        is_determined: i64::try_from(before.len()) == Ok(count),
        before,
    };
    let description = get(event, "updateDescription").and_then(RawBsonRef::as_document);
    match description.filter(|_| event_items.is_determined) {
        Some(description) => event_items.add_described(description),
        None => event_items.add_all(),
    }
    for id in ids("after").flatten() {
        event_items.concerned.ids.add(id);
    }
    let mut concerned = event_items.concerned;
    if !event_items.is_determined {
        let key = get(event, "documentKey").and_then(RawBsonRef::as_document);
        concerned.page = key.and_then(|key| get(key, "_id")).map(RawBson::from);
    }
    concerned
}

/// The items of one event.
struct EventItems<'a> {
    shape: &'a BucketShape,
    /// The `_id`s of the page's items before the change, by position.
    before: Vec<RawBsonRef<'a>>,
    concerned: ConcernedItems,
    /// Whether the event determines all items that it concerns.
    is_determined: bool,
}

/// A path within an item.
struct PathWithinItem<'a> {
    position: usize,
    /// The path of a field. `None`: the whole item.
    field: Option<&'a str>,
}

impl EventItems<'_> {
    fn add_all(&mut self) {
        self.add_from(0);
    }

    fn add_from(&mut self, position: usize) {
        for id in self.before.iter().skip(position) {
            self.concerned.ids.add(*id);
        }
    }

    /// Adds the items that the description of an update names.
    fn add_described(&mut self, description: &RawDocument) {
        let updated = get(description, "updatedFields").and_then(RawBsonRef::as_document);
        for (path, value) in updated.into_iter().flatten().flatten() {
            self.add_updated(path.as_str(), value);
        }
        let array = |name| {
            get(description, name)
                .and_then(RawBsonRef::as_array)
                .into_iter()
                .flatten()
        };
        for path in array("removedFields").flatten().filter_map(RawBsonRef::as_str) {
            self.add_path(path);
        }
        for truncated in array("truncatedArrays").flatten().filter_map(RawBsonRef::as_document) {
            let path = get(truncated, "field").and_then(RawBsonRef::as_str).unwrap_or_default();
            let size = get(truncated, "newSize").and_then(as_whole_number);
            match size.and_then(|size| usize::try_from(size).ok()) {
                Some(size) if path == self.shape.items() => self.add_from(size),
                _ => self.add_path(path),
            }
        }
    }

    /// Adds the items of an updated field: those that were there, and those of the new value.
    fn add_updated(&mut self, path: &str, value: RawBsonRef<'_>) {
        if path == self.shape.items() {
            self.add_all();
            let items = value.as_array().into_iter().flatten().flatten();
            items.for_each(|item| self.add_new(item));
            return;
        }
        match self.path_of_item(path) {
            Some(PathWithinItem { position, field: None }) => {
                self.add_at(position);
                self.add_new(value);
            }
            Some(PathWithinItem {
                position,
                field: Some("_id"),
            }) => {
                self.add_at(position);
                self.concerned.ids.add(value);
            }
            _ => self.add_path(path),
        }
    }

    /// Adds the item that a path is in, or all items.
    fn add_path(&mut self, path: &str) {
        match self.path_of_item(path) {
            Some(PathWithinItem {
                position,
                field: Some(field),
            }) => {
                // A part of the new `_id`.
                self.is_determined &= field.split('.').next() != Some("_id");
                self.add_at(position);
            }
            _ if self.is_of_header(path) => {}
            _ => {
                self.is_determined = false;
                self.add_all();
            }
        }
    }

    fn add_at(&mut self, position: usize) {
        if let Some(id) = self.before.get(position) {
            self.concerned.ids.add(*id);
        }
    }

    fn add_new(&mut self, item: RawBsonRef<'_>) {
        match item.as_document().and_then(|item| get(item, "_id")) {
            Some(id) => self.concerned.ids.add(id),
            None => self.is_determined = false,
        }
    }

    /// `None`: the path is not within an item.
    fn path_of_item<'p>(&self, path: &'p str) -> Option<PathWithinItem<'p>> {
        let within = path.strip_prefix(self.shape.items())?.strip_prefix('.')?;
        let (position, field) = match within.split_once('.') {
            Some((position, field)) => (position, Some(field)),
            None => (within, None),
        };
        let position = position.parse().ok()?;
        Some(PathWithinItem { position, field })
    }

    /// Whether a path is in the page header, on which no item depends.
    fn is_of_header(&self, path: &str) -> bool {
        let first = path.split('.').next();
        first == Some(BucketShape::CONTROL) || first == Some(self.shape.count())
    }
}

#[cfg(test)]
mod tests {
    use bson::raw::RawDocumentBuf;
    use bson::rawdoc;

    use super::*;
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    /// The items that an event of page 7 with the items 10, 11 and 12 concerns.
    fn concerned(event: RawDocumentBuf) -> (Vec<i32>, bool) {
        let options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()]);
        let shape = BucketShape::new(options).unwrap();
        let mut event = event;
        event.append(bson::raw::cstr!("documentKey"), rawdoc! { "_id": 7 });
        let concerned = concerned_items(&shape, &event);
        let ids = concerned.ids.values().filter_map(RawBson::as_i32).collect();
        (ids, concerned.page != Some(RawBson::Int32(7)))
    }

    fn check(description: &RawDocument, ids: &[i32], is_determined: bool) {
        let event = rawdoc! { "count": 3, "before": [10, 11, 12], "updateDescription": description.to_owned() };
        assert_eq!(concerned(event), (ids.to_vec(), is_determined), "{description:?}");
    }

    #[test]
    fn an_update_concerns_the_items_that_its_description_names() {
        check(&rawdoc! { "updatedFields": { "history.1.a": 5 } }, &[11], true);
        check(&rawdoc! { "removedFields": ["history.2.a.b"] }, &[12], true);
        check(
            &rawdoc! { "truncatedArrays": [{ "field": "history.0.a", "newSize": 1 }] },
            &[10],
            true,
        );
        let appended = rawdoc! { "updatedFields": { "history.3": { "_id": 13 }, "count": 4, "control.bytes": 9_i64 } };
        check(&appended, &[13], true);
        check(
            &rawdoc! { "updatedFields": { "count": 3, "control.from": 1 } },
            &[],
            true,
        );
    }

    #[test]
    fn items_that_change_their_position_are_concerned() {
        // 11 is removed: 12 gets its position.
        let moved = rawdoc! {
            "updatedFields": { "history.1._id": 12, "history.1.a": 5 },
            "truncatedArrays": [{ "field": "history", "newSize": 2 }],
        };
        check(&moved, &[11, 12], true);
        let rewritten = rawdoc! { "updatedFields": { "history": [{ "_id": 10 }, { "_id": 14 }] } };
        check(&rewritten, &[10, 11, 12, 14], true);
    }

    #[test]
    fn the_page_is_concerned_if_the_event_does_not_determine_the_items() {
        // The item that gets the position of 11 has a document as `_id`.
        check(&rawdoc! { "updatedFields": { "history.1._id.a": 5 } }, &[11], false);
        check(&rawdoc! { "updatedFields": { "history.3": 1 } }, &[], false);
        check(&rawdoc! { "updatedFields": { "k": 5 } }, &[10, 11, 12], false);
        check(&rawdoc! { "removedFields": ["k"] }, &[10, 11, 12], false);
        let without_id =
            rawdoc! { "count": 3, "before": [10, 12], "updateDescription": { "updatedFields": { "history.1.a": 1 } } };
        assert_eq!(concerned(without_id), (vec![10, 12], false));
    }

    #[test]
    fn other_events_concern_all_items() {
        let inserted = rawdoc! { "count": 0, "after": [10, 11] };
        assert_eq!(concerned(inserted), (vec![10, 11], true));
        let deleted = rawdoc! { "count": 2, "before": [10, 11] };
        assert_eq!(concerned(deleted), (vec![10, 11], true));
        let replaced = rawdoc! { "count": 2, "before": [10, 11], "after": [11, 13] };
        assert_eq!(concerned(replaced), (vec![10, 11, 13], true));
    }
}
