//! Metrics of sessions. Labels are closed sets or configured namespaces, never a client's data.
//!
//! A HELP text describes the counted events and the unit. From its first "When" on, it describes the remedy.
//! `docs/metrics.md` is generated from the HELP texts.

mod commands;
mod conversions;
mod expiry;
mod inserts;
mod label;
mod observed;
mod outliers;
mod refusals;
mod registration;
mod shadow;

use std::time::Duration;

use self::registration::{counter, counters, registered};
use prometheus::{IntCounter, IntCounterVec, IntGauge, Registry};

use self::commands::CommandMetrics;
pub use self::commands::Spent;
pub use self::conversions::{ConversionMetrics, ConversionProgress};
pub use self::expiry::ExpiryMetrics;
pub use self::inserts::{HintUse, InsertMetrics, Placing};
pub use self::label::{ByteDirection, CommandOutcome, Limit, RefusalReason, Strategy};
pub use self::observed::ObservedMetrics;
pub use self::outliers::OutlierMetrics;
use self::refusals::RefusalLog;
pub use self::refusals::{Refusal, RefusalKind};
pub use self::shadow::{ShadowLayout, ShadowMetrics, ShadowResult};
use crate::command::registry::Command;
use crate::pattern::shapes::BucketShape;

/// The metrics of all sessions.
#[derive(Clone, Debug)]
pub struct SessionMetrics {
    commands: CommandMetrics,
    bytes_received: IntCounter,
    bytes_sent: IntCounter,
    /// Client connections open now.
    pub connections: IntGauge,
    /// Client connections accepted.
    pub connections_total: IntCounter,
    items_inserted: IntCounterVec,
    reads: IntCounterVec,
    rejected: IntCounterVec,
    refusals: RefusalLog,
    /// Unique indexes that were refused.
    pub refused_unique_indexes: IntGauge,
    observed: ObservedMetrics,
    limits_hit: IntCounterVec,
    /// Metrics of inserts on bucket collections.
    pub inserts: InsertMetrics,
    /// Metrics of the deletion of expired items.
    pub expiry: ExpiryMetrics,
    /// Metrics of conversions.
    pub conversions: ConversionMetrics,
    /// Metrics of shadow mode.
    pub shadow: ShadowMetrics,
    /// Metrics of commands on outlier collections.
    pub outliers: OutlierMetrics,
}

