//! Forecasts single indexes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use bson::raw::RawDocument;

use super::built_pages::BuiltPages;
use super::index_size::{self, EntrySizes};
use super::key_string::{KeyString, record};
use super::{Measured, index_entries};
use crate::advisor::rounding::{count, real, whole};
use crate::advisor::runs::Runs;
use crate::pattern::bucket::index;
use crate::pattern::bucket::item_index::{self, StoredIndex};
use crate::pattern::bucket::layout::path;
use crate::pattern::shape_marker;
use crate::pattern::shapes::BucketShape;

/// Of a hash that distributes values over pages.
const MULTIPLIER: u64 = 31;
const MODULUS: u64 = 65_521;

/// The forecast for an index.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexForecast {
    pub(super) entries: f64,
    /// Bytes on disk.
    pub(super) bytes: f64,
}

impl IndexForecast {
    fn new(entries: f64, of_entry: f64) -> Self {
        Self {
            entries,
            bytes: index_size::file_bytes(entries, of_entry),
        }
    }
}

/// Forecasts the indexes of one shape.
pub(super) struct IndexForecasts<'a> {
    pub(super) measured: &'a Measured<'a>,
    pub(super) shape: &'a BucketShape,
    pub(super) pages: &'a BuiltPages,
}

impl IndexForecasts<'_> {
    /// An index whose order is that of the pages: neighbours are on the same page, or on the next one.
    pub(super) fn by_pages(&self, spec: &RawDocument) -> IndexForecast {
        let paths = paths(spec);
        let (mut sizes, mut entries, mut number) = (EntrySizes::default(), 0_usize, 0_u64);
        for run in &self.pages.runs {
            // As if the runs were distributed evenly over the collection.
            let start = whole(self.measured.pages * real(number) / real(count(self.pages.len())));
            let mut of_run = Vec::new();
            for (page, place) in run.iter().zip(1..) {
                number += 1;
                let found = entries_of(spec, &paths, page);
                entries += found.len();
                of_run.extend(found.into_iter().map(|key| PageEntry {
                    key,
                    page: start + place,
                }));
            }
            of_run.sort_unstable();
            let has_record_as_value = item_index::name(spec) == item_index::ID;
            for entry in &of_run {
                entry.add_to(&mut sizes, has_record_as_value);
            }
            sizes.end_run();
        }
        IndexForecast::new(self.all(entries), sizes.mean())
    }

    /// An index whose order has nothing to do with that of the pages. `known` is the index that has the same
    /// values now.
    pub(super) fn by_values(&self, spec: &RawDocument, known: &str) -> IndexForecast {
        let paths = paths(spec);
        let mut pages_with: BTreeMap<KeyString, usize> = BTreeMap::new();
        let mut entries = 0;
        for page in self.pages.all() {
            for key in entries_of(spec, &paths, page) {
                entries += 1;
                *pages_with.entry(key).or_default() += 1;
            }
        }
        let of_items = self.paths_of_documents(&paths);
        let runs = match self.measured.by_index.get(known) {
            Some(runs) if runs.len() > 0 => Cow::Borrowed(runs),
            _ => Cow::Owned(Runs::of_sample(self.measured.sample, |document| {
                index_entries::entries(&of_items, document).into_iter().next()
            })),
        };
        let has_version = paths.first().is_some_and(|path| path == StoredIndex::PREFIX);
        let mut sizes = EntrySizes::default();
        for run in &runs.runs {
            let mut documents_with: BTreeMap<KeyString, u64> = BTreeMap::new();
            for document in &run.documents {
                for key in index_entries::entries(&of_items, document) {
                    let stored = if has_version { key.behind_version() } else { key };
                    *documents_with.entry(stored).or_default() += 1;
                }
            }
            for (key, documents) in &documents_with {
                let value = ValueInRun {
                    key,
                    pages: pages_with.get(key).copied().unwrap_or(0),
                    documents: *documents,
                };
                self.add_value(&value, &mut sizes);
            }
            sizes.end_run();
        }
        IndexForecast::new(self.all(entries), sizes.mean())
    }

    /// Adds the entries of a value, one for each of some pages. Pages with the value are assumed to be
    /// distributed evenly.
    fn add_value(&self, value: &ValueInRun<'_>, sizes: &mut EntrySizes) {
        let built = real(count(self.pages.len()));
        let pages = (real(count(value.pages)) / built * self.measured.pages).max(real(value.documents));
        let gap = (self.measured.pages / pages).max(1.0);
        // Different values are on different pages.
        let start = value
            .key
            .bytes()
            .iter()
            .fold(7, |sum: u64, byte| (sum * MULTIPLIER + u64::from(*byte)) % MODULUS);
        let start = real(start) / real(MODULUS) * self.measured.pages;
        for number in 0..value.documents {
            let page = (start + gap * real(number)) % self.measured.pages;
            let entry = [value.key.bytes(), &record(whole(page))].concat();
            sizes.add(&entry, value.key.type_bytes());
        }
    }

    /// Scales a number of entries from the built pages to all pages.
    fn all(&self, built: usize) -> f64 {
        real(count(built)) / real(count(self.pages.len())) * self.measured.pages
    }

    /// The paths in documents of the paths in items.
    fn paths_of_documents(&self, stored: &[String]) -> Vec<String> {
        let in_items = format!("{}.", self.shape.items());
        let paths = stored.iter().filter(|path| *path != StoredIndex::PREFIX);
        paths
            .map(|path| match path.strip_prefix(&in_items) {
                Some(path) => self.shape.rename().item(path).to_owned(),
                None => path.clone(),
            })
            .collect()
    }
}

/// An entry of a built page.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PageEntry {
    key: KeyString,
    /// The number of the page.
    page: u64,
}

impl PageEntry {
    /// mongod stores the number of a page at the end of the key, or, in the index on `_id`, as the value.
    fn add_to(&self, sizes: &mut EntrySizes, has_record_as_value: bool) {
        let mut key = self.key.bytes().to_vec();
        let record = record(self.page);
        if has_record_as_value {
            sizes.add(&key, count(record.len()) + self.key.type_bytes());
        } else {
            key.extend(record);
            sizes.add(&key, self.key.type_bytes());
        }
    }
}

/// A value in a run of an index.
#[derive(Debug)]
struct ValueInRun<'a> {
    key: &'a KeyString,
    /// Built pages that contain the value.
    pages: usize,
    /// Documents of the run that have it.
    documents: u64,
}

/// The entries of a page. The partial index on exceptions contains only these, and the shape marker no page.
fn entries_of(spec: &RawDocument, paths: &[String], page: &RawDocument) -> BTreeSet<KeyString> {
    let is_in = match item_index::name(spec) {
        index::EXCEPTIONS => index_entries::is_true(page, path::EXCEPTION),
        shape_marker::INDEX => false,
        // The other partial indexes contain every page that has items.
        _ => true,
    };
    if is_in {
        index_entries::entries(paths, page)
    } else {
        BTreeSet::new()
    }
}

/// The paths of an index.
fn paths(spec: &RawDocument) -> Vec<String> {
    let fields = item_index::key(spec).iter().flatten();
    fields.map(|(path, _)| path.as_str().to_owned()).collect()
}
