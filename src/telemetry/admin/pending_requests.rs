//! Connections that have not sent their request. Their number is limited: a new one displaces the
//! oldest, so that incomplete requests cannot block others.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// Maximum number of connections without a request.
const MAX_UNASKED: usize = 64;

/// The connections without a request, oldest first.
#[derive(Debug, Default)]
pub(super) struct Unasked(Mutex<VecDeque<Displaced>>);

/// Cancelled when the connection is displaced.
type Displaced = Arc<CancellationToken>;

/// A connection without a request.
#[derive(Clone, Debug)]
pub(super) struct PendingRequest {
    unasked: Arc<Unasked>,
    displaced: Displaced,
}

impl Unasked {
    /// Adds a new connection, and displaces the oldest if there are too many.
    pub(super) fn begin(unasked: &Arc<Self>) -> PendingRequest {
        let displaced = Displaced::default();
        let mut all = unasked.lock();
        all.push_back(Arc::clone(&displaced));
        if all.len() > MAX_UNASKED
            && let Some(oldest) = all.pop_front()
        {
            oldest.cancel();
        }
        let unasked = Arc::clone(unasked);
        PendingRequest { unasked, displaced }
    }

    /// Displaces all connections. No request of them is in progress.
    pub(super) fn displace_all(&self) {
        self.lock().drain(..).for_each(|displaced| displaced.cancel());
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Displaced>> {
        // No panic can leave the queue inconsistent, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingRequest {
    /// Removes the connection from the queue, because it has sent its request.
    pub(super) fn asked(&self) {
        let mut all = self.unasked.lock();
        all.retain(|other| !Arc::ptr_eq(other, &self.displaced));
    }

    /// Serves the connection to its end. `None`: it was displaced.
    pub(super) async fn unless_displaced<T>(&self, served: impl Future<Output = T>) -> Option<T> {
        let served = self.displaced.run_until_cancelled(served).await;
        self.asked();
        served
    }
}
