//! Looks up which keys are held by stored items.

use std::collections::{BTreeMap, HashSet};

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::definition::UniqueIndex;
use super::key::IndexKey;
use crate::command::document::{append_fields, array_of, get, length_of, put, single};
use crate::command::write_batch::lookup_parts;
use crate::pattern::bucket::index;
use crate::pattern::bucket::item_index::in_items;
use crate::pattern::bucket::key::is_value_under_in;
use crate::pattern::bucket::predicate_pushdown::is_page_of_any_layout;
use crate::pattern::shapes::BucketShape;

/// The most alternatives of a query. Each is planned apart.
const MAX_ALTERNATIVES: usize = 100;
/// The most bytes of the alternatives of a query. A greater alternative has a query of its own.
const MAX_QUERY_BYTES: usize = 4 << 20;
/// The most keys of a query on one field of items.
const MAX_VALUES: usize = 1000;

/// Which of some keys stored items have. Keys are compared as MongoDB compares index keys.
#[derive(Clone, Debug, Default)]
pub struct KeysHeld {
    wanted: HashSet<Vec<u8>>,
    held: HashSet<Vec<u8>>,
}

impl KeysHeld {
    /// None of these keys so far.
    #[must_use]
    pub fn among<'a>(keys: impl IntoIterator<Item = &'a IndexKey>) -> Self {
        Self {
            wanted: keys.into_iter().map(|key| key.identity().to_vec()).collect(),
            held: HashSet::new(),
        }
    }

    /// Adds the keys of a page's items.
    pub fn add(&mut self, shape: &BucketShape, index: &UniqueIndex, page: &RawDocument) {
        let keys = index.keys_of_page(shape, page);
        self.held
            .extend(keys.filter_map(|key| self.wanted.take(key.identity())));
    }

    /// Whether no stored item has one of the keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether a stored item has the key.
    #[must_use]
    pub fn contains(&self, key: &IndexKey) -> bool {
        self.held.contains(key.identity())
    }
}

/// A query for pages that may have items with certain keys. It reads only entries of the index.
#[derive(Clone, Debug)]
pub struct KeyLookup {
    /// The condition on pages.
    pub filter: RawDocumentBuf,
    /// The fields of the keys.
    projection: RawDocumentBuf,
}

impl KeyLookup {
    /// The `find`, which returns the keys of the pages' items.
    #[must_use]
    pub fn find(&self, collection: &str) -> RawDocumentBuf {
        let mut find = single("find", collection);
        find.append(cstr!("filter"), &self.filter);
        find.append(cstr!("projection"), &self.projection);
        find
    }
}

/// The queries for the pages that may have items with one of these keys.
#[must_use]
pub fn lookups(shape: &BucketShape, index: &UniqueIndex, keys: &[&IndexKey]) -> Vec<KeyLookup> {
    let alternatives = if index.in_items(shape).count() == 1 {
        by_value(shape, index, keys)
    } else {
        keys.iter().map(|key| by_key(shape, index, key)).collect()
    };
    let filters = parts(alternatives).into_iter().map(|part| match part.as_slice() {
        [only] => only.clone(),
        part => single("$or", array_of(part)),
    });
    let lookup = |filter| KeyLookup {
        filter,
        projection: projection(shape, index),
    };
    filters.map(lookup).collect()
}

/// The alternatives of each query.
fn parts(alternatives: Vec<RawDocumentBuf>) -> Vec<Vec<RawDocumentBuf>> {
    let mut parts: Vec<Vec<RawDocumentBuf>> = Vec::new();
    let mut bytes = 0_usize;
    for alternative in alternatives {
        let length = alternative.as_bytes().len();
        bytes = bytes.saturating_add(length);
        match parts.last_mut() {
            Some(part) if part.len() < MAX_ALTERNATIVES && bytes <= MAX_QUERY_BYTES => part.push(alternative),
            _ => {
                bytes = length;
                parts.push(vec![alternative]);
            }
        }
    }
    parts
}

/// Values of the one field in items, for one prefix of key fields.
struct ValuesBehind<'a> {
    prefix: RawDocumentBuf,
    path: &'a str,
    values: Vec<RawBsonRef<'a>>,
}

