//! Delays the writes of applications that are faster than their changes are applied: proxies read the delay
//! in the record, and wait so long before each write. So the conversion catches up while applications go on.
//! Nothing rests on a delay: a proxy may notice it late, and a program may write directly.

use std::time::{Duration, Instant};

use super::Conversion;
use super::backlog::Trend;

/// The first delay of a write statement. It is doubled while writers are too fast.
const FIRST: Duration = Duration::from_millis(2);
/// The longest delay.
const MAX: Duration = Duration::from_millis(64);
/// The time in which proxies notice a delay, and its effect can be measured.
const SETTLING: Duration = Duration::from_secs(3);
/// The time for which a delay is kept at least before it is made shorter.
const KEPT: Duration = Duration::from_secs(10);

/// The delay of a write statement, which depends on the backlog.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdaptiveDelay {
    current: Duration,
    changed: Instant,
}

impl AdaptiveDelay {
    /// No delay.
    pub(super) fn none(now: Instant) -> Self {
        let current = Duration::ZERO;
        Self { current, changed: now }
    }

    pub(super) fn current(self) -> Duration {
        self.current
    }

    /// Doubles the delay. Returns false if it is the longest one, and has taken effect.
    pub(super) fn lengthen(&mut self, now: Instant) -> bool {
        if self.current > Duration::ZERO && now.saturating_duration_since(self.changed) < SETTLING {
            return true;
        }
        let longer = (self.current * 2).clamp(FIRST, MAX);
        if longer == self.current {
            return false;
        }
        *self = Self {
            current: longer,
            changed: now,
        };
        true
    }

    /// Halves the delay, if it was kept for some time.
    fn shorten(&mut self, now: Instant) {
        if self.current == Duration::ZERO || now.saturating_duration_since(self.changed) < KEPT {
            return;
        }
        let shorter = self.current / 2;
        *self = Self {
            current: if shorter < FIRST { Duration::ZERO } else { shorter },
            changed: now,
        };
    }
}

impl Conversion<'_> {
    /// Makes writers slower if they are too fast. Returns false if they are too fast in spite of the longest
    /// delay: then they have to be held.
    pub(super) async fn slow_writers(&mut self, trend: Trend) -> bool {
        if trend == Trend::Shrinking || !self.may_hold {
            return true;
        }
        self.lengthen_write_delay().await || trend != Trend::Growing
    }

    /// Makes writers slower. Returns false if they have the longest delay.
    pub(super) async fn lengthen_write_delay(&mut self) -> bool {
        let delay = &mut self.observer.progress.write_delay;
        let before = delay.current();
        let is_effective = delay.lengthen(Instant::now());
        if delay.current() != before {
            if before == Duration::ZERO {
                self.say("writers are faster than their changes are applied: proxies delay their writes");
            }
            self.record_progress().await;
        }
        is_effective
    }

    /// Makes writers faster, because no changes are left to apply, or to read while documents are copied.
    pub(super) fn shorten_write_delay(&mut self) {
        self.observer.progress.write_delay.shorten(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_doubled_up_to_the_longest_one_once_the_last_one_has_taken_effect() {
        let begun = Instant::now();
        let mut delay = AdaptiveDelay::none(begun);
        assert!(delay.lengthen(begun));
        assert_eq!(delay.current(), FIRST);
        assert!(delay.lengthen(begun + SETTLING / 2));
        assert_eq!(delay.current(), FIRST);
        let mut now = begun;
        for milliseconds in [4, 8, 16, 32, 64] {
            now += SETTLING;
            assert!(delay.lengthen(now));
            assert_eq!(delay.current(), Duration::from_millis(milliseconds));
        }
        assert!(delay.lengthen(now), "it has not taken effect");
        assert!(!delay.lengthen(now + SETTLING));
        assert_eq!(delay.current(), MAX);
    }

    #[test]
    fn a_delay_is_halved_until_there_is_none() {
        let begun = Instant::now();
        let mut delay = AdaptiveDelay::none(begun);
        delay.shorten(begun + KEPT);
        assert_eq!(delay.current(), Duration::ZERO);
        delay.lengthen(begun);
        delay.lengthen(begun + SETTLING);
        let kept = begun + SETTLING + KEPT / 2;
        delay.shorten(kept);
        assert_eq!(delay.current(), FIRST * 2);
        delay.shorten(kept + KEPT);
        assert_eq!(delay.current(), FIRST);
        delay.shorten(kept + KEPT * 2);
        assert_eq!(delay.current(), Duration::ZERO);
    }
}
