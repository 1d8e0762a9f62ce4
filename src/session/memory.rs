//! The process's memory budget. Requests in memory, replies that the proxy builds, and cursors reserve from
//! it.
//!
//! The budget has shares, and a session holds at most one reservation of each. A session may wait for a
//! reply's share while it holds a request's, never the other way round, and holds nothing of the share that
//! it waits for, so no circle of waits exists. Waiters are served in order, for at most [`PATIENCE`]. See
//! `docs/decisions/0025-one-memory-budget.md`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::command::error::{CommandError, ErrorCode};

/// The smallest budget, in MiB: the longest message and the largest reply have their place in it.
pub const LEAST_MIB: usize = 192;
/// The budget where none is configured, in MiB.
pub const DEFAULT_MIB: usize = 512;

/// What is reserved for the largest reply that is put together, in bytes: extras as they were read, the
/// document made of them, and the reply, each up to 16 MiB and what is around it.
pub(super) const LARGEST_REPLY: usize = REPLY_COPIES * 17 * MIB;
/// How many times the bytes of a reply are in memory while it is put together.
pub(super) const REPLY_COPIES: usize = 3;

/// How many times the bytes of a request are in memory: as it came, and as it is sent on.
const REQUEST_COPIES: usize = 2;
/// How long a session waits for a reservation.
const PATIENCE: Duration = Duration::from_secs(30);
const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// The budget of all sessions together.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    /// Long messages of clients.
    pub(super) requests: Arc<Share>,
    /// Long messages of clients that mongod wants to log in, and that have not.
    pub(super) strangers: Arc<Share>,
    /// Replies that are put together.
    pub(super) replies: Arc<Share>,
    /// What all cursors that the proxy keeps may weigh, in bytes.
    pub(super) cursor_bytes: usize,
}

impl MemoryBudget {
    /// One of so many bytes: three eighths for requests, as many for replies, a quarter for cursors. A
    /// sixteenth of the requests' is for clients that have not logged in.
    pub(super) fn new(bytes: usize) -> Self {
        let eighth = bytes / 8;
        let of_requests = 3 * eighth;
        let of_strangers = of_requests / 16;
        Self {
            requests: Share::new(of_requests - of_strangers),
            strangers: Share::new(of_strangers),
            replies: Share::new(3 * eighth),
            cursor_bytes: 2 * eighth,
        }
    }
}

/// A part of the budget.
#[derive(Debug)]
pub(super) struct Share {
    free_kib: Arc<Semaphore>,
    all_kib: usize,
    waiting: AtomicUsize,
}

impl Share {
    fn new(bytes: usize) -> Arc<Self> {
        let all_kib = bytes / KIB;
        let free_kib = Arc::new(Semaphore::new(all_kib));
        let waiting = AtomicUsize::new(0);
        Arc::new(Self {
            free_kib,
            all_kib,
            waiting,
        })
    }

    /// Whether a request of so many bytes is more than all of it.
    pub(super) fn is_exceeded_by(&self, bytes: usize) -> bool {
        bytes.saturating_mul(REQUEST_COPIES).div_ceil(KIB) > self.all_kib
    }

    /// Whether a session waits for a reservation that others hold.
    pub(super) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Waits for so many bytes; `None` where they were not free in time. More than the share has are all of
    /// it. Cancel safe.
    async fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(bytes.div_ceil(KIB).min(self.all_kib)).ok()?;
        if let Ok(free) = Arc::clone(&self.free_kib).try_acquire_many_owned(kib) {
            return Some(free);
        }
        let _waiting = WaitGuard::on(&self.waiting);
        let taken = timeout(PATIENCE, Arc::clone(&self.free_kib).acquire_many_owned(kib));
        taken.await.ok()?.ok()
    }
}

/// Counts one that waits.
struct WaitGuard<'a>(&'a AtomicUsize);

impl<'a> WaitGuard<'a> {
    fn on(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a session has reserved of one share; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    share: Arc<Share>,
    held: Option<(OwnedSemaphorePermit, usize)>,
}

impl Reservation {
    /// Nothing yet.
    pub(super) fn of(share: &Arc<Share>) -> Self {
        let share = Arc::clone(share);
        Self { share, held: None }
    }

