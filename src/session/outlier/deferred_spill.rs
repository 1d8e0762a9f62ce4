//! Tails that a connection filled and did not spill. They are spilled together when the connection is idle.

use std::time::Duration;

use bson::raw::{RawBson, RawDocumentBuf};

/// How long a connection says nothing before it pauses. Where moves have failed, each time four times as
/// long.
const PAUSE: Duration = Duration::from_millis(10);
/// How often a connection tries. What it could not move then, whoever pushes next does.
const MAX_TRIES: u32 = 5;
/// How many a connection leaves at once. One more is moved before its client is answered.
const MAX_LEFT: usize = 32;
/// The tails that one connection has left.
#[derive(Debug, Default)]
pub(in crate::session) struct DeferredSpills {
    left: Vec<Tail>,
    /// How often in a row some could not be moved.
    failures: u32,
}

/// A tail that was left.
#[derive(Debug, PartialEq)]
pub(in crate::session) struct Tail {
    /// The command on the collection under which it is moved.
    pub(in crate::session) command: RawDocumentBuf,
    /// The `_id` of the document.
    pub(in crate::session) id: RawBson,
}

impl DeferredSpills {
    /// Waits until the connection pauses: for ever where it has left none.
    pub(in crate::session) async fn paused(&self) {
        if self.left.is_empty() {
            return std::future::pending().await;
        }
        tokio::time::sleep(PAUSE.saturating_mul(4_u32.saturating_pow(self.failures))).await;
    }

    /// Takes all that are left.
    pub(in crate::session) fn take(&mut self) -> Vec<Tail> {
        std::mem::take(&mut self.left)
    }

    /// Leaves again those that could not be moved, unless that was tried often enough.
    pub(in crate::session) fn leave_again(&mut self, tails: Vec<Tail>) {
        self.failures = self.failures.saturating_add(1);
        if tails.is_empty() || self.failures >= MAX_TRIES {
            self.failures = 0;
        } else {
            self.left = tails;
        }
    }

    /// Leaves one more; whether there is room for it.
    pub(super) fn leave(&mut self, tail: Tail) -> bool {
        if self.left.contains(&tail) {
            return true;
        }
        let has_room = self.left.len() < MAX_LEFT;
        if has_room {
            self.left.push(tail);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::document::single;

    fn tail(id: i32) -> Tail {
        let command = single("update", "sales");
        Tail { command, id: id.into() }
    }

    #[test]
    fn a_tail_is_left_once_and_only_so_many_are() {
        let mut tails = DeferredSpills::default();
        assert!(tails.leave(tail(0)) && tails.leave(tail(0)));
        for id in 1..MAX_LEFT {
            assert!(tails.leave(tail(i32::try_from(id).unwrap())));
        }
        assert!(!tails.leave(tail(-1)));
        assert!(tails.leave(tail(0)));
        assert_eq!(tails.take().len(), MAX_LEFT);
        assert!(tails.take().is_empty());
    }

    #[test]
    fn moves_that_fail_are_tried_so_often() {
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
