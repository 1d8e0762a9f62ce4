//! Applies the limits of a run's pace.

use std::time::{Duration, Instant};

use super::PaceLimits;
use super::probe::LoadProbe;

/// The limits, and the probe that measures the server's load.
pub(in crate::maintenance::convert) struct Throttle {
    pub(in crate::maintenance::convert) limits: PaceLimits,
    pub(in crate::maintenance::convert) probe: LoadProbe,
    /// The beginning of the batch.
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
