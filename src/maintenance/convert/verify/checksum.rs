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
    pub(in crate::maintenance::convert) fn add(&mut self, document: &RawDocument) {
        let mut fields = 0_u64;
        for (name, value) in document.iter().flatten() {
            let mut hasher = DefaultHasher::new();
            hasher.write(single(name.as_str(), value).as_bytes());
            fields = fields.wrapping_add(hasher.finish());
        }
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(fields);
        self.documents += 1;
        self.sum = self.sum.wrapping_add(hasher.finish());
    }
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
                sum.add(document);
            }
            sum
        };
        let (one, other) = (rawdoc! { "_id": 1, "x": 2 }, rawdoc! { "_id": 2, "x": 1 });
        assert_eq!(of(&[&one, &other]), of(&[&rawdoc! { "x": 1, "_id": 2 }, &one]));
        assert_ne!(of(&[&one]), of(&[&other]));
        assert_ne!(of(&[&one]), of(&[&rawdoc! { "_id": 1, "x": 2_i64 }]));
    }
}
