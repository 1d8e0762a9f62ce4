//! Waiting for rest: a connection that has pushed to an outlier moves the tail only when it pauses.

use std::time::{Duration, Instant};

use anyhow::Result;

const PATIENCE: Duration = Duration::from_secs(5);
const BETWEEN: Duration = Duration::from_millis(5);

/// Looks again and again until what is seen is at rest, or patience is at its end; what was seen last.
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
