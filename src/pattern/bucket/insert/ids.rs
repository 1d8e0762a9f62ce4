//! Looks up which `_id`s are already stored.

use std::collections::HashSet;

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{append_fields, array_of, get, single};
use crate::pattern::bucket::index;
use crate::pattern::bucket::key::value_identity;
use crate::pattern::bucket::predicate_pushdown::is_page_of_any_layout;
use crate::pattern::shapes::BucketShape;

/// A set of `_id`s, compared as MongoDB compares them.
#[derive(Clone, Debug, Default)]
pub struct IdSet(HashSet<Vec<u8>>);

impl IdSet {
    /// Adds an `_id`. Returns whether it is new.
    pub fn add(&mut self, id: RawBsonRef<'_>) -> bool {
        self.0.insert(value_identity(id))
    }

    /// Whether the set contains an `_id`.
    #[must_use]
    pub fn contains(&self, id: RawBsonRef<'_>) -> bool {
        self.0.contains(&value_identity(id))
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the `_id`s of a bucket's items.
    pub fn add_of(&mut self, shape: &BucketShape, bucket: &RawDocument) {
        let items = bucket.get_array(shape.items()).ok();
        for item in items.into_iter().flatten().flatten() {
            if let Some(id) = item.as_document().and_then(|item| get(item, "_id")) {
                self.add(id);
            }
        }
    }
}

/// Appends the query for the buckets that hold one of these `_id`s: the arguments of a `find`,
/// without the collection.
pub fn ids_query<'a>(shape: &BucketShape, ids: impl Iterator<Item = &'a RawBson>, find: &mut RawDocumentBuf) {
    let path = index::item_id_path(shape);
    let mut values = RawArrayBuf::new();
    let mut null = false;
    for id in ids {
        match id.as_raw_bson_ref() {
            RawBsonRef::Null => null = true,
            id => values.push(id),
        }
    }
    let mut filter = single(&path, single("$in", &values));
    if null {
        // An equality with null would also match missing values.
        filter = single("$or", array_of(&[filter, single(&path, single("$type", "null"))]));
    }
    for condition in [is_page_of_any_layout(), index::has_items(shape)] {
        append_fields(&mut filter, &condition);
    }
    find.append(cstr!("filter"), &filter);
    find.append(cstr!("projection"), single(&path, 1));
}
