//! Repeats a step that lets writers go on, because they wait until it is done.

use std::time::Duration;

use bson::doc;
use mongodb::Client;
use tokio::time::{Instant, sleep};

use super::commands::PAUSE;
use super::halt::Halt;

/// The longest time for which a step is repeated. An election takes seconds, and the restart of a server
/// minutes.
const MAX_WAIT: Duration = Duration::from_mins(5);
/// The failures after which a step is not repeated, although the server was available.
const MAX_FAILURES: u32 = 3;

/// The repetition of one step, which must be safe to repeat.
pub(crate) struct Retry<'a> {
    client: &'a Client,
    begun: Instant,
    failures: u32,
}

impl<'a> Retry<'a> {
    /// Begins with the first attempt.
    pub(crate) fn new(client: &'a Client) -> Self {
        Self {
            client,
            begun: Instant::now(),
            failures: 0,
        }
    }

    /// Waits after a failure until the step should be repeated: until a server accepts writes.
    ///
    /// # Errors
    /// The failure, if the step has failed too often or for too long.
    pub(crate) async fn after(&mut self, failure: Halt) -> Result<(), Halt> {
        if matches!(failure, Halt::Stopped) {
            return Err(failure);
        }
        let mut was_available = true;
        while self.begun.elapsed() < MAX_WAIT {
            sleep(PAUSE).await;
            if !self.is_available().await {
                was_available = false;
                continue;
            }
            self.failures += u32::from(was_available);
            if self.failures < MAX_FAILURES {
                return Ok(());
            }
            break;
        }
        Err(failure)
    }

    /// Whether a server accepts writes.
    async fn is_available(&self) -> bool {
        let hello = self.client.database("admin").run_command(doc! { "hello": 1 }).await;
        hello.is_ok_and(|hello| hello.get_bool("isWritablePrimary").unwrap_or_default())
    }
}
