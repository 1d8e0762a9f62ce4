//! Forecasts the size of a collection after `setup --pack`. Pure, except for random reservation ids.
//!
//! Pages are built of consecutive documents, and compressed as `WiredTiger` does it. For indexes, the mean
//! size of an entry is measured on consecutive entries, and their number on the built pages.
//! `docs/choosing-shapes.md` has the deviations from real collections.

mod block_size;
mod built_pages;
mod index_entries;
mod index_forecasts;
mod index_size;
mod key_string;

use std::borrow::Cow;
use std::collections::BTreeMap;

use bson::raw::{RawDocument, RawDocumentBuf, cstr};

use self::built_pages::BuiltPages;
use self::index_forecasts::{IndexForecast, IndexForecasts};
use self::key_string::KeyString;
use super::collection_stats::CollectionStats;
use super::rounding::real;
use super::runs::Runs;
use super::sample::Sample;
use crate::command::document::{get, single};
use crate::pattern::bucket::{index, item_index};
use crate::pattern::shapes::BucketShape;

/// What a forecast is made of.
#[derive(Clone, Copy)]
pub(super) struct Measured<'a> {
    pub(super) facts: &'a CollectionStats,
    pub(super) sample: &'a Sample,
    /// Documents in the order of the key. `None`: no index begins with it.
    pub(super) by_key: Option<&'a Runs>,
    /// Documents with the fields of an index, by its name.
    pub(super) by_index: &'a BTreeMap<String, Runs>,
    /// Documents of a key.
    pub(super) per_key: f64,
    /// Number of pages.
    pub(super) pages: f64,
}

/// The sizes of a collection of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Forecast {
    /// Bytes of pages, uncompressed.
    pub(super) data: f64,
    /// Bytes of pages on disk.
    pub(super) storage: f64,
    /// Bytes of all indexes on disk.
    pub(super) indexes: f64,
    /// Entries of all indexes.
    pub(super) entries: f64,
    /// Bytes of the index on the items' `_id`, which is one of the indexes with `item_ids = "unique"`.
    pub(super) item_ids: f64,
}

/// The sizes of the collection in this shape. `None`: no document can be an item.
pub(super) fn in_shape(measured: &Measured<'_>, shape: &BucketShape) -> Option<Forecast> {
    let by_key = match measured.by_key {
        Some(runs) if runs.len() > 0 => Cow::Borrowed(runs),
        _ => Cow::Owned(Runs::of_sample(measured.sample, |document| {
            by_key_and_time(shape, document)
        })),
    };
    let pages = BuiltPages::of(shape, &by_key, measured.per_key)?;
    let documents = real(measured.facts.documents);
    let data = documents * pages.of_item + measured.pages * pages.of_header;
    let stored = block_size::stored_share(pages.all(), measured.facts.compressor)?;
    let mut forecast = Forecast {
        data,
        storage: block_size::file_bytes(data, stored),
        ..Forecast::default()
    };
    let indexes = IndexForecasts {
        measured,
        shape,
        pages: &pages,
    };
    forecast.add_own(&indexes);
    forecast.add_taken_over(&indexes);
    Some(forecast)
}

/// The index on the pages' `_id`.
fn page_ids() -> RawDocumentBuf {
    let mut spec = RawDocumentBuf::new();
    spec.append(cstr!("key"), single("_id", 1));
    spec.append(cstr!("name"), item_index::ID);
    spec
}

fn by_key_and_time(shape: &BucketShape, document: &RawDocument) -> Vec<u8> {
    let mut key = KeyString::default();
    for field in shape.key().iter().map(String::as_str).chain(shape.time()) {
        key.push(get(document, field));
    }
    key.bytes().to_vec()
}

impl Forecast {
    /// Adds the indexes of the shape.
    fn add_own(&mut self, indexes: &IndexForecasts<'_>) {
        self.add(indexes.by_pages(&page_ids()));
        for spec in index::specs(indexes.shape) {
            if item_index::name(&spec) == index::ITEM_ID {
                let of_index = indexes.by_values(&spec, item_index::ID);
                self.item_ids = of_index.bytes;
                self.add(of_index);
            } else {
                self.add(indexes.by_pages(&spec));
            }
        }
    }

    /// Adds the application's indexes.
    fn add_taken_over(&mut self, indexes: &IndexForecasts<'_>) {
        let shape = indexes.shape;
        let known = &indexes.measured.facts.indexes;
        // `_id_` is not taken over.
        for index in known.iter().filter(|index| index.name != item_index::ID) {
            // Without a stored form the shape is not proposed.
            let Ok(spec) = item_index::stored(shape, &index.spec()) else {
                continue;
            };
            let is_by_key = index.fields.first().is_some_and(|first| shape.key().contains(first));
            self.add(if is_by_key {
                indexes.by_pages(&spec)
            } else {
                indexes.by_values(&spec, &index.name)
            });
        }
    }

    fn add(&mut self, index: IndexForecast) {
        self.indexes += index.bytes;
        self.entries += index.entries;
    }
}