    /// How many bytes it is for.
    pub(super) fn bytes(&self) -> usize {
        self.held.as_ref().map_or(0, |(_, bytes)| *bytes)
    }

    /// Makes it one of at least so many bytes. What it was before is given back first, so the caller is to
    /// have dropped what that was for.
    ///
    /// # Errors
    /// That the bytes were not free in time.
    pub(super) async fn reserve(&mut self, bytes: usize) -> Result<(), CommandError> {
        if self.bytes() >= bytes {
            return Ok(());
        }
        self.held = None;
        match self.share.take(bytes).await {
            Some(permit) => {
                self.held = Some((permit, bytes));
                Ok(())
            }
            None => Err(exhausted()),
        }
    }

    /// The same for a request of so many bytes.
    ///
    /// # Errors
    /// Those of [`Reservation::reserve`].
    pub(super) async fn reserve_request(&mut self, bytes: usize) -> Result<(), CommandError> {
        self.reserve(bytes.saturating_mul(REQUEST_COPIES)).await
    }

    /// Whether others wait for what it holds.
    pub(super) fn is_waited_for(&self) -> bool {
        self.share.is_waited_for()
    }

    /// Gives all of it back.
    pub(super) fn release(&mut self) {
        self.held = None;
    }

    /// Keeps so many bytes and gives the rest back.
    pub(super) fn shrink(&mut self, bytes: usize) {
        if let Some((permit, held)) = &mut self.held {
            let kept = bytes.div_ceil(KIB);
            drop(permit.split(permit.num_permits().saturating_sub(kept)));
            *held = bytes.min(*held);
        }
    }
}

/// The error for a message that is longer than clients may send before they have logged in.
pub(super) fn not_logged_in() -> CommandError {
    let message = "a message of this length needs authentication: log in first";
    CommandError::new(ErrorCode::Unauthorized, message)
}

fn exhausted() -> CommandError {
    let message = format!(
        "mongoshape's memory budget was in use for {} s: send or ask for less at a time (batchSize), or raise listen.memory_mib",
        PATIENCE.as_secs()
    );
    CommandError::new(ErrorCode::ExceededMemoryLimit, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_reserved_is_missing_to_others_until_it_is_given_back() {
        let budget = MemoryBudget::new(LEAST_MIB * MIB);
        let mut first = Reservation::of(&budget.replies);
        let mut second = Reservation::of(&budget.replies);
        first.reserve(60 * MIB).await.unwrap();
        assert!(!budget.replies.is_waited_for());
        let waits = timeout(Duration::from_millis(50), second.reserve(60 * MIB)).await;
        assert!(waits.is_err() && second.bytes() == 0, "{waits:?}");
        second.reserve(12 * MIB).await.unwrap();
        first.shrink(MIB);
        second.reserve(60 * MIB).await.unwrap();
        assert_eq!((first.bytes(), second.bytes()), (MIB, 60 * MIB));
        first.release();
        drop(second);
        // More than there is, is all of it.
        first.reserve(1000 * MIB).await.unwrap();
    }

    #[tokio::test]
    async fn who_holds_some_and_wants_more_waits_for_nobody_who_waits_for_it() {
        let budget = MemoryBudget::new(LEAST_MIB * MIB);
        let reader = || async {
            let mut held = Reservation::of(&budget.replies);
            held.reserve(30 * MIB).await.unwrap();
            tokio::task::yield_now().await;
            held.reserve(60 * MIB).await.unwrap();
        };
        tokio::join!(reader(), reader(), reader(), reader());
    }

    #[test]
    fn the_least_budget_has_a_place_for_the_longest_of_each() {
        let budget = MemoryBudget::new(LEAST_MIB * MIB);
        assert!(budget.requests.all_kib * KIB > crate::wire::limits::MAX_MESSAGE_BYTES);
        assert!(budget.replies.all_kib * KIB > LARGEST_REPLY + 17 * MIB);
    }
}
