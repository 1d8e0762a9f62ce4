//! How many documents each value of a key has: from all of them, from counting some keys by an index, or
//! guessed from a sample. Pure.

use super::rounding::{count, real};

/// How it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// All documents were looked at.
    Whole,
    /// So many keys, of documents at random, were counted by an index.
    Counted(u64),
    /// By how often values repeat in the sample.
    Guessed,
}

/// The sizes of a collection's keys.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    /// (documents of a key, how many documents this stands for).
    of_documents: Vec<(f64, f64)>,
    pub(super) known: Known,
}

impl Sizes {
    /// A key's documents are counted up to so many.
    pub(super) const COUNTED: u64 = 10_000;

    /// From how many documents each key has, of all.
    pub(super) fn whole(groups: &[u64]) -> Self {
        Self {
            of_documents: groups.iter().map(|size| (real(*size), real(*size))).collect(),
            known: Known::Whole,
        }
    }

    /// From the sizes of the keys of documents that were drawn at random: a key is drawn as often as it has
    /// documents.
    pub(super) fn counted(sizes: &[u64]) -> Self {
        Self {
            of_documents: sizes.iter().map(|size| (real((*size).max(1)), 1.0)).collect(),
            known: Known::Counted(count(sizes.len())),
        }
    }

    /// From how often keys came in a sample of a collection that has so many documents.
    ///
    /// The number of keys is estimated from those that came once and twice (Chao's estimator), which is the
    /// least there are: keys that have few documents beside large ones are not seen.
    pub(super) fn guessed(groups: &[u64], documents: u64) -> Self {
        let came = |times: u64| real(count(groups.iter().filter(|size| **size == times).count()));
        let seen = real(count(groups.len()));
        let (once, twice) = (came(1), came(2));
        let unseen = once * (once - 1.0).max(0.0) / (2.0 * (twice + 1.0));
        let keys = (seen + unseen).clamp(1.0, real(documents).max(1.0));
        Self {
            of_documents: vec![(real(documents) / keys, 1.0)],
            known: Known::Guessed,
        }
    }

    /// Documents of a key, the mean of all keys.
    pub(super) fn mean(&self) -> f64 {
        1.0 / self.for_each_document(|size| 1.0 / size).max(f64::MIN_POSITIVE)
    }

    /// Keys, among so many documents.
    pub(super) fn keys(&self, documents: u64) -> f64 {
        real(documents) / self.mean()
    }

    /// Pages that so many documents come to, at most so many on a page.
    pub(super) fn pages(&self, documents: u64, max_items: u32) -> f64 {
        let most = f64::from(max_items);
        // Of a mean one does not know how far its last page is filled: half, as a rule.
        let pages = |size: f64| match self.known {
            Known::Guessed => (size / most + 0.5).max(1.0),
            Known::Whole | Known::Counted(_) => (size / most).ceil(),
        };
        real(documents) * self.for_each_document(|size| pages(size) / size)
    }

    /// The mean over documents.
    fn for_each_document(&self, of: impl Fn(f64) -> f64) -> f64 {
        let all: f64 = self.of_documents.iter().map(|(_, weight)| weight).sum();
        let sum: f64 = self.of_documents.iter().map(|(size, weight)| of(*size) * weight).sum();
        if all > 0.0 { sum / all } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rounding::whole;
    use super::*;

    fn check(sizes: &Sizes, documents: u64, expected: (u64, u64, u64)) {
        let found = (
            whole(sizes.mean()),
            whole(sizes.keys(documents)),
            whole(sizes.pages(documents, 10)),
        );
        assert_eq!(found, expected, "{sizes:?}");
    }

    #[test]
    fn all_of_them_are_counted() {
        check(&Sizes::whole(&[25, 5, 10, 20]), 60, (15, 4, 7));
        check(&Sizes::whole(&[1, 1, 1]), 3, (1, 3, 3));
    }

    #[test]
    fn keys_of_random_documents_stand_for_all() {
        // Half of the documents are of keys of 100, the others have keys of their own.
        check(&Sizes::counted(&[100, 1, 100, 1]), 1000, (2, 505, 550));
        check(&Sizes::counted(&[1000; 20]), 1_000_000, (1000, 1000, 100_000));
    }

    #[test]
    fn a_sample_tells_keys_that_repeat_from_keys_that_do_not() {
        // 1000 documents of 10 keys.
        let few = Sizes::guessed(&[100; 10], 1_000_000);
        check(&few, 1_000_000, (100_000, 10, 100_005));
        // None came twice: there may be as many keys as documents.
        let many = Sizes::guessed(&[1; 1000], 100_000);
        assert!(many.mean() < 1.1, "{}", many.mean());
    }
}
