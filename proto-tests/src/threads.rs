//! Threads that send commands while another thread disturbs the servers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};

/// Commands that were answered.
#[derive(Debug, Default)]
pub struct Answered(AtomicU64);

impl Answered {
    /// Counts one.
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// How many.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Waits until so many more commands are answered, or all threads have ended.
    pub fn wait_for(&self, more: u64, goes_on: impl Fn() -> bool) -> Result<()> {
        let before = self.number();
        let deadline = Instant::now() + Duration::from_mins(1);
        while goes_on() && self.number() < before + more {
            ensure!(Instant::now() < deadline, "the sending threads make no progress");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// The results of all threads, or all their errors.
pub fn join<T>(running: Vec<ScopedJoinHandle<'_, Result<T>>>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    let mut errors = Vec::new();
    for one in running {
        match one.join().map_err(|_| anyhow!("a thread panicked"))? {
            Ok(one) => all.push(one),
            Err(error) => errors.push(format!("{error:#}")),
        }
    }
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    Ok(all)
}
