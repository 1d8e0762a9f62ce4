//! The progress of a run and its display. `observe` updates both.

use std::time::Instant;

use crate::maintenance::convert::progress::RunProgress;
use crate::maintenance::convert::progress::screen::Screen;

/// The progress of a run and its display.
pub(in crate::maintenance::convert) struct RunObserver {
    pub(in crate::maintenance::convert) progress: RunProgress,
    pub(in crate::maintenance::convert) screen: Screen,
    /// Whether the record of the conversion gets the progress.
    pub(in crate::maintenance::convert) is_recorded: bool,
    /// The time of the last recording.
    pub(in crate::maintenance::convert) recorded: Instant,
    /// When no changes were left. `None`: some are.
    pub(in crate::maintenance::convert) caught_up: Option<Instant>,
}

impl RunObserver {
    /// `is_recorded`: whether the record of the conversion gets the progress.
    pub(in crate::maintenance::convert) fn new(is_recorded: bool) -> Self {
        let now = Instant::now();
        Self {
            progress: RunProgress::new(now),
            screen: Screen::open(),
            is_recorded,
            recorded: now,
            caught_up: None,
        }
    }
}
