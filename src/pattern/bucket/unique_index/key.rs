//! The keys that an item has in an index.

use std::cmp::Ordering;
use std::collections::HashSet;

use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::definition::UniqueIndex;
use super::key_order::compare;
use crate::command::document::{get, put};
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::item_index::in_items;
use crate::pattern::bucket::key::canonical;
use crate::pattern::bucket::number::Position;
use crate::pattern::shapes::BucketShape;

/// A value for each field of an index. A missing field has the value null.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexKey {
    /// The values, with empty names.
    values: RawDocumentBuf,
    /// The canonical values, if they are others.
    canonical: Option<RawDocumentBuf>,
}

/// The most bytes of keys that are computed at once, for one item or for those of a command. An item with an
/// array has all its other indexed values in the key of each element.
pub const MAX_KEYS_BYTES: usize = 64 << 20;

/// The reason why an item has no keys in an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoKeys {
    /// A path of the index continues in an array of documents.
    ThroughArray,
    /// Two fields of the index are arrays. mongod refuses that, too.
    ParallelArrays {
        /// The position of the first one in the index.
        first: usize,
        /// The position of the second one.
        second: usize,
    },
    /// The keys have more than [`MAX_KEYS_BYTES`].
    TooLarge,
}

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

    /// The values in their canonical types, in the order of the index.
    fn canonical_values(&self) -> impl Iterator<Item = RawBsonRef<'_>> {
        let values = self.canonical.as_ref().unwrap_or(&self.values);
        values.iter().flatten().map(|(_, value)| value)
    }

    /// The size in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let canonical = self
            .canonical
            .as_ref()
            .map_or(0, |canonical| canonical.as_bytes().len());
        self.values.as_bytes().len().saturating_add(canonical)
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
    /// The reason why it has none.
    pub fn keys_of(&self, shape: &BucketShape, item: &Item) -> Result<Vec<IndexKey>, NoKeys> {
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

    /// The keys of a stored item, each once, in the order of the index. `page` has the key fields of its
    /// page.
    ///
    /// # Errors
    /// The reason why it has none.
    pub fn keys_on(
        &self,
        shape: &BucketShape,
        page: &RawDocument,
        item: &RawDocument,
    ) -> Result<Vec<IndexKey>, NoKeys> {
        let mut values = Vec::new();
        let mut array: Option<(usize, &RawArray)> = None;
        for (position, field) in self.fields.iter().enumerate() {
            let value = match in_items(shape, &field.stored) {
                Some(path) => at_path(item, path)?,
                None => at_path(with_key_field(page, item, &field.stored), &field.stored)?,
            };
            if let Some(RawBsonRef::Array(elements)) = value
                && let Some((first, _)) = array.replace((position, elements))
            {
                let second = position;
                return Err(NoKeys::ParallelArrays { first, second });
            }
            values.push(value.unwrap_or(RawBsonRef::Null));
        }
        let Some((position, elements)) = array else {
            return Ok(vec![IndexKey::of(values_of_key(values.into_iter()))]);
        };
        let entries = entries(elements);
        let others = values.iter().enumerate().filter(|(place, _)| *place != position);
        let others = values_of_key(others.map(|(_, value)| *value)).as_bytes().len();
        let bytes = others.saturating_mul(entries.len());
        if bytes.saturating_add(elements.as_bytes().len()) > MAX_KEYS_BYTES {
            return Err(NoKeys::TooLarge);
        }
        let with_entry = |entry: RawBsonRef<'_>| {
            let values = values.iter().enumerate();
            let values = values.map(|(place, value)| if place == position { entry } else { *value });
            IndexKey::of(values_of_key(values))
        };
        let mut keys: Vec<IndexKey> = entries.iter().map(|entry| with_entry(*entry)).collect();
        // Of equal keys, mongod keeps the first.
        if entries.iter().any(|entry| matches!(entry, RawBsonRef::Decimal128(_))) {
            keys = self.sorted_by_entries(keys, position, &entries);
        } else {
            keys.sort_by(|one, other| self.order(one, other));
        }
        keys.dedup_by(|next, kept| next.identity() == kept.identity());
        Ok(keys)
    }

    /// The keys of all items of a page, computed item by item.
    pub fn keys_of_page(&self, shape: &BucketShape, page: &RawDocument) -> impl Iterator<Item = IndexKey> {
        let keys = items_of(shape, page).map(move |item| self.keys_on(shape, page, item));
        keys.filter_map(Result::ok).flatten()
    }

    /// The first key that two items of a page have.
    ///
    /// # Errors
    /// The reason why an item has no keys.
    pub fn first_duplicate(&self, shape: &BucketShape, page: &RawDocument) -> Result<Option<IndexKey>, NoKeys> {
        let mut seen = HashSet::new();
        let mut bytes = 0_usize;
        for item in items_of(shape, page) {
            let keys = self.keys_on(shape, page, item)?;
            let own: HashSet<Vec<u8>> = keys.iter().map(|key| key.identity().to_vec()).collect();
            bytes = keys.iter().map(IndexKey::bytes).fold(bytes, usize::saturating_add);
            if let Some(key) = keys.into_iter().find(|key| seen.contains(key.identity())) {
                return Ok(Some(key));
            }
            if bytes > MAX_KEYS_BYTES {
                return Err(NoKeys::TooLarge);
            }
            seen.extend(own);
        }
        Ok(None)
    }

    /// Sorts the keys of one item by their `entries` of its array, the field at `position` of the index. Each
    /// decimal is parsed once, not for each comparison.
    fn sorted_by_entries(&self, keys: Vec<IndexKey>, position: usize, entries: &[RawBsonRef<'_>]) -> Vec<IndexKey> {
        let is_ascending = self.fields.get(position).is_none_or(|field| field.is_ascending);
        let numbers = entries.iter().map(|entry| Position::of(*entry));
        let mut numbered: Vec<(Option<Position>, IndexKey)> = numbers.zip(keys).collect();
        numbered.sort_by(
            |(number, key), (other_number, other_key)| match (number, other_number) {
                (Some(one), Some(other)) if is_ascending => one.cmp(other),
                (Some(one), Some(other)) => other.cmp(one),
                _ => self.order(key, other_key),
            },
        );
        numbered.into_iter().map(|(_, key)| key).collect()
    }

    /// The order of two keys in the index.
    fn order(&self, one: &IndexKey, other: &IndexKey) -> Ordering {
        let parts = self
            .fields
            .iter()
            .zip(one.canonical_values().zip(other.canonical_values()));
        let mut orders = parts.map(|(field, (one, other))| {
            let order = compare(one, other);
            if field.is_ascending { order } else { order.reverse() }
        });
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

/// The keys of a changed item that mongod adds to an index: those that the item did not have before.
#[must_use]
pub fn added_keys(before: &[IndexKey], after: Vec<IndexKey>) -> Vec<IndexKey> {
    let before: HashSet<&[u8]> = before.iter().map(IndexKey::identity).collect();
    let mut added = after;
    added.retain(|key| !before.contains(key.identity()));
    added
}

/// The items of a page, as stored.
fn items_of<'a>(shape: &BucketShape, page: &'a RawDocument) -> impl Iterator<Item = &'a RawDocument> {
    let items = page.get_array(shape.items()).ok();
    let items = items.into_iter().flatten().flatten();
    items.filter_map(RawBsonRef::as_document)
}

