//! Looks up which `_id`s are already stored.

use std::collections::HashSet;

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{append_fields, array_of, get, put, single};
use crate::pattern::bucket::index;
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::key::{Key, is_value_under_in, value_identity};
use crate::pattern::bucket::predicate_pushdown::is_page_of_any_layout;
use crate::pattern::shapes::{BucketShape, ItemIds};

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

    /// Adds the `_id` of an item, together with its key if `_id`s are only unique in keys. Returns whether the
    /// item may be stored beside the added ones.
    pub fn add_item(&mut self, shape: &BucketShape, item: &Item) -> bool {
        unique_id(shape, item).is_none_or(|id| self.0.insert(id))
    }

    /// Whether the set contains the `_id` of an item, as [`add_item`](Self::add_item) adds it.
    #[must_use]
    pub fn contains_item(&self, shape: &BucketShape, item: &Item) -> bool {
        unique_id(shape, item).is_some_and(|id| self.0.contains(&id))
    }

    /// Adds the `_id`s of a page's items, as [`add_item`](Self::add_item) does. The page has its key fields.
    pub fn add_page(&mut self, shape: &BucketShape, page: &RawDocument) {
        let scope = unique_scope(shape, page);
        for id in ids_of(shape, page) {
            self.0.insert([&scope[..], &value_identity(id)[..]].concat());
        }
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the `_id`s of a bucket's items.
    pub fn add_of(&mut self, shape: &BucketShape, bucket: &RawDocument) {
        for id in ids_of(shape, bucket) {
            self.add(id);
        }
    }
}

/// The `_id`s of a page's items.
pub fn ids_of<'p>(shape: &BucketShape, page: &'p RawDocument) -> impl Iterator<Item = RawBsonRef<'p>> {
    let items = page.get_array(shape.items()).ok().into_iter().flatten().flatten();
    items.filter_map(|item| get(item.as_document()?, "_id"))
}

/// Bytes that are equal for two items if and only if only one of them can be stored. `None`: the item can be
/// stored beside any other.
#[must_use]
pub fn unique_id(shape: &BucketShape, item: &Item) -> Option<Vec<u8>> {
    let scope = match shape.item_ids() {
        ItemIds::Unique => &[],
        ItemIds::UniqueInKey => item.identity(),
        ItemIds::Stored | ItemIds::Dropped => return None,
    };
    Some([scope, &value_identity(item.id()?.as_raw_bson_ref())].concat())
}

/// The bytes of a page's key in the [`unique_id`] of its items. Empty if `_id`s are unique in the collection.
#[must_use]
pub fn unique_scope(shape: &BucketShape, page: &RawDocument) -> Vec<u8> {
    let key = match shape.item_ids() {
        ItemIds::UniqueInKey => Key::of(shape, page).ok(),
        ItemIds::Unique | ItemIds::Stored | ItemIds::Dropped => None,
    };
    key.map(|key| key.identity()).unwrap_or_default()
}

