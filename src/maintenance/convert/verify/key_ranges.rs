//! Checksums of documents by ranges of their key, for the report of `verify`.

use std::cmp::Ordering;

use bson::raw::{RawBson, RawBsonRef, RawDocument};

use super::checksum::Checksum;
use crate::command::document::get;
use crate::command::value_text::value_text;
use crate::pattern::bucket::value_order::{compare, is_comparable};

/// The most ranges of a report.
const MAX_RANGES: usize = 16;
/// Documents whose keys determine the ranges.
pub(super) const SAMPLE: i32 = 1000;

/// Ranges of the first key field's values, each with about the same number of documents. Values that mongod
/// does not order simply, such as documents, are in the first range.
pub(in crate::maintenance::convert) struct KeyRanges {
    field: String,
    /// The least value of each range but the first.
    bounds: Vec<RawBson>,
    checksums: Vec<Checksum>,
}

impl KeyRanges {
    /// The ranges by values of a sample.
    pub(super) fn of(field: &str, mut sample: Vec<RawBson>) -> Self {
        sample.retain(|value| is_comparable(value.as_raw_bson_ref()));
        sample.sort_by(order);
        let step = sample.len().div_ceil(MAX_RANGES).max(1);
        let mut bounds: Vec<RawBson> = sample.into_iter().step_by(step).skip(1).collect();
        bounds.dedup_by(|one, other| order(one, other) == Ordering::Equal);
        Self {
            field: field.to_owned(),
            checksums: vec![Checksum::default(); bounds.len() + 1],
            bounds,
        }
    }

    /// Adds a document and its [hash](super::checksum::document_hash).
    pub(super) fn add(&mut self, document: &RawDocument, hash: u64) {
        let value = get(document, &self.field).unwrap_or(RawBsonRef::Null);
        let is_below = |bound: &RawBson| compare(bound.as_raw_bson_ref(), value).is_some_and(Ordering::is_le);
        let range = self.bounds.partition_point(is_below);
        if let Some(checksum) = self.checksums.get_mut(range) {
            checksum.add(hash);
        }
    }

    /// A line for each range.
    pub(super) fn texts(&self) -> Vec<String> {
        let bound = |number: usize| {
            let value = self.bounds.get(number)?;
            Some(value_text(value.as_raw_bson_ref()))
        };
        let mut texts = Vec::new();
        for (number, Checksum { documents, sum }) in self.checksums.iter().enumerate() {
            let from = number.checked_sub(1).and_then(bound);
            let range = match (from, bound(number)) {
                (Some(from), Some(below)) => format!("from {from} to below {below}"),
                (Some(from), None) => format!("from {from} on"),
                (None, Some(below)) => format!("below {below}"),
                (None, None) => "of any value".to_owned(),
            };
            texts.push(format!(
                "{} {range}: {documents} documents, checksum {sum:016x}",
                self.field
            ));
        }
        texts
    }
}

/// An order of values that can be compared.
fn order(one: &RawBson, other: &RawBson) -> Ordering {
    compare(one.as_raw_bson_ref(), other.as_raw_bson_ref()).unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn each_document_is_in_one_range() {
        let sample = (0..100).map(|key| RawBson::Int32(key % 50)).collect();
        let mut ranges = KeyRanges::of("k", sample);
        for key in 0..50 {
            ranges.add(&rawdoc! { "k": key }, 1);
            ranges.add(&rawdoc! { "k": f64::from(key) }, 1);
        }
        ranges.add(&rawdoc! {}, 1);
        ranges.add(&rawdoc! { "k": "text" }, 1);
        ranges.add(&rawdoc! { "k": { "a": 1 } }, 1);
        let counts: Vec<u64> = ranges.checksums.iter().map(|checksum| checksum.documents).collect();
        assert_eq!(counts.iter().sum::<u64>(), 103, "{counts:?}");
        assert!(
            counts.len() <= MAX_RANGES && counts.iter().all(|count| *count <= 12),
            "{counts:?}"
        );
        let texts = ranges.texts();
        assert!(texts[0].starts_with("k below 3: "), "{texts:?}");
        assert!(texts[1].starts_with("k from 3 to below 7: "), "{texts:?}");
    }

    #[test]
    fn equal_keys_are_one_range() {
        let mut ranges = KeyRanges::of("k", vec![RawBson::Null; 10]);
        ranges.add(&rawdoc! { "k": 1 }, 5);
        let texts = ranges.texts();
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert!(KeyRanges::of("k", Vec::new()).texts()[0].contains("of any value: 0 documents"));
    }
}
