//! A checksum of documents that depends neither on their order nor on that of their fields.

use std::hash::{DefaultHasher, Hasher};

use bson::raw::RawDocument;

use crate::command::document::single;

/// The number of documents, and the sum of their hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::maintenance::convert) struct Checksum {
    pub(in crate::maintenance::convert) documents: u64,
    pub(in crate::maintenance::convert) sum: u64,
}

impl Checksum {
    /// Adds the [hash](document_hash) of a document.
    pub(in crate::maintenance::convert) fn add(&mut self, hash: u64) {
        self.documents += 1;
        self.sum = self.sum.wrapping_add(hash);
    }
}

/// A hash of the fields, in any order. Two documents that differ have the same one with a probability of
/// 2^-64.
pub(in crate::maintenance::convert) fn document_hash(document: &RawDocument) -> u64 {
    let mut fields = 0_u64;
    for (name, value) in document.iter().flatten() {
        fields = fields.wrapping_add(hash(single(name.as_str(), value).as_bytes()));
    }
    hash(&fields.to_ne_bytes())
}

/// A hash of bytes, which is the same in all programs of one version.
pub(in crate::maintenance::convert) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, rawdoc};

    use super::*;

    #[test]
    fn order_of_documents_and_fields_is_ignored() {
        let of = |documents: &[&RawDocumentBuf]| {
            let mut sum = Checksum::default();
            for document in documents {
                sum.add(document_hash(document));
            }
            sum
        };
        let (one, other) = (rawdoc! { "_id": 1, "x": 2 }, rawdoc! { "_id": 2, "x": 1 });
        assert_eq!(of(&[&one, &other]), of(&[&rawdoc! { "x": 1, "_id": 2 }, &one]));
        assert_ne!(of(&[&one]), of(&[&other]));
        assert_ne!(of(&[&one]), of(&[&rawdoc! { "_id": 1, "x": 2_i64 }]));
    }
}
