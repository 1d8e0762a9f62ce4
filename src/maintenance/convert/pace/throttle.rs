//! The limits of a run, and what they depend on.

use std::time::{Duration, Instant};

use super::PaceLimits;
use super::probe::LoadProbe;

/// The limits, and what is known of the server.
pub(in crate::maintenance::convert) struct Throttle {
    pub(in crate::maintenance::convert) limits: PaceLimits,
    pub(in crate::maintenance::convert) probe: LoadProbe,
    /// The begin of the batch.
    last: Instant,
}

impl Throttle {
    pub(in crate::maintenance::convert) fn new(limits: PaceLimits) -> Self {
        Self {
            limits,
            probe: LoadProbe::new(),
            last: Instant::now(),
        }
    }

    /// The pause after a batch with this number of documents.
    pub(in crate::maintenance::convert) fn pause(&self, documents: usize) -> Duration {
        self.limits.pause(documents, self.last.elapsed())
    }

    /// Begins a batch.
    pub(in crate::maintenance::convert) fn begin(&mut self) {
        self.last = Instant::now();
    }
}
