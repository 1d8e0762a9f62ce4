//! Tails that a client's connection has pushed to and left as they are: they are moved together, when it pauses.

use std::time::Duration;

use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf};

use super::Outlier;
use super::known::KnownOutliers;
use crate::command::document::{put, single};
use crate::session::error::RunError;

/// How long a connection says nothing before it pauses.
const PAUSE: Duration = Duration::from_millis(10);
/// How many a connection leaves at once. One more is moved before its client is answered.
const MAX_LEFT: usize = 32;
/// How long a statement of a move may wait for the document: a transaction may hold it whose client is about to speak here.
const MAX_TIME_MS: i32 = 100;

/// What a command about a tail repeats of the one that pushed to it.
const CARRIED: &[&str] = &[
    "bypassDocumentValidation",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
    "$db",
];

/// The tails that one connection has left.
#[derive(Debug, Default)]
pub(in crate::session) struct Tails(Vec<Tail>);

/// A tail that was left.
#[derive(Debug, PartialEq)]
pub(in crate::session) struct Tail {
    /// The command on the collection under which it is moved.
    pub(in crate::session) command: RawDocumentBuf,
    /// The `_id` of the document.
    pub(in crate::session) id: RawBson,
}

impl Tails {
    /// Waits until the connection pauses: for ever where it has left none.
    pub(in crate::session) async fn paused(&self) {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        tokio::time::sleep(PAUSE).await;
    }

    /// Takes one of those that are left.
    pub(in crate::session) fn take(&mut self) -> Option<Tail> {
        self.0.pop()
    }

    /// Leaves one more; whether there is room for it.
    fn leave(&mut self, tail: Tail) -> bool {
        if self.0.contains(&tail) {
            return true;
        }
        let has_room = self.0.len() < MAX_LEFT;
        if has_room {
            self.0.push(tail);
        }
        has_room
    }
}

impl Outlier<'_> {
    /// Leaves the tail of a document that was pushed to, or moves it.
    pub(super) async fn leave(&mut self, id: RawBsonRef<'_>) -> Result<(), RunError> {
        let mut command = single("update", self.namespace.collection);
        for (name, value) in self.head.body().iter().flatten() {
            if CARRIED.contains(&name.as_str()) {
                command.append(name, value);
            }
        }
        put(&mut command, "maxTimeMS", MAX_TIME_MS);
        let id = RawBson::from(id);
        if self.tails.leave(Tail {
            command,
            id: id.clone(),
        }) {
            return Ok(());
        }
        let moved = self.move_tail(id.as_raw_bson_ref()).await;
        self.left_to_others(moved)
    }

    /// Moves the tail of a document, if it is an outlier and has one.
    pub(in crate::session) async fn move_tail(&mut self, id: RawBsonRef<'_>) -> Result<(), RunError> {
        let place = KnownOutliers::place(self.namespace, id);
        let generation = self.settings.known_outliers.get(&place);
        let looked = self.look(id, generation.unwrap_or_default()).await?;
        self.spill(id, looked).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(id: i32) -> Tail {
        let command = single("update", "sales");
        Tail { command, id: id.into() }
    }

    #[test]
    fn a_tail_is_left_once_and_only_so_many_are() {
        let mut tails = Tails::default();
        assert!(tails.leave(tail(0)) && tails.leave(tail(0)));
        for id in 1..MAX_LEFT {
            assert!(tails.leave(tail(i32::try_from(id).unwrap())));
        }
        assert!(!tails.leave(tail(-1)));
        assert!(tails.leave(tail(0)));
        let taken = std::iter::from_fn(|| tails.take()).count();
        assert_eq!(taken, MAX_LEFT);
    }
}