fn values_of_key<'a>(values: impl Iterator<Item = RawBsonRef<'a>>) -> RawDocumentBuf {
    let mut key = RawDocumentBuf::new();
    for value in values {
        key.append(cstr!(""), value);
    }
    key
}

/// The index entries of an array: its elements, or `undefined` if it is empty.
fn entries(elements: &RawArray) -> Vec<RawBsonRef<'_>> {
    let mut entries: Vec<RawBsonRef<'_>> = elements.into_iter().flatten().collect();
    if entries.is_empty() {
        entries.push(RawBsonRef::Undefined);
    }
    entries
}

/// The document that has an item's value at a path in the key: the item if the value's type differs from the
/// canonical one, otherwise its page.
fn with_key_field<'a>(page: &'a RawDocument, item: &'a RawDocument, path: &str) -> &'a RawDocument {
    let root = path.split('.').next().unwrap_or(path);
    if get(item, root).is_some() { item } else { page }
}

/// The value at a path of a document.
///
/// # Errors
/// The path continues in an array.
fn at_path<'a>(document: &'a RawDocument, path: &str) -> Result<Option<RawBsonRef<'a>>, NoKeys> {
    let Some((root, rest)) = path.split_once('.') else {
        return Ok(get(document, path));
    };
    match get(document, root) {
        Some(RawBsonRef::Document(inner)) => at_path(inner, rest),
        Some(RawBsonRef::Array(_)) => Err(NoKeys::ThroughArray),
        _ => Ok(None),
    }
}
