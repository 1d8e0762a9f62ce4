//! Metrics of the deletion of expired items.

use prometheus::{IntCounter, IntCounterVec, IntGauge, Registry};

use super::registration::{counter, counters, registered};

/// Metrics of the deletion of expired items.
#[derive(Clone, Debug)]
pub struct ExpiryMetrics {
    expired: IntCounterVec,
    failures: IntCounter,
    leases: IntGauge,
}

impl ExpiryMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            expired: counters(
                registry,
                "items_expired_total",
                "Items of bucket collections with a TTL index that this proxy deleted. When all proxies together delete fewer than \
                 expire, see mongoshape_expiry_failures_total and the log.",
                &["namespace"],
            )?,
            failures: counter(
                registry,
                "expiry_failures_total",
                "Rounds in which this proxy could not delete expired items. When it grows, the log has the reason: usually the user of \
                 upstream.uri lacks a right.",
            )?,
            leases: registered(
                registry,
                IntGauge::new(
                    "mongoshape_expiry_leases",
                    "Collections with a TTL index whose expired items this proxy deletes. When the sum over all proxies is less than the \
                     number of such collections for more than a minute, items of some do not expire: see the log.",
                )?,
            )?,
        })
    }

    pub(super) fn expect_namespace(&self, namespace: &str) {
        self.expired.with_label_values(&[namespace]);
    }

    /// Counts deleted items. `namespace`: as configured.
    pub fn expired(&self, namespace: &str, items: u64) {
        self.expired.with_label_values(&[namespace]).inc_by(items);
    }

    /// Counts a round that failed.
    pub fn failed(&self) {
        self.failures.inc();
    }

    /// Records for how many collections this proxy deletes expired items.
    pub fn holds(&self, leases: i64) {
        self.leases.set(leases);
    }
}
