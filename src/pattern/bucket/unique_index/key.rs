//! The keys that an item has in an index.

use std::cmp::Ordering;
use std::collections::HashSet;

use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::definition::UniqueIndex;
use crate::command::document::{get, put};
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::item_index::in_items;
use crate::pattern::bucket::key::canonical;
use crate::pattern::bucket::value_order::compare;
use crate::pattern::shapes::BucketShape;

/// A value for each field of an index. A missing field has the value null.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexKey {
    /// The values, with empty names.
    values: RawDocumentBuf,
    /// The canonical values, if they are others.
    canonical: Option<RawDocumentBuf>,
}

/// A path of the index continues in an array of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathThroughArray;

impl IndexKey {
    pub(super) fn of(values: RawDocumentBuf) -> Self {
        let is_canonical = values.iter().flatten().all(|(_, value)| is_canonical(value));
        let canonical = (!is_canonical).then(|| {
            let mut of_values = RawDocumentBuf::new();
            for (_, value) in values.iter().flatten() {
                of_values.append(cstr!(""), canonical(value));
            }
            of_values
        });
        Self { values, canonical }
    }

    /// The values, in the order of the index.
    pub(super) fn values(&self) -> impl Iterator<Item = RawBsonRef<'_>> {
        self.values.iter().flatten().map(|(_, value)| value)
    }

    /// Bytes that are the same for equal keys.
    #[must_use]
    pub fn identity(&self) -> &[u8] {
        self.canonical.as_ref().unwrap_or(&self.values).as_bytes()
    }
}

/// Whether a value of this type is its own [canonical] value.
fn is_canonical(value: RawBsonRef<'_>) -> bool {
    matches!(
        value,
        RawBsonRef::String(_)
            | RawBsonRef::ObjectId(_)
            | RawBsonRef::DateTime(_)
            | RawBsonRef::Boolean(_)
            | RawBsonRef::Int32(_)
            | RawBsonRef::Null
            | RawBsonRef::Undefined
    )
}

impl UniqueIndex {
    /// The keys of an item that is to be stored.
    ///
    /// # Errors
    /// A path of the index continues in an array.
    pub fn keys_of(&self, shape: &BucketShape, item: &Item) -> Result<Vec<IndexKey>, PathThroughArray> {
        let mut page = RawDocumentBuf::new();
        if self.fields.iter().any(|field| in_items(shape, &field.stored).is_none()) {
            for (field, value) in shape.key().iter().zip(item.key().lifted()) {
                if let Some(value) = value {
                    put(&mut page, field, value);
                }
            }
        }
        self.keys_on(shape, &page, item.stored())
    }

    /// The keys of a stored item, in the order of the index as far as the proxy can compare them. `page` has
    /// the key fields of its page.
    ///
    /// # Errors
    /// A path of the index continues in an array.
    pub fn keys_on(
        &self,
        shape: &BucketShape,
        page: &RawDocument,
        item: &RawDocument,
    ) -> Result<Vec<IndexKey>, PathThroughArray> {
        let mut keys = vec![RawDocumentBuf::new()];
        for field in &self.fields {
            let value = match in_items(shape, &field.stored) {
                Some(path) => at_path(item, path)?,
                None => get(page, &field.stored),
            };
            match value {
                Some(RawBsonRef::Array(elements)) => keys = product(&keys, elements),
                value => keys
                    .iter_mut()
                    .for_each(|key| key.append(cstr!(""), value.unwrap_or(RawBsonRef::Null))),
            }
        }
        let mut keys: Vec<IndexKey> = keys.into_iter().map(IndexKey::of).collect();
        keys.sort_by(|one, other| self.order(one, other));
        Ok(keys)
    }

    /// The keys of all items of a page.
    #[must_use]
    pub fn keys_of_page(&self, shape: &BucketShape, page: &RawDocument) -> Vec<IndexKey> {
        items_of(shape, page)
            .filter_map(|item| self.keys_on(shape, page, item).ok())
            .flatten()
            .collect()
    }

    /// The first key that two items of a page have.
    ///
    /// # Errors
    /// A path of the index continues in an array.
    pub fn first_duplicate(
        &self,
        shape: &BucketShape,
        page: &RawDocument,
    ) -> Result<Option<IndexKey>, PathThroughArray> {
        let mut seen = HashSet::new();
        for item in items_of(shape, page) {
            let keys = self.keys_on(shape, page, item)?;
            let own: HashSet<Vec<u8>> = keys.iter().map(|key| key.identity().to_vec()).collect();
            if let Some(key) = keys.into_iter().find(|key| seen.contains(key.identity())) {
                return Ok(Some(key));
            }
            seen.extend(own);
        }
        Ok(None)
    }

    /// The order of two keys in the index. Values that the proxy cannot compare are equal.
    fn order(&self, one: &IndexKey, other: &IndexKey) -> Ordering {
        let parts = self.fields.iter().zip(one.values().zip(other.values()));
        let mut orders = parts.filter_map(|(field, (one, other))| {
            let order = compare(one, other)?;
            Some(if field.is_ascending { order } else { order.reverse() })
        });
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

/// The items of a page, as stored.
fn items_of<'a>(shape: &BucketShape, page: &'a RawDocument) -> impl Iterator<Item = &'a RawDocument> {
    let items = page.get_array(shape.items()).ok();
    let items = items.into_iter().flatten().flatten();
    items.filter_map(RawBsonRef::as_document)
}

/// The keys, each with one of the index entries of an array: its elements, or `undefined` if it is empty.
fn product(keys: &[RawDocumentBuf], elements: &RawArray) -> Vec<RawDocumentBuf> {
    let mut entries: Vec<RawBsonRef<'_>> = elements.into_iter().flatten().collect();
    if entries.is_empty() {
        entries.push(RawBsonRef::Undefined);
    }
    let with_each = keys.iter().flat_map(|key| {
        entries.iter().map(|entry| {
            let mut key = key.clone();
            key.append(cstr!(""), *entry);
            key
        })
    });
    with_each.collect()
}

/// The value at a path of a document, or the array in which the path continues.
fn at_path<'a>(document: &'a RawDocument, path: &str) -> Result<Option<RawBsonRef<'a>>, PathThroughArray> {
    let Some((root, rest)) = path.split_once('.') else {
        return Ok(get(document, path));
    };
    match get(document, root) {
        Some(RawBsonRef::Document(inner)) => at_path(inner, rest),
        Some(RawBsonRef::Array(_)) => Err(PathThroughArray),
        _ => Ok(None),
    }
}
