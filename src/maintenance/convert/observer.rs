//! The progress of a run and its display. `observe` updates both.

use std::time::Instant;

use super::progress::RunProgress;
use super::screen::Screen;

/// The progress of a run and its display.
pub(super) struct RunObserver {
    pub(super) progress: RunProgress,
    pub(super) screen: Screen,
    /// Whether the record of the conversion gets the progress.
    pub(super) is_recorded: bool,
    /// The time of the last recording.
    pub(super) recorded: Instant,
    /// When no changes were left. `None`: some are.
    pub(super) caught_up: Option<Instant>,
}

impl RunObserver {
    /// `is_recorded`: whether the record of the conversion gets the progress.
    pub(super) fn new(is_recorded: bool) -> Self {
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
