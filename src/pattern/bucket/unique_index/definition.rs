//! A unique index as the application created it, and as it is stored.

use bson::raw::{RawDocument, RawDocumentBuf};

use crate::pattern::bucket::item_index::{
    self, IndexedField, as_application_sees, indexed_fields, is_clustered, is_unique,
};
use crate::pattern::shapes::BucketShape;

/// A unique index on items.
#[derive(Clone, Debug, PartialEq)]
pub struct UniqueIndex {
    pub(super) name: String,
    /// The application's key pattern.
    pub(super) key: RawDocumentBuf,
    /// The key pattern in mongod.
    pub(super) stored_key: RawDocumentBuf,
    /// The application's fields.
    pub(super) fields: Vec<IndexedField>,
}

impl UniqueIndex {
    /// Reads a stored specification. `None` for any other index.
    #[must_use]
    pub fn of(shape: &BucketShape, spec: &RawDocument) -> Option<Self> {
        let application = as_application_sees(shape, spec)?;
        if !is_unique(spec) || item_index::name(spec) == item_index::ID || is_clustered(spec) {
            return None;
        }
        let key = item_index::key(&application).to_owned();
        let fields = indexed_fields(shape, &key)?;
        Some(Self {
            name: item_index::name(spec).to_owned(),
            key,
            stored_key: item_index::key(spec).to_owned(),
            fields,
        })
    }

    /// The unique indexes among the stored specifications.
    #[must_use]
    pub fn all(shape: &BucketShape, specs: impl IntoIterator<Item: AsRef<RawDocument>>) -> Vec<Self> {
        let specs = specs.into_iter();
        specs.filter_map(|spec| Self::of(shape, spec.as_ref())).collect()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this is the key pattern in mongod.
    pub(super) fn has_stored_key(&self, key: &RawDocument) -> bool {
        item_index::same_key(&self.stored_key, key)
    }

    /// Whether a field of the index is a key field of the shape, or a part of one.
    #[must_use]
    pub fn has_key_field(&self, shape: &BucketShape) -> bool {
        self.in_items(shape).count() < self.fields.len()
    }

    /// The fields in the array of items, by their paths in a stored item.
    pub(super) fn in_items<'a>(&'a self, shape: &'a BucketShape) -> impl Iterator<Item = &'a str> {
        self.fields
            .iter()
            .filter_map(|field| item_index::in_items(shape, &field.stored))
    }
}
