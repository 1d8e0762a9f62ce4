//! Documents that follow each other in an index. Pure.
//!
//! A random sample does not show what neighbours have in common, and compression depends on it.

use bson::raw::RawDocumentBuf;

use super::sample::Sample;

/// Parts of an index, each at a random position.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    pub(super) runs: Vec<IndexRun>,
    /// Whether documents of a run follow each other in the index. Otherwise they are a sorted sample.
    pub(super) are_neighbours: bool,
}

/// Documents in the order of an index.
#[derive(Clone, Debug, Default)]
pub(super) struct IndexRun {
    pub(super) documents: Vec<RawDocumentBuf>,
    /// Whether the index continues, so that the last key may be incomplete.
    pub(super) is_cut: bool,
}

impl Runs {
    /// The sampled documents as one run, sorted by `order`.
    pub(super) fn of_sample<O: Ord>(sample: &Sample, order: impl Fn(&RawDocumentBuf) -> O) -> Self {
        let mut documents = sample.documents.clone();
        documents.sort_by_cached_key(order);
        Self {
            runs: vec![IndexRun {
                documents,
                is_cut: false,
            }],
            are_neighbours: sample.is_whole,
        }
    }

    /// Number of documents.
    pub(super) fn len(&self) -> usize {
        self.runs.iter().map(|run| run.documents.len()).sum()
    }
}
