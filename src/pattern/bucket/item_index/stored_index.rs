//! An index in its stored form, for reads in its order.
//!
//! The stored key pattern begins with the layout's version, unless its first field is a key field.
//! All pages have the same version, and the version is not an array. So mongod reads such an index
//! backward from any position: a sort by the first field reverses the scan. An index that an
//! earlier version has created has no such prefix.

use bson::raw::{RawDocument, RawDocumentBuf};

use super::as_application_sees;
use super::geo_index::GeoKind;
use super::key_pattern::{ID, IndexedField, as_number, is_clustered, is_key, is_unique, key, name};
use super::stored_path::{MAX_FIELDS, PREFIX, application_path};
use crate::command::document::{append_fields, as_flag, get, put};
use crate::pattern::bucket::index::ITEM_ID;
use crate::pattern::shapes::BucketShape;

/// An index on items.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredIndex {
    key: RawDocumentBuf,
    fields: Vec<IndexedField>,
    is_read_backward: bool,
}

impl StoredIndex {
    /// The field before the application's fields.
    pub const PREFIX: &str = PREFIX;

    /// Reads a specification of `listIndexes`. `None` if the index has no entry for some items, and
    /// if mongod does not use the index.
    #[must_use]
    pub fn of(shape: &BucketShape, spec: &RawDocument) -> Option<Self> {
        let is_hidden = get(spec, "hidden").and_then(as_flag) == Some(true);
        let is_on_items = name(spec) == ITEM_ID || as_application_sees(shape, spec).is_some();
        // Its entries have another order.
        let has_collation = get(spec, "collation").is_some();
        if is_hidden || has_collation || !is_on_items || name(spec) == ID || is_clustered(spec) {
            return None;
        }
        let is_prefixed = is_prefixed(key(spec));
        // mongod uses a partial index only for a query with its condition.
        if is_unique(spec) && !is_prefixed && name(spec) != ITEM_ID {
            return None;
        }
        let mut fields = Vec::new();
        for (stored, direction) in key(spec).iter().flatten().skip(usize::from(is_prefixed)) {
            fields.push(IndexedField {
                path: application_path(shape, stored.as_str())?,
                stored: stored.as_str().to_owned(),
                is_ascending: as_number(direction)? > 0.0,
            });
        }
        let begins_with_key = fields.first().is_some_and(|field| is_key(shape, &field.stored));
        Some(Self {
            key: key(spec).to_owned(),
            fields,
            is_read_backward: is_prefixed || begins_with_key,
        })
    }

    /// The stored key pattern.
    #[must_use]
    pub fn key(&self) -> &RawDocument {
        &self.key
    }

    /// The application's fields.
    #[must_use]
    pub fn fields(&self) -> &[IndexedField] {
        &self.fields
    }

    /// Whether the stored key pattern begins with [`Self::PREFIX`].
    #[must_use]
    pub fn is_prefixed(&self) -> bool {
        is_prefixed(&self.key)
    }

    /// Whether mongod can read the index backward from any position.
    #[must_use]
    pub fn is_read_backward(&self) -> bool {
        self.is_read_backward
    }

    /// The sort by the first stored field that reverses the order of the index.
    #[must_use]
    pub fn backward(&self) -> RawDocumentBuf {
        let mut sort = RawDocumentBuf::new();
        if let Some((name, direction)) = self.key.iter().flatten().next() {
            let is_ascending = as_number(direction).is_some_and(|direction| direction > 0.0);
            put(&mut sort, name.as_str(), if is_ascending { -1 } else { 1 });
        }
        sort
    }
}

/// A field of a geospatial index with locations.
#[derive(Clone, Debug, PartialEq)]
pub struct GeoIndex {
    /// The path of the locations in items.
    pub path: String,
    /// The kind of the index.
    pub kind: GeoKind,
    /// The fields of the application's key pattern before the first location. mongod uses the index only for
    /// a query with conditions on all of them.
    pub leading: Vec<String>,
}

impl GeoIndex {
    /// Reads a specification of `listIndexes`: the locations of the application's index. Empty for any other
    /// index, and if mongod does not use the index.
    #[must_use]
    pub fn all(shape: &BucketShape, spec: &RawDocument) -> Vec<Self> {
        let is_hidden = get(spec, "hidden").and_then(as_flag) == Some(true);
        let Some(application) = as_application_sees(shape, spec).filter(|_| !is_hidden) else {
            return Vec::new();
        };
        let fields = || key(&application).iter().flatten();
        let leading = fields().take_while(|(_, value)| GeoKind::of(*value).is_none());
        let leading: Vec<String> = leading.map(|(path, _)| path.as_str().to_owned()).collect();
        let locations = fields().filter_map(|(path, value)| {
            Some(Self {
                path: path.as_str().to_owned(),
                kind: GeoKind::of(value)?,
                leading: leading.clone(),
            })
        });
        locations.collect()
    }
}

/// Whether a stored key pattern begins with [`StoredIndex::PREFIX`].
fn is_prefixed(key: &RawDocument) -> bool {
    let first = key.iter().flatten().next();
    first.is_some_and(|(name, _)| name == StoredIndex::PREFIX)
}

/// A stored key pattern with [`StoredIndex::PREFIX`]. Unchanged if it begins with a key field or
/// has the most fields already.
pub(super) fn prefixed(shape: &BucketShape, stored: RawDocumentBuf) -> RawDocumentBuf {
    let first = stored.iter().flatten().next();
    let begins_with_key = first.is_some_and(|(name, _)| is_key(shape, name.as_str()));
    if begins_with_key || stored.iter().count() >= MAX_FIELDS {
        return stored;
    }
    let mut prefixed = RawDocumentBuf::new();
    put(&mut prefixed, StoredIndex::PREFIX, 1);
    append_fields(&mut prefixed, &stored);
    prefixed
}

/// A stored key pattern without [`StoredIndex::PREFIX`].
pub(super) fn without_prefix(key: &RawDocument) -> RawDocumentBuf {
    let fields = key.iter().flatten().skip(usize::from(is_prefixed(key)));
    fields.collect()
}
