//! The number of documents per key: exact, from counts of some keys by an index, or estimated from
//! a sample. Pure.

use super::rounding::{count, real};

/// The source of the sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// All documents were read.
    Whole,
    /// This many keys, of random documents, were counted by an index.
    Counted(u64),
    /// Estimated from repetitions in the sample.
    Guessed,
}

#[derive(Clone, Debug)]
pub(super) struct Sizes {
    /// Pairs of a key's number of documents, and the number of documents that the pair represents.
    of_documents: Vec<(f64, f64)>,
    pub(super) known: Known,
}

impl Sizes {
    /// The limit for counting the documents of one key.
    pub(super) const COUNTED: u64 = 10_000;

    /// From the number of documents of every key.
    pub(super) fn whole(groups: &[u64]) -> Self {
        Self {
            of_documents: groups.iter().map(|size| (real(*size), real(*size))).collect(),
            known: Known::Whole,
        }
    }

    /// From the counts of the keys of random documents. A key is drawn in proportion to its number
    /// of documents.
    pub(super) fn counted(sizes: &[u64]) -> Self {
        Self {
            of_documents: sizes.iter().map(|size| (real((*size).max(1)), 1.0)).collect(),
            known: Known::Counted(count(sizes.len())),
        }
    }

    /// From the sampled number of documents of each key, in a collection with `documents` documents.
    ///
    /// The number of keys is estimated from those that were sampled once and twice (Chao's estimator).
    /// This is a lower bound: small keys next to large ones may not be sampled.
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

    /// Mean number of documents per key.
    pub(super) fn mean(&self) -> f64 {
        1.0 / self.for_each_document(|size| 1.0 / size).max(f64::MIN_POSITIVE)
    }

    /// Estimated number of keys.
    pub(super) fn keys(&self, documents: u64) -> f64 {
        real(documents) / self.mean()
    }

    /// Estimated number of pages.
    pub(super) fn pages(&self, documents: u64, max_items: u32) -> f64 {
        let most = f64::from(max_items);
        // The fill of the last page is unknown for an estimated mean: half on average.
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
    fn sampled_keys_estimate_all_keys() {
        // Half of the documents have keys with 100 documents, the others have a key each.
        check(&Sizes::counted(&[100, 1, 100, 1]), 1000, (2, 505, 550));
        check(&Sizes::counted(&[1000; 20]), 1_000_000, (1000, 1000, 100_000));
    }

    #[test]
    fn a_sample_distinguishes_repeated_keys() {
        // 1000 documents of 10 keys.
        let few = Sizes::guessed(&[100; 10], 1_000_000);
        check(&few, 1_000_000, (100_000, 10, 100_005));
        // No key was sampled twice, so there may be as many keys as documents.
        let many = Sizes::guessed(&[1; 1000], 100_000);
        assert!(many.mean() < 1.1, "{}", many.mean());
    }
}
