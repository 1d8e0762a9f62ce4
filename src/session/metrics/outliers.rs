//! Metrics of commands on outlier collections.

use prometheus::{IntCounterVec, Registry};

use super::registration::counters;

/// Metrics of commands on outlier collections.
#[derive(Clone, Debug)]
pub struct OutlierMetrics {
    spills: IntCounterVec,
    merged_reads: IntCounterVec,
}

impl OutlierMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            spills: counters(
                registry,
                "outlier_spills_total",
                "Writes of elements to the collection of extras: a tail was spilled, or a long array was stored or \
                 changed. When it grows faster than the pushes to long arrays, the threshold is too low for them, or the application changes \
                 them by operators other than $push, each of which costs the length of the array.",
                &["namespace"],
            )?,
            merged_reads: counters(
                registry,
                "outlier_merged_reads_total",
                "Replies with at least one document that was merged with its extras. When it approaches the number of reads, outliers \
                 are not the exception: raise the threshold, or exclude the array in projections that do not need it.",
                &["namespace"],
            )?,
        })
    }

    pub(super) fn expect_namespace(&self, namespace: &str) {
        self.spills.with_label_values(&[namespace]);
        self.merged_reads.with_label_values(&[namespace]);
    }

    /// Counts a spill.
    pub fn spilled(&self, namespace: &str) {
        self.spills.with_label_values(&[namespace]).inc();
    }

    /// Counts a reply with reassembled outliers.
    pub fn merged(&self, namespace: &str) {
        self.merged_reads.with_label_values(&[namespace]).inc();
    }
}
