//! Room for long messages that have to be whole in memory. One that is compressed costs its sender next to nothing, and who
//! has sent it need not even be logged in.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::wire::limits::MAX_MESSAGE_BYTES;

/// Of all sessions together there is room for so many of the longest messages. What is made of a message on its way comes on
/// top: rewritten, encoded and compressed again it is up to five times as much.
const LONGEST_MESSAGES: usize = 4;
const KILOBYTE: usize = 1024;
/// How long a session waits for room. Others have theirs for as long as mongod takes for their commands.
const PATIENCE: Duration = Duration::from_secs(30);

/// The room that is left.
#[derive(Debug)]
pub(super) struct Room {
    kilobytes: Semaphore,
}

impl Default for Room {
    fn default() -> Self {
        let kilobytes = Semaphore::new(LONGEST_MESSAGES * MAX_MESSAGE_BYTES.div_ceil(KILOBYTE));
        Self { kilobytes }
    }
}

impl Room {
    /// Waits for room for a message of this length, which is free again when the permit is dropped. Those who wait get it
    /// in their order. `None`: there was none in time. Cancel safe.
    pub(super) async fn take(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        let kilobytes = u32::try_from(bytes.div_ceil(KILOBYTE)).ok()?;
        timeout(PATIENCE, self.kilobytes.acquire_many(kilobytes))
            .await
            .ok()?
            .ok()
    }
}
