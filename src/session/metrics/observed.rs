//! Metrics of observe mode: the commands that shapes would rewrite, and the storage that they would save.

use prometheus::{IntCounterVec, Registry};

use super::label::Strategy;
use super::registration::counters;
use super::{SessionMetrics, expect_refusals};
use crate::command::registry::Command;
use crate::pattern::shapes::{BucketShape, ItemIds};

/// Minimum of index entries for an item in a plain collection: that of `_id`, and that of an index
/// on the key (and the time), which the same reads use.
const PLAIN_ENTRIES: u64 = 2;
/// Values of the label for the storage layout.
const PLAIN: &str = "plain";
const SHAPED: &str = "shaped";

/// Metrics of observe mode.
#[derive(Clone, Debug)]
pub struct ObservedMetrics {
    commands: IntCounterVec,
    rejected: IntCounterVec,
    reads: IntCounterVec,
    unplanned: IntCounterVec,
    items: IntCounterVec,
    buckets: IntCounterVec,
    saved_documents: IntCounterVec,
    index_entries: IntCounterVec,
}

impl ObservedMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counters = |name: &str, help: &str, labels: &[&str]| counters(registry, name, help, labels);
        Ok(Self {
            commands: counters("observed_total", COMMANDS, &["namespace", "command"])?,
            rejected: counters("observed_rejected_total", REJECTED, &["namespace", "command", "reason"])?,
            reads: counters("observed_reads_total", READS, &["namespace", "strategy"])?,
            unplanned: counters("observed_unplanned_total", UNPLANNED, &["namespace"])?,
            items: counters("observed_items_inserted_total", ITEMS, &["namespace"])?,
            buckets: counters("observed_buckets_opened_total", BUCKETS, &["namespace"])?,
            saved_documents: counters("observed_saved_documents_total", SAVED_DOCUMENTS, &["namespace"])?,
            index_entries: counters("observed_index_entries_total", INDEX_ENTRIES, &["namespace", "layout"])?,
        })
    }

    /// Creates every series of an observed shape, so that it exists at zero.
    pub fn expect_namespace(&self, namespace: &str) {
        expect_refusals(&self.rejected, namespace);
        for strategy in Strategy::ALL {
            self.reads.with_label_values(&[namespace, strategy.label()]);
        }
        for command in Command::all() {
            self.commands.with_label_values(&[namespace, command.name()]);
        }
        for of_namespace in [&self.unplanned, &self.items, &self.buckets, &self.saved_documents] {
            of_namespace.with_label_values(&[namespace]);
        }
        for layout in [PLAIN, SHAPED] {
            self.index_entries.with_label_values(&[namespace, layout]);
        }
    }

    /// Session metrics for the dry run. Refusals and reads count as observed, other counts are
    /// dropped. `None` only if a name is registered twice.
    pub(super) fn counting(&self) -> Option<SessionMetrics> {
        let metrics = SessionMetrics::register(&Registry::new()).ok()?;
        Some(SessionMetrics {
            rejected: self.rejected.clone(),
            reads: self.reads.clone(),
            observed: self.clone(),
            ..metrics
        })
    }

    /// Counts a command that would have been rewritten.
    pub fn rewritten(&self, namespace: &str, command: Command) {
        self.commands.with_label_values(&[namespace, command.name()]).inc();
    }

    /// Counts a command whose outcome depends on replies of mongod.
    pub fn unplanned(&self, namespace: &str) {
        self.unplanned.with_label_values(&[namespace]).inc();
    }

    pub(super) fn inserted(&self, namespace: &str, shape: &BucketShape, items: u64, buckets: u64) {
        let of = |counters: &IntCounterVec, count| counters.with_label_values(&[namespace]).inc_by(count);
        of(&self.items, items);
        of(&self.buckets, buckets);
        of(&self.saved_documents, items.saturating_sub(buckets));
        // Entries of `_id`, the page index and the time index, and one for each item's own `_id`.
        let a_bucket = if shape.time().is_some() { 3 } else { 2 };
        let an_item = match shape.item_ids() {
            ItemIds::Unique => 1,
            ItemIds::UniqueInKey => 2,
            ItemIds::Stored | ItemIds::Dropped => 0,
        };
        let entries = buckets
            .saturating_mul(a_bucket)
            .saturating_add(items.saturating_mul(an_item));
        let of = |layout, count| self.index_entries.with_label_values(&[namespace, layout]).inc_by(count);
        of(PLAIN, items.saturating_mul(PLAIN_ENTRIES));
        of(SHAPED, entries);
    }
}

const COMMANDS: &str = "Commands that a shape in observe mode would have rewritten or refused, by name; commands that an outlier shape \
                        would have relayed are not counted. When it stays 0, the application uses another namespace.";
const REJECTED: &str = "Refusals that a shape in observe mode would have made, by command and by the refused feature (see \
                        mongoshape_rejected_total). \
                        When it grows, change the application first, or leave the collection plain: the log and the operator's page \
                        have the reasons, docs/support.md the alternatives.";
const READS: &str = "Reads that a shape in observe mode would have rewritten, by access path if no page is short or out of order. When \
                     most are by pipeline, another key serves the application better.";
const UNPLANNED: &str = "Commands on a namespace in observe mode that would have been rewritten, or refused depending on stored data: \
                         updates, deletes and commands on indexes and collections. When there are many, test the shape on a copy with \
                         the application's own tests before you change the mode.";
const ITEMS: &str = "Items of inserts that a shape in observe mode would have put into buckets. When it stays 0, there are no inserts, \
                     or all would be refused.";
const BUCKETS: &str = "Buckets that a shape in observe mode would have begun for these items, if each key had none at the start. When \
                       it grows nearly as fast as the items, the key has few items: choose another key.";
const SAVED_DOCUMENTS: &str = "Documents that the inserts would have saved: items minus buckets, an estimate. When it stays far below \
                               the items, the pattern saves little here.";
const INDEX_ENTRIES: &str = "Index entries of these items, an estimate: plain: of _id and of one index on the key, which serves the \
                             same reads; shaped: of buckets and, with item_ids = \"unique\", of each item's _id. When shaped is not far \
                             below plain, item_ids = \"stored\" saves more, if the application does not rely on unique _ids.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_counted_in_observe_mode_are_observed_metrics() {
        let registry = Registry::new();
        let observed = ObservedMetrics::register(&registry).unwrap();
        observed.counting().unwrap().read("a.b", Strategy::Page);
        assert_eq!(observed.reads.with_label_values(&["a.b", "page"]).get(), 1);
    }
}
