//! Some of a collection's documents, and what they have in common. Pure; nothing of a value leaves it.

use std::collections::{BTreeMap, HashMap};

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::rounding::{count, share};
use crate::command::document::{as_whole_number, elements, get, put, single};

/// A field is in nearly all documents when it is in so many of them.
const NEARLY_ALL: f64 = 0.95;

/// Documents that were looked at.
#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) documents: Vec<RawDocumentBuf>,
    /// Whether these are all that there are.
    pub(super) is_whole: bool,
    fields: BTreeMap<String, SampledField>,
}

/// A top-level field of the documents.
#[derive(Clone, Debug, Default)]
pub(super) struct SampledField {
    /// The place among a document's fields where it was first seen.
    pub(super) place: usize,
    /// How many documents have it.
    pub(super) present: u64,
    /// In how many it is a date.
    pub(super) dates: u64,
    /// In how many it cannot be a key: an array.
    pub(super) arrays: u64,
    /// In how many it is `true` or `false`.
    pub(super) flags: u64,
    /// The lengths of its arrays.
    pub(super) lengths: Vec<u64>,
    /// Bytes of its arrays.
    pub(super) array_bytes: u64,
}

impl Sample {
    pub(super) fn new(documents: Vec<RawDocumentBuf>, is_whole: bool) -> Self {
        let mut fields: BTreeMap<String, SampledField> = BTreeMap::new();
        for document in &documents {
            for (place, (name, value)) in document.iter().flatten().enumerate() {
                let first = || SampledField {
                    place,
                    ..SampledField::default()
                };
                let field = fields.entry(name.as_str().to_owned()).or_insert_with(first);
                field.add(value);
            }
        }
        Self {
            documents,
            is_whole,
            fields,
        }
    }

    /// Filters for the keys of some of the documents. The sample is in no order, so its first documents are as
    /// good as others.
    pub(super) fn key_filters(&self, key: &[String], most: usize) -> Vec<RawDocumentBuf> {
        let filter_of = |document: &RawDocumentBuf| {
            let mut filter = RawDocumentBuf::new();
            for field in key {
                put(&mut filter, field, single("$eq", get(document, field)?));
            }
            Some(filter)
        };
        self.documents.iter().filter_map(filter_of).take(most).collect()
    }

    /// How many were looked at.
    pub(super) fn len(&self) -> u64 {
        count(self.documents.len())
    }

    /// Fields, by name.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &SampledField)> {
        self.fields.iter().map(|(name, field)| (name.as_str(), field))
    }

    /// One field, if a document has it.
    pub(super) fn field(&self, name: &str) -> Option<&SampledField> {
        self.fields.get(name)
    }

    /// Whether documents could be grouped by a field: it is in nearly all, and never an array nor always a
    /// flag.
    pub(super) fn may_be_key(&self, name: &str) -> bool {
        let may = |field: &SampledField| {
            share(field.present, self.len()) >= NEARLY_ALL
                && field.arrays == 0
                && field.flags < field.present
                && field.dates == 0
        };
        name != "_id" && self.field(name).is_some_and(may)
    }

    /// Whether a field is a date in nearly all documents.
    pub(super) fn is_time(&self, name: &str) -> bool {
        let is = |field: &SampledField| share(field.dates, self.len()) >= NEARLY_ALL;
        name != "_id" && self.field(name).is_some_and(is)
    }

    /// How many documents have each of the values that these fields have.
    pub(super) fn groups(&self, key: &[String]) -> Vec<u64> {
        let mut groups: HashMap<Vec<u8>, u64> = HashMap::new();
        for document in &self.documents {
            *groups.entry(identity(document, key)).or_default() += 1;
        }
        groups.into_values().collect()
    }

    /// Whether most documents look like pages that an application has written by hand: an array of documents,
    /// and a field that has its length.
    pub(super) fn are_buckets(&self) -> bool {
        let pages = self.documents.iter().filter(|document| is_bucket(document)).count();
        pages > 0 && share(count(pages), self.len()) >= NEARLY_ALL
    }
}

impl SampledField {
    fn add(&mut self, value: RawBsonRef<'_>) {
        self.present += 1;
        match value {
            RawBsonRef::DateTime(_) => self.dates += 1,
            RawBsonRef::Boolean(_) => self.flags += 1,
            RawBsonRef::Array(array) => {
                self.arrays += 1;
                self.array_bytes += count(array.as_bytes().len());
                self.lengths.push(count(array.into_iter().count()));
            }
            _ => {}
        }
    }
}

/// The values of some fields, type and bytes: numbers of two types are taken for two, which a plain
/// collection would not do.
fn identity(document: &RawDocument, key: &[String]) -> Vec<u8> {
    let mut identity = Vec::new();
    for field in key {
        let found = elements(document).find(|element| element.name == field.as_bytes());
        identity.extend_from_slice(found.map(|element| element.whole).unwrap_or_default());
        identity.push(0);
    }
    identity
}

fn is_bucket(document: &RawDocument) -> bool {
    let array = document.iter().flatten().find_map(|(_, value)| value.as_array());
    let Some(array) = array else { return false };
    let length = i64::try_from(array.into_iter().count()).unwrap_or(i64::MAX);
    let first = array.into_iter().flatten().next();
    let says = get(document, "count").and_then(as_whole_number);
    says == Some(length) && first.is_some_and(|first| first.as_document().is_some())
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, rawdoc};

    use super::*;

    #[test]
    fn fields_are_told_apart_by_what_they_hold() {
        let document = |number: i32| {
            let date = DateTime::from_millis(i64::from(number));
            rawdoc! { "_id": number, "k": number % 3, "at": date, "tags": ["a", "b"], "is": true, "rare": number }
        };
        let mut documents: Vec<_> = (0..30).map(document).collect();
        documents.push(rawdoc! { "_id": 30, "k": 1, "at": DateTime::from_millis(1), "tags": [], "is": false });
        let mut without = documents.clone();
        let sample = Sample::new(documents, true);
        assert!(sample.may_be_key("k"));
        for field in ["_id", "at", "tags", "is", "none"] {
            assert!(!sample.may_be_key(field), "{field}");
        }
        assert!(sample.is_time("at") && !sample.is_time("k"));
        let mut groups = sample.groups(&["k".to_owned()]);
        groups.sort_unstable();
        assert_eq!(groups, [10, 10, 11]);
        assert_eq!(sample.groups(&["k".to_owned(), "_id".to_owned()]).len(), 31);
        assert_eq!(sample.field("tags").unwrap().lengths.iter().sum::<u64>(), 60);
        without.extend((0..3).map(|_| rawdoc! { "at": 1 }));
        let sample = Sample::new(without, false);
        assert!(!sample.may_be_key("k") && !sample.is_time("at"));
    }

    #[test]
    fn pages_written_by_hand_are_recognised() {
        let page = rawdoc! { "_id": "1_2", "k": 1, "count": 2, "history": [{ "a": 1 }, { "a": 2 }] };
        assert!(Sample::new(vec![page], false).are_buckets());
        let other = rawdoc! { "_id": 1, "count": 3, "history": [{ "a": 1 }, { "a": 2 }] };
        assert!(!Sample::new(vec![other], false).are_buckets());
        assert!(!Sample::new(vec![rawdoc! { "count": 2, "tags": ["a", "b"] }], false).are_buckets());
        assert!(!Sample::default().are_buckets());
    }
}