impl SessionMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If a name is registered already.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counters = |name: &str, help: &str, labels: &[&str]| counters(registry, name, help, labels);
        let bytes = counters(
            "bytes_total",
            "Bytes of messages from clients (received) and to them (sent), after compression. When it changes without \
             mongoshape_commands_total, the size of documents has changed.",
            &["direction"],
        )?;
        let metrics = Self {
            commands: CommandMetrics::register(registry)?,
            bytes_received: bytes.with_label_values(&["received"]),
            bytes_sent: bytes.with_label_values(&["sent"]),
            connections: registered(
                registry,
                IntGauge::new("mongoshape_client_connections", CLIENT_CONNECTIONS)?,
            )?,
            connections_total: counter(registry, "client_connections_total", CLIENT_CONNECTIONS_TOTAL)?,
            items_inserted: counters("bucket_items_inserted_total", ITEMS_INSERTED, &["namespace"])?,
            reads: counters("reads_total", READS, &["namespace", "strategy"])?,
            rejected: counters("rejected_total", REJECTED, &["namespace", "command", "reason"])?,
            refusals: RefusalLog::default(),
            refused_unique_indexes: registered(
                registry,
                IntGauge::new("mongoshape_refused_unique_indexes", REFUSED_UNIQUE_INDEXES)?,
            )?,
            observed: ObservedMetrics::register(registry)?,
            limits_hit: counters("limits_hit_total", LIMITS_HIT, &["limit"])?,
            inserts: InsertMetrics::register(registry)?,
            expiry: ExpiryMetrics::register(registry)?,
            conversions: ConversionMetrics::register(registry)?,
            shadow: ShadowMetrics::register(registry)?,
            outliers: OutlierMetrics::register(registry)?,
        };
        metrics.begin_at_zero();
        Ok(metrics)
    }

    /// Creates every series of a closed set, so that it exists at zero.
    fn begin_at_zero(&self) {
        for limit in Limit::ALL {
            self.limits_hit.with_label_values(&[limit.label()]);
        }
    }

    /// Creates every series of a shape, so that it exists at zero. `namespace`: as configured.
    pub fn expect_namespace(&self, namespace: &str) {
        self.items_inserted.with_label_values(&[namespace]);
        self.commands.expect_namespace(namespace);
        self.expiry.expect_namespace(namespace);
        self.conversions.expect_namespace(namespace);
        self.outliers.expect_namespace(namespace);
        for strategy in Strategy::ALL {
            self.reads.with_label_values(&[namespace, strategy.label()]);
        }
        expect_refusals(&self.rejected, namespace);
    }

    /// Counts a command that ended. `spent`: `None` if its duration is meaningless.
    pub fn command(&self, command: Command, outcome: CommandOutcome, spent: Option<Spent>) {
        self.commands.ended(command, outcome, spent);
    }

    /// Records the duration of a rewritten command. `namespace`: of the shape, as configured.
    pub fn of_shape(&self, namespace: &str, duration: Duration) {
        self.commands.of_shape(namespace, duration);
    }

    /// Counts the bytes of a frame.
    pub fn bytes(&self, direction: ByteDirection, bytes: usize) {
        let counter = match direction {
            ByteDirection::Received => &self.bytes_received,
            ByteDirection::Sent => &self.bytes_sent,
        };
        counter.inc_by(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Counts stored items.
    pub fn inserted(&self, namespace: &str, items: u64) {
        self.items_inserted.with_label_values(&[namespace]).inc_by(items);
    }

    /// Counts a read.
    pub fn read(&self, namespace: &str, strategy: Strategy) {
        self.reads.with_label_values(&[namespace, strategy.label()]).inc();
    }

    /// Counts and logs a refusal.
    pub fn rejected(&self, refusal: &Refusal<'_>) {
        let labels = [refusal.namespace, refusal.command.name(), refusal.reason.label()];
        self.rejected.with_label_values(&labels).inc();
        self.refusals.add(refusal);
    }

    /// The kinds of refusals with their counts, the most recent first.
    #[must_use]
    pub fn refusals(&self) -> Vec<(RefusalKind, u64)> {
        self.refusals.kinds()
    }

    /// Counts a connection that was closed because of a limit.
    pub fn limit_hit(&self, limit: Limit) {
        self.limits_hit.with_label_values(&[limit.label()]).inc();
    }

    /// The metrics of shapes in observe mode.
    #[must_use]
    pub fn observed(&self) -> &ObservedMetrics {
        &self.observed
    }

    /// Metrics for the dry run of shapes in observe mode, which are exported as observed. `None` if
    /// a name is registered twice.
    pub(super) fn of_dry_run(&self) -> Option<Self> {
        let counting = self.observed.counting()?;
        Some(Self {
            refusals: self.refusals.observed(),
            ..counting
        })
    }

    /// Counts items that would have been inserted, and the buckets that they would have begun.
    pub fn would_insert(&self, namespace: &str, shape: &BucketShape, items: u64, buckets: u64) {
        self.observed.inserted(namespace, shape, items, buckets);
    }
}

/// Creates every series of a shape's refusals, so that it exists at zero.
fn expect_refusals(rejected: &IntCounterVec, namespace: &str) {
    for command in Command::all() {
        for reason in RefusalReason::possible(command) {
            rejected.with_label_values(&[namespace, command.name(), reason.label()]);
        }
    }
}

const CLIENT_CONNECTIONS: &str = "Open client connections; each has its own upstream connection. When it approaches \
                                  listen.max_connections, or mongod's own limit, further clients will be refused: make their pools \
                                  smaller, raise the limit, or run more proxies.";
const CLIENT_CONNECTIONS_TOTAL: &str = "Client connections accepted. When it grows faster than the number of clients, clients do not \
                                        reuse connections: look for a pool per request, for idle timeouts, and for closed connections \
                                        in the log.";
const ITEMS_INSERTED: &str = "Items inserted into bucket collections, by shape. When it stops while the application writes, see \
    mongoshape_rejected_total and mongoshape_commands_total.";
const READS: &str = "Reads of shaped collections that were rewritten, by access path: page reads the pages that contain the answer, \
                     index reads pages in the order of an index, stream reads all pages of a key, pipeline is an aggregation in mongod. \
                     When pipeline grows, queries neither select one key in the order of time nor sort by an index: add the key to the \
                     filter, sort by the time field, or create an index on the fields of the filter and the sort, and limit the query.";
const REJECTED: &str = "Refusals, by shape, by command (other: names without a label of their own) and by the refused feature: a read, a \
                        write, an index, the collection as a whole, a command, a mention by a command on another collection, a \
                        change_stream, a name by uuid, a feature that a cluster does not have, or misfit: the stored documents do not have the shape, so \
                        every command is refused. When it grows, the application received an error with the reason, and docs/support.md \
                        lists alternatives; on misfit, run `mongoshape check`.";
const REFUSED_UNIQUE_INDEXES: &str = "Unique indexes that this proxy or another one has refused, so nothing keeps their values apart. When it \
                                      is not 0, the operator's page and `mongoshape check` name them, and docs/refused-indexes.md lists \
                                      alternatives.";
const LIMITS_HIT: &str = "Connections closed or refused because a client exceeded a limit, by the limit. When it grows, the log names \
                          the client: correct the client, or raise the limit in [listen].";
