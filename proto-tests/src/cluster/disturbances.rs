//! Moves of slots, and shards that step down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};

use super::Cluster;
use super::moves::move_slot;
use super::routing::SLOTS;
use super::state::State;

/// Between two moves of [`Moves`].
const PAUSE: Duration = Duration::from_millis(15);
/// The seconds for which a primary that stepped down is not elected again.
const STEPPED_DOWN_SECS: u32 = 1;

impl Cluster {
    /// Moves a random slot of a collection to a random shard. Returns whether it was on another one. Nothing moves if
    /// the collection is not sharded.
    pub fn move_any(&self, namespace: &str, random: &mut ChaCha8Rng) -> Result<bool> {
        move_any(&self.state, namespace, random)
    }

    /// Moves random slots of a collection until the result is dropped.
    #[must_use]
    pub fn keep_moving(&self, namespace: &str, seed: u64) -> Moves {
        Moves::start(Arc::clone(&self.state), namespace.to_owned(), seed)
    }

    /// Makes the primary of a shard step down, and waits until the shard has a primary again.
    pub fn step_down(&self, shard: usize) -> Result<()> {
        let shard = self.shards.get(shard).context("no such shard")?;
        shard.step_down(STEPPED_DOWN_SECS)?;
        shard.primary()?;
        Ok(())
    }
}

fn move_any(state: &Arc<State>, namespace: &str, random: &mut ChaCha8Rng) -> Result<bool> {
    let slot = random.random_range(0..SLOTS);
    let shard = random.random_range(0..state.shards.len());
    if state.routing().collection(namespace).is_none() {
        return Ok(false);
    }
    move_slot(state, namespace, slot, shard)
}

/// A thread that moves slots.
#[derive(Debug)]
pub struct Moves {
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<u32>>>,
}

impl Moves {
    fn start(state: Arc<State>, namespace: String, seed: u64) -> Self {
        let is_ended = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_ended);
        let thread = thread::spawn(move || {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut moved = 0;
            while !ended.load(Ordering::Relaxed) {
                moved += u32::from(move_any(&state, &namespace, &mut random)?);
                thread::sleep(PAUSE);
            }
            Ok(moved)
        });
        Self {
            is_ended,
            thread: Some(thread),
        }
    }

    /// Ends the moves, and returns how many slots have moved.
    ///
    /// # Errors
    /// A move failed.
    pub fn end(mut self) -> Result<u32> {
        self.is_ended.store(true, Ordering::Relaxed);
        match self.thread.take() {
            Some(thread) => thread
                .join()
                .map_err(|_| anyhow!("a thread that moves slots panicked"))?,
            None => Ok(0),
        }
    }
}

impl Drop for Moves {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
    }
}
