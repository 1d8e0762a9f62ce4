//! The rows of the page that the server fills in.

/// What the page shows of a shape, in the words of its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeRow {
    /// As configured, and as the metrics' label has it.
    pub namespace: String,
    /// `bucket` or `outlier`.
    pub pattern: &'static str,
    /// `rewrite` or `observe`.
    pub mode: &'static str,
    /// The key, or the array.
    pub by: String,
    /// How much a page or a document holds.
    pub holds: String,
}

/// A kind of refused commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalRow {
    /// The shape's namespace, as configured.
    pub namespace: String,
    /// As the metrics' label has it.
    pub reason: &'static str,
    /// What was refused, in the proxy's own words.
    pub what: String,
    /// Whether the shape is in observe mode: nothing was refused to the application.
    pub is_observed: bool,
    /// How often since the start.
    pub count: u64,
}
