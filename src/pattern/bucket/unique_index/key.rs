//! The keys that an item has in an index.

use std::cmp::Ordering;
use std::collections::HashSet;

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::definition::UniqueIndex;
use crate::command::document::{get, put};
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::item_index::in_items;
use crate::pattern::bucket::key::canonical;
use crate::pattern::bucket::value_order::compare;
use crate::pattern::shapes::BucketShape;

/// A value for each field of an index. A missing field has the value null.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexKey(pub(super) Vec<RawBson>);

/// A path of the index continues in an array of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathThroughArray;

impl IndexKey {
    /// Bytes that are the same for equal keys.
    #[must_use]
    pub fn identity(&self) -> Vec<u8> {
        let mut bytes = RawDocumentBuf::new();
        for value in &self.0 {
            put(&mut bytes, "", canonical(value.as_raw_bson_ref()));
        }
        bytes.into_bytes()
    }
}

impl UniqueIndex {
    /// The keys of an item that is to be stored.
    ///
    /// # Errors
    /// A path of the index continues in an array.
    pub fn keys_of(&self, shape: &BucketShape, item: &Item) -> Result<Vec<IndexKey>, PathThroughArray> {
        let mut page = RawDocumentBuf::new();
        for (field, value) in shape.key().iter().zip(item.key().lifted()) {
            if let Some(value) = value {
                put(&mut page, field, value);
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
        let mut keys = vec![Vec::new()];
        for field in &self.fields {
            let value = match in_items(shape, &field.stored) {
                Some(path) => at_path(item, path)?,
                None => get(page, &field.stored),
            };
            let values = entries(value);
            keys = keys
                .into_iter()
                .flat_map(|key| {
                    values
                        .iter()
                        .map(move |value| [&*key, std::slice::from_ref(value)].concat())
                })
                .collect();
        }
        let mut keys: Vec<IndexKey> = keys.into_iter().map(IndexKey).collect();
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
            let own: HashSet<Vec<u8>> = keys.iter().map(IndexKey::identity).collect();
            if let Some(key) = keys.into_iter().find(|key| seen.contains(&key.identity())) {
                return Ok(Some(key));
            }
            seen.extend(own);
        }
        Ok(None)
    }

    /// The order of two keys in the index. Values that the proxy cannot compare are equal.
    fn order(&self, one: &IndexKey, other: &IndexKey) -> Ordering {
        let parts = self.fields.iter().zip(one.0.iter().zip(&other.0));
        let mut orders = parts.filter_map(|(field, (one, other))| {
            let order = compare(one.as_raw_bson_ref(), other.as_raw_bson_ref())?;
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

/// The index entries of a value: the elements of an array, null for a missing value, and `undefined` for
/// an empty array.
fn entries(value: Option<RawBsonRef<'_>>) -> Vec<RawBson> {
    match value {
        None => vec![RawBson::Null],
        Some(RawBsonRef::Array(array)) if array.is_empty() => vec![RawBson::Undefined],
        Some(RawBsonRef::Array(array)) => array.into_iter().flatten().map(RawBson::from).collect(),
        Some(value) => vec![value.into()],
    }
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
