//! Unique indexes of the application on items.
//!
//! mongod's unique index keeps equal values out of different pages, but compares no items of one page. So
//! the collection also has a [`validator`]: mongod refuses every write, of any client, after which two items
//! of a page have equal values ([decision](../../../docs/decisions/0033-a-unique-index-has-a-validator.md)).
//!
//! The stored index is partial, because the pages without items would be equal.

mod duplicate;
mod key;
mod lookup;
mod validator;

#[cfg(test)]
mod tests;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

pub use self::duplicate::{Violation, interrupted, is_violation, violation};
pub use self::key::{IndexKey, PathThroughArray};
pub use self::lookup::{KeysHeld, lookups};
pub use self::validator::{ClauseOfIndex, clause, clauses, is_validator, validator};
use super::item_index::{self, IndexedField, as_application_sees, indexed_fields, is_clustered, is_unique};
use crate::command::document::get;
use crate::pattern::shapes::BucketShape;

/// A unique index on items.
#[derive(Clone, Debug, PartialEq)]
pub struct UniqueIndex {
    name: String,
    /// The application's key pattern.
    key: RawDocumentBuf,
    /// The key pattern in mongod.
    stored_key: RawDocumentBuf,
    /// The application's fields.
    fields: Vec<IndexedField>,
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

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this is the key pattern in mongod.
    fn has_stored_key(&self, key: &RawDocument) -> bool {
        item_index::same_key(&self.stored_key, key)
    }

    /// The fields in the array of items, by their paths in a stored item.
    fn in_items<'a>(&'a self, shape: &'a BucketShape) -> impl Iterator<Item = &'a str> {
        self.fields
            .iter()
            .filter_map(|field| item_index::in_items(shape, &field.stored))
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
