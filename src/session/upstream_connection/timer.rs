//! Measures mongod's part of a command's duration.

use std::time::{Duration, Instant};

/// How long the upstream was waited for, in a command. Two looks at the clock for each time.
#[derive(Debug, Default)]
pub(super) struct UpstreamTimer {
    since: Option<Instant>,
    whole: Duration,
}

impl UpstreamTimer {
    /// From now on, unless it is already.
    pub(super) fn begin(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    /// Until now.
    pub(super) fn end(&mut self) {
        if let Some(since) = self.since.take() {
            self.whole += since.elapsed();
        }
    }

    /// In all, until now if it still is waited for.
    pub(super) fn whole(&mut self) -> Duration {
        self.end();
        self.whole
    }
}
