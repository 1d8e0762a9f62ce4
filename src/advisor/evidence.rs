//! What a proposal is decided by.

use super::collection_stats::CollectionStats;
use super::sample::Sample;
use super::traffic::Traffic;

/// What was read of a collection.
#[derive(Clone, Copy)]
pub(super) struct Evidence<'a> {
    pub(super) facts: &'a CollectionStats,
    pub(super) sample: &'a Sample,
    pub(super) traffic: &'a Traffic,
}
