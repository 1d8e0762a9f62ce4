//! Measures mongod's part of a command's duration.

use std::time::{Duration, Instant};

/// The time that a command waited for the upstream. Each wait reads the clock twice.
#[derive(Debug, Default)]
pub(super) struct UpstreamTimer {
    since: Option<Instant>,
    whole: Duration,
}

impl UpstreamTimer {
    /// Begins a wait, unless one is in progress.
    pub(super) fn begin(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    /// Ends a wait.
    pub(super) fn end(&mut self) {
        if let Some(since) = self.since.take() {
            self.whole += since.elapsed();
        }
    }

    /// The sum of all waits. Ends a wait in progress.
    pub(super) fn whole(&mut self) -> Duration {
        self.end();
        self.whole
    }
}
