//! Rows of the page that the caller provides.

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
