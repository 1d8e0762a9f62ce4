//! The work that a conversion has left beside writers, and whether it becomes less. Without I/O.

use std::time::Duration;

use super::changes;

/// Documents that may be compared while writers wait, which takes one read of both collections.
pub(super) const FEW: usize = 1000;
/// The time whose changes may be unread although they are read fast enough: longer than changes are applied
/// before the next ones are read.
const MAX_UNREAD: Duration = Duration::from_secs(10);
/// Times are compared in whole seconds, so one second less may be none.
const INEXACT: Duration = Duration::from_secs(1);
/// Of so many pending changes, more than one should be applied between two measurements.
const PENDING_FOR_EACH_APPLIED: usize = 16;

/// The change of the remaining work from one measurement to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trend {
    Shrinking,
    /// It becomes less, but so slowly that writers should be slower.
    ShrinkingSlowly,
    /// It does not become less.
    Growing,
}

/// The changes that are not applied yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backlog {
    /// Documents whose changes were read.
    pub(super) pending: usize,
    /// The time whose changes were not read.
    pub(super) unread: Duration,
}

impl Backlog {
    /// The trend since an earlier measurement. A few changes may always be pending, and those of the last
    /// seconds unread.
    pub(super) fn trend(self, before: Self) -> Trend {
        let is_kept =
            self.pending <= before.pending.max(changes::MAX_IDS) && self.unread <= before.unread.max(MAX_UNREAD);
        let applied = before.pending.saturating_sub(self.pending);
        if !is_kept {
            Trend::Growing
        } else if self.unread + INEXACT < before.unread || applied > before.pending / PENDING_FOR_EACH_APPLIED {
            Trend::Shrinking
        } else if applied > 0 {
            Trend::ShrinkingSlowly
        } else {
            Trend::Growing
        }
    }

    /// The trend of the changes that are not read yet.
    pub(super) fn trend_of_reads(self, before: Self) -> Trend {
        if self.unread < before.unread {
            Trend::Shrinking
        } else {
            Trend::Growing
        }
    }
}

/// The work that remains before writers are held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remaining {
    pub(super) backlog: Backlog,
    /// Changed documents that were not compared again.
    pub(super) touched: usize,
}

impl Remaining {
    /// The trend since an earlier measurement. `is_caught_up`: all changes were applied. Few documents may
    /// always be left to compare.
    pub(super) fn trend(self, before: Self, is_caught_up: bool) -> Trend {
        if !is_caught_up {
            self.backlog.trend(before.backlog)
        } else if self.touched > FEW && self.touched < before.touched {
            Trend::Shrinking
        } else {
            Trend::Growing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_shrinks_if_fewer_changes_are_pending_and_reading_keeps_up() {
        let backlog = |pending, seconds| Backlog {
            pending,
            unread: Duration::from_secs(seconds),
        };
        let check = |before: Backlog, after: Backlog, expected| {
            assert_eq!(after.trend(before), expected, "{before:?} {after:?}");
        };
        check(backlog(300_000, 3), backlog(280_000, 5), Trend::Shrinking);
        check(backlog(300_000, 3), backlog(299_000, 5), Trend::ShrinkingSlowly);
        check(backlog(300_000, 3), backlog(300_000, 3), Trend::Growing);
        // A second less may be none.
        check(backlog(300_000, 3), backlog(300_000, 2), Trend::Growing);
        check(backlog(300_000, 3), backlog(280_000, 9), Trend::Shrinking);
        check(backlog(300_000, 3), backlog(280_000, 12), Trend::Growing);
        check(backlog(300_000, 60), backlog(280_000, 50), Trend::Shrinking);
        check(backlog(0, 60), backlog(4_000, 50), Trend::Shrinking);
        check(backlog(0, 60), backlog(20_000, 50), Trend::Growing);
        check(backlog(100, 1), backlog(100, 1), Trend::Growing);
    }

    #[test]
    fn the_rest_shrinks_if_changes_are_applied_or_documents_are_compared() {
        let rest = |pending, touched| Remaining {
            backlog: Backlog {
                pending,
                unread: Duration::ZERO,
            },
            touched,
        };
        let check = |before: Remaining, after: Remaining, is_caught_up, expected| {
            assert_eq!(after.trend(before, is_caught_up), expected, "{before:?} {after:?}");
        };
        check(rest(300_000, 80_000), rest(200_000, 90_000), false, Trend::Shrinking);
        check(rest(300_000, 80_000), rest(300_000, 70_000), false, Trend::Growing);
        check(rest(0, 80_000), rest(0, 70_000), true, Trend::Shrinking);
        check(rest(10, 80_000), rest(0, 80_000), true, Trend::Growing);
        // Few documents are compared while writers wait.
        check(rest(0, 1000), rest(0, 900), true, Trend::Growing);
    }
}
