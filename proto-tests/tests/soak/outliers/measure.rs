//! The size of a run.

use std::time::Duration;

use proto_tests::measure::is_full;

/// How much happens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measure {
    /// Buyers, of all books.
    pub(crate) buyers: usize,
    /// For how long changes of other kinds are made.
    pub(crate) time: Duration,
}

impl Measure {
    pub(crate) fn chosen() -> Self {
        let (buyers, seconds) = if is_full("MONGOSHAPE_CHURN") {
            (50_000, 60)
        } else {
            (500, 2)
        };
        Self {
            buyers,
            time: Duration::from_secs(seconds),
        }
    }
}
