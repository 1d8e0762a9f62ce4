//! Which shard executed a retryable statement.
//!
//! A chunk that moves takes its retry records along. The shards here cannot take them, so a statement that is
//! sent again goes to the shard that executed it, which answers it from its own record.

use std::collections::HashMap;

use bson::Document;

use super::statements::session_id;

/// The last retryable command of each session.
#[derive(Debug, Default)]
pub(super) struct Retries {
    sessions: HashMap<Vec<u8>, Executed>,
}

/// The statements of a command, each with its shard.
#[derive(Debug, Default)]
struct Executed {
    number: i64,
    places: HashMap<i32, Place>,
}

/// Where a statement was executed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) shard: usize,
    /// `None`: the statement did not name the shard key.
    pub(super) slot: Option<usize>,
}

/// Whether statements of a command have numbers.
pub(super) fn is_retryable(command: &Document) -> bool {
    command.contains_key("txnNumber") && !command.contains_key("autocommit")
}

impl Retries {
    /// The shard that executed the statement. A statement on another slot is not recognised: its shard has no
    /// record.
    pub(super) fn shard_of(&self, command: &Document, statement: i32, slot: Option<usize>) -> Option<usize> {
        if !is_retryable(command) {
            return None;
        }
        let executed = self.sessions.get(&session_id(command)?)?;
        let is_same = command.get_i64("txnNumber").ok() == Some(executed.number);
        let place = executed.places.get(&statement).filter(|_| is_same)?;
        let is_other = slot.is_some() && place.slot.is_some() && slot != place.slot;
        (!is_other).then_some(place.shard)
    }

    /// Records that a shard executed the statement, and it took effect.
    pub(super) fn record(&mut self, command: &Document, statement: i32, place: Place) {
        let (Some(session), Ok(number)) = (session_id(command), command.get_i64("txnNumber")) else {
            return;
        };
        if !is_retryable(command) {
            return;
        }
        let executed = self.sessions.entry(session).or_default();
        if executed.number < number {
            *executed = Executed {
                number,
                places: HashMap::new(),
            };
        }
        if executed.number == number {
            executed.places.insert(statement, place);
        }
    }
}
