//! The process's memory budget. Requests in memory, replies that the proxy builds, and cursors
//! reserve memory from it.
//!
//! The budget has shares, and a session holds at most one reservation of each. A session may wait
//! for a reply's share while it holds a request's, never the other way round. It holds nothing of
//! the share that it waits for. So no cycle of waits exists. Waiters are served in order, for at
//! most [`PATIENCE`]. See `docs/decisions/0025-one-memory-budget.md`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::command::error::{CommandError, ErrorCode};

/// The smallest budget in MiB: enough for the longest message and the largest reply.
pub const LEAST_MIB: usize = 192;
/// The default budget in MiB.
pub const DEFAULT_MIB: usize = 512;

/// Bytes reserved for the largest reassembled reply: the extras as read, the document made of them,
/// and the reply, each with up to 16 MiB and its overhead.
pub(super) const LARGEST_REPLY: usize = REPLY_COPIES * 17 * MIB;
/// Copies of a reply's bytes in memory while it is built.
pub(super) const REPLY_COPIES: usize = 3;

/// Copies of a request's bytes in memory: as received, and as sent on.
const REQUEST_COPIES: usize = 2;
/// The longest time that a session waits for a reservation.
const PATIENCE: Duration = Duration::from_secs(30);
const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// The budget of all sessions together.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    /// Long messages of clients.
    pub(super) requests: Arc<Share>,
    /// Long messages of clients that have not authenticated although mongod requires it.
    pub(super) strangers: Arc<Share>,
    /// Replies that are reassembled.
    pub(super) replies: Arc<Share>,
    /// Maximum bytes of all cursors that the proxy keeps.
    pub(super) cursor_bytes: usize,
}

impl MemoryBudget {
    /// A budget of `bytes`: three eighths for requests, three for replies, a quarter for cursors. A
    /// sixteenth of the requests' share is for clients that have not authenticated.
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

    /// Whether a request of this size exceeds the whole share.
    pub(super) fn is_exceeded_by(&self, bytes: usize) -> bool {
        bytes.saturating_mul(REQUEST_COPIES).div_ceil(KIB) > self.all_kib
    }

    /// Whether a session waits for memory of this share.
    pub(super) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Waits for memory. A request for more than the share is one for all of it. `None`: it was not
    /// free in time. Cancel safe.
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

/// Counts a waiting session.
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

/// Memory of one share, reserved by a session. Released when dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    share: Arc<Share>,
    held: Option<(OwnedSemaphorePermit, usize)>,
}

impl Reservation {
    /// An empty reservation.
    pub(super) fn of(share: &Arc<Share>) -> Self {
        let share = Arc::clone(share);
        Self { share, held: None }
    }

    /// Number of reserved bytes.
    pub(super) fn bytes(&self) -> usize {
        self.held.as_ref().map_or(0, |(_, bytes)| *bytes)
    }

    /// Reserves at least `bytes` in total. The previous reservation is released first, so the
    /// caller must have dropped the data that it was for.
    ///
    /// # Errors
    /// If the bytes were not free in time.
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

    /// Like [`Reservation::reserve`], for a request of this size.
    ///
    /// # Errors
    /// Those of [`Reservation::reserve`].
    pub(super) async fn reserve_request(&mut self, bytes: usize) -> Result<(), CommandError> {
        self.reserve(bytes.saturating_mul(REQUEST_COPIES)).await
    }

    /// Whether other sessions wait for memory of the share.
    pub(super) fn is_waited_for(&self) -> bool {
        self.share.is_waited_for()
    }

    pub(super) fn release(&mut self) {
        self.held = None;
    }

    /// Keeps `bytes` and releases the rest.
    pub(super) fn shrink(&mut self, bytes: usize) {
        if let Some((permit, held)) = &mut self.held {
            let kept = bytes.div_ceil(KIB);
            drop(permit.split(permit.num_permits().saturating_sub(kept)));
            *held = bytes.min(*held);
        }
    }
}

/// The error for a message that is too long for a client that has not authenticated.
pub(super) fn not_logged_in() -> CommandError {
    let message = "a message of this length requires authentication: authenticate first";
    CommandError::new(ErrorCode::Unauthorized, message)
}

fn exhausted() -> CommandError {
    let message = format!(
        "mongoshape's memory budget was used up for {} s: send smaller messages, request smaller batches (batchSize), or raise \
         listen.memory_mib",
        PATIENCE.as_secs()
    );
    CommandError::new(ErrorCode::ExceededMemoryLimit, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reserved_memory_is_unavailable_until_released() {
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
        // A reservation for more than the share takes all of it.
        first.reserve(1000 * MIB).await.unwrap();
    }

    #[tokio::test]
    async fn holder_that_grows_does_not_deadlock_with_waiters() {
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
    fn minimum_budget_fits_the_largest_message_of_each_kind() {
        let budget = MemoryBudget::new(LEAST_MIB * MIB);
        assert!(budget.requests.all_kib * KIB > crate::wire::limits::MAX_MESSAGE_BYTES);
        assert!(budget.replies.all_kib * KIB > LARGEST_REPLY + 17 * MIB);
    }
}
