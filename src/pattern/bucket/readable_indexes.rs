//! The indexes of a collection, by their uses.

use bson::raw::RawDocument;

use super::index::PAGE;
use super::item_index::{GeoIndex, KeyTimeIndex, StoredIndex, as_application_sees, is_recorded, key, name, same_key};
use super::unique_index::UniqueIndex;
use crate::command::document::{as_flag, get};
use crate::pattern::shapes::BucketShape;

/// The indexes of a collection that commands use.
#[derive(Clone, Debug, Default)]
pub struct ReadableIndexes {
    /// The indexes on items.
    pub on_items: Vec<StoredIndex>,
    /// The application's indexes on the whole key and the time, and the shape's page index.
    pub on_key_and_time: Vec<KeyTimeIndex>,
    /// The locations in the application's geospatial indexes.
    pub on_locations: Vec<GeoIndex>,
    /// The application's unique indexes, in mongod's order.
    pub unique: Vec<UniqueIndex>,
}

impl ReadableIndexes {
    /// Reads the specifications that `listIndexes` returns.
    #[must_use]
    pub fn of<'a>(shape: &BucketShape, specs: impl Iterator<Item = &'a RawDocument>) -> Self {
        let mut indexes = Self::default();
        let specs: Vec<&RawDocument> = specs.collect();
        for &spec in &specs {
            indexes.unique.extend(UniqueIndex::of(shape, spec));
            indexes.on_locations.extend(GeoIndex::all(shape, spec));
            let is_hidden = get(spec, "hidden").and_then(as_flag) == Some(true);
            let on_pages = if name(spec) == PAGE {
                KeyTimeIndex::of_pages(shape)
            } else if is_hidden || as_application_sees(shape, spec).is_none() {
                // mongod does not use a hidden index.
                None
            } else {
                KeyTimeIndex::of(shape, key(spec))
            };
            if let Some(index) = on_pages {
                indexes.on_key_and_time.push(index);
                continue;
            }
            let on_items = StoredIndex::of(shape, spec);
            // A hint by key pattern must be unambiguous, except for a unique index beside the same one.
            let is_new = |index: &StoredIndex| {
                let mut others = indexes.on_items.iter();
                let is_alone = !as_application_sees(shape, spec).is_some_and(|index| is_recorded(&index))
                    || specs.iter().filter(|other| same_key(key(other), index.key())).count() == 1;
                is_alone && !others.any(|other| same_key(other.key(), index.key()))
            };
            indexes.on_items.extend(on_items.filter(is_new));
        }
        indexes
    }
}
