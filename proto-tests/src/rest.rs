//! Waits until a connection is idle: the proxy spills a tail when the connection that pushed pauses.

use std::time::{Duration, Instant};

use anyhow::Result;

const PATIENCE: Duration = Duration::from_secs(5);
const BETWEEN: Duration = Duration::from_millis(5);

/// Polls until the state is at rest or the timeout has passed. Returns the last state.
pub fn at_rest<T>(mut look: impl FnMut() -> Result<T>, is_at_rest: impl Fn(&T) -> bool) -> Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        let seen = look()?;
        if is_at_rest(&seen) || Instant::now() >= end {
            return Ok(seen);
        }
        std::thread::sleep(BETWEEN);
    }
}
