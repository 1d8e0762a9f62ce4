//! The data on which a proposal is based.

use super::collection_stats::CollectionStats;
use super::sample::Sample;
use super::traffic::Traffic;

#[derive(Clone, Copy)]
pub(super) struct Evidence<'a> {
    pub(super) facts: &'a CollectionStats,
    pub(super) sample: &'a Sample,
    pub(super) traffic: &'a Traffic,
}