/// Conditions for an index with one field of items: the values with the same key fields together.
fn by_value(shape: &BucketShape, index: &UniqueIndex, keys: &[&IndexKey]) -> Vec<RawDocumentBuf> {
    let mut prefixes: BTreeMap<Vec<u8>, ValuesBehind<'_>> = BTreeMap::new();
    for key in keys {
        let mut prefix = RawDocumentBuf::new();
        let mut of_item = None;
        for (field, part) in index.fields.iter().zip(key.values()) {
            if in_items(shape, &field.stored).is_some() {
                of_item = Some((field.stored.as_str(), part));
            } else {
                put(&mut prefix, &field.stored, single("$eq", part));
            }
        }
        let Some((path, value)) = of_item else { continue };
        let behind = prefixes.entry(prefix.as_bytes().to_vec());
        let behind = behind.or_insert_with(|| ValuesBehind {
            prefix,
            path,
            values: Vec::new(),
        });
        behind.values.push(value);
    }
    let conditions = prefixes.values().flat_map(ValuesBehind::conditions);
    conditions.map(|condition| with_items(shape, condition)).collect()
}

impl ValuesBehind<'_> {
    fn conditions(&self) -> Vec<RawDocumentBuf> {
        // A query cannot compare with `undefined`.
        let is_special = |value: &RawBsonRef<'_>| *value == RawBsonRef::Undefined || !is_value_under_in(*value);
        let (special, plain): (Vec<RawBsonRef<'_>>, Vec<RawBsonRef<'_>>) =
            self.values.iter().partition(|value| is_special(value));
        let special = special.into_iter().map(|value| equal(self.path, value));
        let plain = lookup_parts(&plain, MAX_VALUES, |value| length_of(*value)).map(|values| {
            let values: RawArrayBuf = values.iter().copied().collect();
            single(self.path, single("$in", &values))
        });
        let conditions = special.chain(plain).map(|of_item| {
            let mut condition = self.prefix.clone();
            append_fields(&mut condition, &of_item);
            condition
        });
        conditions.collect()
    }
}

/// The condition that the path has this value. A query cannot compare with `undefined`, the entry of an empty
/// array.
fn equal(path: &str, value: RawBsonRef<'_>) -> RawDocumentBuf {
    match value {
        RawBsonRef::Undefined => {
            let of_type = single(path, single("$type", "undefined"));
            let empty = single(path, single("$size", 0));
            single("$or", array_of(&[of_type, empty]))
        }
        value => single(path, single("$eq", value)),
    }
}

/// The condition for one key.
fn by_key(shape: &BucketShape, index: &UniqueIndex, key: &IndexKey) -> RawDocumentBuf {
    let mut condition = RawDocumentBuf::new();
    let mut of_item = Vec::new();
    for (field, part) in index.fields.iter().zip(key.values()) {
        match in_items(shape, &field.stored) {
            Some(path) => of_item.push(equal(path, part)),
            None => put(&mut condition, &field.stored, single("$eq", part)),
        }
    }
    if !of_item.is_empty() {
        let of_item = single("$and", array_of(&of_item));
        put(&mut condition, shape.items(), single("$elemMatch", of_item));
    }
    with_items(shape, condition)
}

/// A condition on pages with items. mongod uses the partial index only with that condition.
fn with_items(shape: &BucketShape, mut condition: RawDocumentBuf) -> RawDocumentBuf {
    for required in [is_page_of_any_layout(), index::has_items(shape)] {
        append_fields(&mut condition, &required);
    }
    condition
}

fn projection(shape: &BucketShape, index: &UniqueIndex) -> RawDocumentBuf {
    let mut projection = single("_id", 0);
    for field in &index.fields {
        // Not the whole path: two paths must not overlap.
        let root = match in_items(shape, &field.stored).and_then(|path| path.split('.').next()) {
            Some(root) => format!("{}.{root}", shape.items()),
            None => field.stored.clone(),
        };
        if get(&projection, &root).is_none() {
            put(&mut projection, &root, 1);
        }
    }
    if index.in_items(shape).next().is_none() {
        put(&mut projection, &format!("{}._id", shape.items()), 1);
    }
    projection
}
