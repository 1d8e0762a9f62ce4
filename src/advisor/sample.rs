//! Sampled documents and statistics of their fields. Pure. No value leaves this module.

use std::collections::{BTreeMap, HashMap};

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::rounding::{count, share};
use crate::command::document::{as_whole_number, elements, get, put, single};

/// Fraction of documents that counts as nearly all.
const NEARLY_ALL: f64 = 0.95;

#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) documents: Vec<RawDocumentBuf>,
    /// Whether the sample contains all documents.
    pub(super) is_whole: bool,
    fields: BTreeMap<String, SampledField>,
}

/// Statistics of a top-level field.
#[derive(Clone, Debug, Default)]
pub(super) struct SampledField {
    /// The field's position in the first document that has it.
    pub(super) place: usize,
    /// Documents with the field.
    pub(super) present: u64,
    /// Documents in which it is a date.
    pub(super) dates: u64,
    /// Documents in which it is an array, which cannot be a key.
    pub(super) arrays: u64,
    /// Documents in which it is a boolean.
    pub(super) flags: u64,
    /// Lengths of its arrays.
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

    /// Filters for the keys of the first documents. The sample has no order, so these are as
    /// representative as others.
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

    /// Number of documents in the sample.
    pub(super) fn len(&self) -> u64 {
        count(self.documents.len())
    }

    /// Fields, by name.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &SampledField)> {
        self.fields.iter().map(|(name, field)| (name.as_str(), field))
    }

    /// Statistics of one field, if a document has it.
    pub(super) fn field(&self, name: &str) -> Option<&SampledField> {
        self.fields.get(name)
    }

    /// Whether a field can be part of a key: nearly all documents have it, it is never an array or
    /// a date, and not always a boolean.
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

    /// Number of documents for each distinct key.
    pub(super) fn groups(&self, key: &[String]) -> Vec<u64> {
        let mut groups: HashMap<Vec<u8>, u64> = HashMap::new();
        for document in &self.documents {
            *groups.entry(identity(document, key)).or_default() += 1;
        }
        groups.into_values().collect()
    }

    /// Whether nearly all documents look like hand-written buckets: an array of documents, and a
    /// field with its length.
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

/// The type and bytes of some fields. Unlike in a plain collection, equal numbers of different
/// types are different.
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
    fn fields_are_distinguished_by_their_values() {
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
