//! Rows of the page that the caller provides.

use std::time::SystemTime;

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageRows {
    /// One row for each shape.
    pub shapes: Vec<ShapeRow>,
    /// One row for each kind of refusal, the latest first.
    pub refusals: Vec<RefusalRow>,
    /// One row for each refused unique index, the latest first.
    pub unique_indexes: Vec<UniqueIndexRow>,
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
