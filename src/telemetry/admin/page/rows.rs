//! Rows of the page that the caller provides.

use std::time::{Duration, SystemTime};

/// All of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageRows {
    /// Whether the process is stopping.
    pub is_draining: bool,
    /// One line for each collection that does not have its shape.
    pub misfits: Vec<String>,
    /// `None`: nothing is known of it yet.
    pub upstream: Option<UpstreamRow>,
    /// One row for each shape.
    pub shapes: Vec<ShapeRow>,
    /// One row for each kind of refusal, the latest first.
    pub refusals: Vec<RefusalRow>,
    /// One row for each refused unique index, the latest first.
    pub unique_indexes: Vec<UniqueIndexRow>,
    /// One row for each conversion.
    pub conversions: Vec<ConversionRow>,
}

/// The deployment behind the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamRow {
    /// The kind of the deployment.
    pub kind: &'static str,
    /// The name of the replica set.
    pub set: Option<String>,
    /// The servers that are known, the one for new connections first.
    pub servers: Vec<ServerRow>,
}

/// A server of the deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRow {
    /// `host:port`.
    pub address: String,
    /// Such as `primary`.
    pub role: &'static str,
    /// Whether new connections of clients use it.
    pub is_current: bool,
    /// Why it cannot be reached.
    pub error: Option<String>,
}

/// A shape on the page, described by its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeRow {
    /// As configured, and as in the metrics' labels.
    pub namespace: String,
    /// `bucket` or `outlier`.
    pub pattern: &'static str,
    /// `rewrite` or `observe`.
    pub mode: &'static str,
    /// The key, or the array.
    pub by: String,
    /// The maximum size of a page or base document.
    pub holds: String,
}

/// A kind of refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalRow {
    /// The shape's namespace, as configured.
    pub namespace: String,
    /// As in the metrics' labels.
    pub command: &'static str,
    /// As in the metrics' labels.
    pub reason: &'static str,
    /// A description of the refused command or option.
    pub what: String,
    /// What to do instead.
    pub instead: &'static str,
    /// Whether the shape is in observe mode. Then the command was not refused.
    pub is_observed: bool,
    /// Number of refusals since the start.
    pub count: u64,
}

/// A unique index that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniqueIndexRow {
    /// `database.collection`.
    pub namespace: String,
    /// The index's name.
    pub name: String,
    /// Its key pattern as text.
    pub key: String,
    /// The error that the application received.
    pub message: String,
    /// The time of the last refusal.
    pub at: SystemTime,
}

/// A conversion of a collection to another layout.
#[derive(Clone, Debug, PartialEq)]
pub struct ConversionRow {
    /// `database.collection`.
    pub namespace: String,
    /// Both layouts.
    pub direction: String,
    /// The part of the conversion that is executed.
    pub phase: String,
    /// `None`: the conversion is done, or has recorded no progress.
    pub figures: Option<ConversionFiguresRow>,
}

/// The progress of a conversion.
#[derive(Clone, Debug, PartialEq)]
pub struct ConversionFiguresRow {
    /// The part of the documents that the phase has done, from 0 to 1. `None`: it is not known.
    pub ratio: Option<f64>,
    /// The time by which the copy is behind the collection. `None`: nothing is written to the collection.
    pub lag: Option<Duration>,
    /// The time until the phase ends. `None`: it is not known.
    pub remaining: Option<Duration>,
    /// The delay of each write statement. 0: there is none.
    pub write_delay: Duration,
    /// The result of the last comparison. `None`: there was none.
    pub comparison: Option<String>,
    /// The time of these numbers.
    pub recorded: SystemTime,
}
