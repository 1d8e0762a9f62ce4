//! Retries of the driver: shows that the disturbances hit the writes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;

/// Counts of commands as they were sent, retries among them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attempts {
    failed: Arc<AtomicU32>,
    answered_again: Arc<AtomicU32>,
    servers: Arc<Mutex<BTreeSet<String>>>,
}

impl Attempts {
    /// Counts the replies to a client.
    pub(crate) fn handler(&self) -> EventHandler<CommandEvent> {
        let counts = self.clone();
        EventHandler::callback(move |event| match event {
            CommandEvent::Started(event) => {
                let mut servers = counts.servers.lock().unwrap_or_else(PoisonError::into_inner);
                servers.insert(event.connection.address.to_string());
            }
            CommandEvent::Failed(_) => count(&counts.failed),
            // The server had executed the statement before.
            CommandEvent::Succeeded(event)
                if ["retriedStmtIds", "retriedStmtId"]
                    .iter()
                    .any(|name| event.reply.contains_key(name)) =>
            {
                count(&counts.answered_again);
            }
            _ => {}
        })
    }

    /// Where they were sent.
    pub(crate) fn servers(&self) -> BTreeSet<String> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Those that failed, with an error or with their connection.
    pub(crate) fn failed(&self) -> u32 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Those that were applied at an earlier attempt, whose answer was lost.
    pub(crate) fn answered_again(&self) -> u32 {
        self.answered_again.load(Ordering::Relaxed)
    }
}

fn count(counter: &AtomicU32) {
    counter.fetch_add(1, Ordering::Relaxed);
}
