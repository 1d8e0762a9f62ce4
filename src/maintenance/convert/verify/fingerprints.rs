//! The documents of one collection as hashes, to be found in the other one.

use std::collections::HashMap;

use bson::raw::RawDocument;

use super::checksum::{document_hash, hash};
use crate::command::document::get;
use crate::pattern::bucket::key::value_identity;

/// The most documents in one pass: about 150 MiB.
const MAX_DOCUMENTS: usize = 4_000_000;

/// The hashes of the documents of one pass. A pass compares those documents whose `_id`'s hash has its
/// remainder, so that the hashes of any collection have room.
#[derive(Debug)]
pub(super) struct Fingerprints {
    /// The hash of each document that was not found in the other collection yet, by the hash of its `_id`.
    left: HashMap<u64, u64>,
    most: usize,
    passes: u64,
    pass: u64,
    /// Documents of both collections that were read in all passes.
    read: u64,
}

impl Fingerprints {
    pub(super) fn new() -> Self {
        Self::with_most(MAX_DOCUMENTS)
    }

    fn with_most(most: usize) -> Self {
        Self {
            left: HashMap::new(),
            most,
            passes: 1,
            pass: 0,
            read: 0,
        }
    }

    /// The number of documents that were compared, as far as the number of passes is known.
    pub(super) fn compared(&self) -> u64 {
        self.read / 2 / self.passes
    }

    /// Whether no later pass is required.
    pub(super) fn is_last_pass(&self) -> bool {
        self.pass + 1 >= self.passes
    }

    /// Begins the next pass.
    pub(super) fn next_pass(&mut self) {
        self.pass += 1;
        self.left.clear();
    }

    /// Adds a document of this pass. Returns its hash.
    pub(super) fn add(&mut self, document: &RawDocument) -> u64 {
        self.read += 1;
        let hash = document_hash(document);
        let id = id_hash(document);
        if self.is_of_pass(id) {
            self.left.insert(id, hash);
        }
        // Only the first pass determines the number of passes: later ones have as many documents.
        while self.pass == 0 && self.left.len() > self.most {
            self.passes *= 2;
            let passes = self.passes;
            self.left.retain(|id, _| id % passes == 0);
        }
        hash
    }

    /// Takes a document of the other collection. Returns whether it was added with the same fields, or is of
    /// another pass.
    pub(super) fn take(&mut self, document: &RawDocument) -> bool {
        self.read += 1;
        let id = id_hash(document);
        !self.is_of_pass(id) || self.left.remove(&id) == Some(document_hash(document))
    }

    /// Removes documents that have changed. `identities`: of their `_id`s.
    pub(super) fn remove<'i>(&mut self, identities: impl Iterator<Item = &'i Vec<u8>>) {
        for identity in identities {
            self.left.remove(&hash(identity));
        }
    }

    /// Whether the other collection has all documents of this pass.
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Whether the other collection does not have this document.
    pub(super) fn contains(&self, document: &RawDocument) -> bool {
        self.left.contains_key(&id_hash(document))
    }

    fn is_of_pass(&self, id: u64) -> bool {
        id % self.passes == self.pass
    }
}

fn id_hash(document: &RawDocument) -> u64 {
    get(document, "_id").map_or(0, |id| hash(&value_identity(id)))
}

#[cfg(test)]
mod tests {
    use bson::RawDocumentBuf;
    use bson::rawdoc;

    use super::*;

    fn document(id: i32, x: i32) -> RawDocumentBuf {
        rawdoc! { "_id": id, "x": x }
    }

    #[test]
    fn what_differs_is_not_found() {
        let mut fingerprints = Fingerprints::new();
        for id in 0..5 {
            fingerprints.add(&document(id, 0));
        }
        assert!(fingerprints.take(&document(0, 0)));
        assert!(fingerprints.take(&rawdoc! { "x": 0, "_id": 1.0 }) != fingerprints.take(&rawdoc! { "x": 0, "_id": 2 }));
        assert!(!fingerprints.take(&document(3, 1)));
        assert!(!fingerprints.take(&document(7, 0)));
        assert!(fingerprints.contains(&document(4, 9)) && !fingerprints.contains(&document(3, 0)));
        fingerprints.remove([value_identity(bson::raw::RawBsonRef::Int64(4))].iter());
        assert!(fingerprints.is_empty());
    }

    #[test]
    fn each_document_is_compared_in_one_pass() {
        let mut fingerprints = Fingerprints::with_most(30);
        let mut taken = 0;
        loop {
            for id in 0..100 {
                fingerprints.add(&document(id, 0));
            }
            let before = fingerprints.left.len();
            assert!(before <= 60, "{before}");
            for id in 0..100 {
                assert!(fingerprints.take(&document(id, 0)));
            }
            taken += before;
            assert!(fingerprints.is_empty());
            if fingerprints.is_last_pass() {
                break;
            }
            fingerprints.next_pass();
        }
        assert_eq!(taken, 100);
        assert!(fingerprints.passes >= 4);
        assert_eq!(fingerprints.compared(), 100);
    }
}
