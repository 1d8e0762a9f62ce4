//! Tails that a connection filled and did not spill. They are spilled together when the connection is idle.

use std::time::Duration;

use bson::raw::{RawBson, RawDocumentBuf};

use crate::command::document::single;

/// Idle time of a connection before its tails are spilled. Multiplied by four after each failure.
const PAUSE: Duration = Duration::from_millis(10);
/// Attempts of a connection to spill its tails. After the last one, the next push to the document
/// spills.
const MAX_TRIES: u32 = 5;
/// Tails that a connection can defer. A further tail is spilled before the reply to its push.
const MAX_LEFT: usize = 32;
/// Maximum bytes of the `_id` of a document whose tail is deferred. A connection may hold it for a long time.
const MAX_ID_BYTES: usize = 4096;

/// The deferred spills of one connection.
#[derive(Debug, Default)]
pub(in crate::session) struct DeferredSpills {
    left: Vec<Tail>,
    /// Consecutive attempts in which a spill failed.
    failures: u32,
}

/// A tail to spill.
#[derive(Debug, PartialEq)]
pub(in crate::session) struct Tail {
    /// The body of an internal command on the collection, for the spill.
    pub(in crate::session) command: RawDocumentBuf,
    pub(in crate::session) id: RawBson,
}

impl DeferredSpills {
    /// Waits until the connection has been idle long enough for a spill. Never returns if there are
    /// no tails. Cancel safe.
    pub(in crate::session) async fn paused(&self) {
        if self.left.is_empty() {
            return std::future::pending().await;
        }
        tokio::time::sleep(PAUSE.saturating_mul(4_u32.saturating_pow(self.failures))).await;
    }

    pub(in crate::session) fn take(&mut self) -> Vec<Tail> {
        std::mem::take(&mut self.left)
    }

    /// Keeps the tails that could not be spilled, unless the attempts are exhausted.
    pub(in crate::session) fn leave_again(&mut self, tails: Vec<Tail>) {
        self.failures = self.failures.saturating_add(1);
        if tails.is_empty() || self.failures >= MAX_TRIES {
            self.failures = 0;
        } else {
            self.left = tails;
        }
    }

    /// Adds a tail. Returns false if there are too many, or if the `_id` is too long.
    pub(super) fn leave(&mut self, tail: Tail) -> bool {
        if self.left.contains(&tail) {
            return true;
        }
        let id_bytes = single("_id", tail.id.as_raw_bson_ref()).as_bytes().len();
        let has_room = self.left.len() < MAX_LEFT && id_bytes <= MAX_ID_BYTES;
        if has_room {
            self.left.push(tail);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(id: impl Into<RawBson>) -> Tail {
        let command = single("update", "sales");
        Tail { command, id: id.into() }
    }

    #[test]
    fn deferred_tails_are_unique_and_bounded() {
        let mut tails = DeferredSpills::default();
        assert!(tails.leave(tail(0)) && tails.leave(tail(0)));
        for id in 1..MAX_LEFT {
            assert!(tails.leave(tail(i32::try_from(id).unwrap())));
        }
        assert!(!tails.leave(tail(-1)));
        assert!(!DeferredSpills::default().leave(tail("x".repeat(MAX_ID_BYTES))));
        assert!(tails.leave(tail(0)));
        assert_eq!(tails.take().len(), MAX_LEFT);
        assert!(tails.take().is_empty());
    }

    #[test]
    fn failed_spills_are_retried_a_bounded_number_of_times() {
        let mut tails = DeferredSpills::default();
        for _ in 1..MAX_TRIES {
            tails.leave_again(vec![tail(1)]);
            assert_eq!(tails.take(), [tail(1)]);
        }
        tails.leave_again(vec![tail(1)]);
        assert!(tails.take().is_empty());
        assert_eq!(tails.failures, 0);
    }
}