/// Appends the query for the buckets that hold one of these `_id`s: the arguments of a `find`,
/// without the collection. The result has the items' `_id`s, and the key fields if `_id`s are unique in keys.
pub fn ids_query<'a>(shape: &BucketShape, ids: impl Iterator<Item = &'a RawBson>, find: &mut RawDocumentBuf) {
    let path = index::item_id_path(shape);
    let mut values = RawArrayBuf::new();
    let mut alternatives = Vec::new();
    for id in ids {
        match id.as_raw_bson_ref() {
            // An equality with null would also match missing values.
            RawBsonRef::Null => alternatives.push(single(&path, single("$type", "null"))),
            id if is_value_under_in(id) => values.push(id),
            id => alternatives.push(single(&path, single("$eq", id))),
        }
    }
    let mut filter = single(&path, single("$in", &values));
    if !alternatives.is_empty() {
        alternatives.push(filter);
        filter = single("$or", array_of(&alternatives));
    }
    for condition in [is_page_of_any_layout(), index::has_items(shape)] {
        append_fields(&mut filter, &condition);
    }
    find.append(cstr!("filter"), &filter);
    let mut projection = single(&path, 1);
    if shape.item_ids() == ItemIds::UniqueInKey {
        shape.key().iter().for_each(|field| put(&mut projection, field, 1));
    }
    find.append(cstr!("projection"), &projection);
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::command::error::WriteError;
    use crate::pattern::bucket::insert::{Failure, failure};
    use crate::pattern::bucket::item::FixedMint;
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    fn shape(item_ids: ItemIds) -> BucketShape {
        let options = BucketOptions {
            item_ids,
            ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
        };
        BucketShape::new(options).unwrap()
    }

    /// Whether an item can be stored beside another one, which is added as an item and as a part of a page.
    fn check(item_ids: ItemIds, stored: &RawDocument, new: &RawDocument, expected: bool) {
        let shape = shape(item_ids);
        let item = |document| Item::prepare(&shape, 0, document, &mut FixedMint).unwrap();
        let new = item(new);
        let mut ids = IdSet::default();
        assert!(ids.add_item(&shape, &item(stored)));
        assert_eq!(!ids.contains_item(&shape, &new), expected, "{item_ids:?}");
        assert_eq!(ids.add_item(&shape, &new), expected, "{item_ids:?}");
        let page = rawdoc! { "k": get(stored, "k").unwrap(), "history": [{ "_id": get(stored, "_id").unwrap() }] };
        let mut ids = IdSet::default();
        ids.add_page(&shape, &page);
        assert_eq!(!ids.contains_item(&shape, &new), expected, "{item_ids:?}");
    }

    #[test]
    fn an_id_is_unique_in_the_collection_or_in_its_key() {
        let stored = rawdoc! { "_id": 1, "k": 1 };
        let (same_key, other_key) = (rawdoc! { "_id": 1.0, "k": 1.0 }, rawdoc! { "_id": 1, "k": 2 });
        check(ItemIds::Unique, &stored, &same_key, false);
        check(ItemIds::Unique, &stored, &other_key, false);
        check(ItemIds::UniqueInKey, &stored, &same_key, false);
        check(ItemIds::UniqueInKey, &stored, &other_key, true);
        check(ItemIds::Stored, &stored, &same_key, true);
    }

    #[test]
    fn ids_that_a_list_cannot_contain_are_alternatives() {
        let condition = |ids: &[RawBson]| {
            let mut find = RawDocumentBuf::new();
            ids_query(&shape(ItemIds::Unique), ids.iter(), &mut find);
            let filter = find.get_document("filter").unwrap();
            filter.iter().flatten().take(1).collect::<RawDocumentBuf>()
        };
        let plain = [RawBson::Int32(1), rawdoc! { "a": 1 }.into()];
        let list = rawdoc! { "history._id": { "$in": [1, { "a": 1 }] } };
        assert_eq!(condition(&plain), list);
        let [one, other] = plain;
        let all = [one, RawBson::Null, rawdoc! { "$id": 1 }.into(), other];
        let expected = rawdoc! {
            "$or": [{ "history._id": { "$type": "null" } }, { "history._id": { "$eq": { "$id": 1 } } }, list],
        };
        assert_eq!(condition(&all), expected);
    }

    #[test]
    fn a_duplicate_in_a_key_is_recognised() {
        let detail = single("keyPattern", rawdoc! { "k": 1, "history._id": 1 });
        let failure = |item_ids| {
            let error = WriteError {
                code: 11000,
                message: "E11000".to_owned(),
                detail: detail.clone(),
            };
            failure(&shape(item_ids), error)
        };
        assert!(matches!(failure(ItemIds::UniqueInKey), Failure::Duplicate));
        assert!(!matches!(failure(ItemIds::Stored), Failure::Duplicate));
    }
}
