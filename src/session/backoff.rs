//! Attempts at an operation that races with other writers.

use std::time::Duration;

/// Maximum number of attempts. Each failed attempt means that another writer succeeded.
pub(super) const MAX_ATTEMPTS: u32 = 100;
/// The number of the last attempt, counted from 0.
pub(super) const LAST_ATTEMPT: u32 = MAX_ATTEMPTS - 1;
/// The longest pause between two attempts, in milliseconds.
const MAX_PAUSE_MS: u64 = 50;

/// Waits for a random time after the second failed attempt and each later one. The bound doubles each time.
pub(super) async fn pause(failures: u32) {
    if failures > 1 {
        let most = (1_u64 << failures.min(10)).min(MAX_PAUSE_MS);
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..=most))).await;
    }
}
