//! Connections that have sent no request yet. There are few at a time: a new one displaces the oldest, so
//! that half requests keep nobody from asking.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// Connections that may be without a request.
const MAX_UNASKED: usize = 64;

/// The connections without a request, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Unasked(Mutex<VecDeque<Displaced>>);

/// What tells a connection that another has its place.
type Displaced = Arc<CancellationToken>;

/// One of these connections.
#[derive(Clone, Debug)]
pub(super) struct PendingRequest {
    unasked: Arc<Unasked>,
    displaced: Displaced,
}

impl Unasked {
    /// Begins with a new connection.
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

    /// Ends all: nothing was begun for them.
    pub(super) fn displace_all(&self) {
        self.lock().drain(..).for_each(|displaced| displaced.cancel());
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Displaced>> {
        // Nothing in here is ever left half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingRequest {
    /// The connection has sent its request, and is displaced no more.
    pub(super) fn asked(&self) {
        let mut all = self.unasked.lock();
        all.retain(|other| !Arc::ptr_eq(other, &self.displaced));
    }

    /// Serves the connection to its end; `None` where it was displaced.
    pub(super) async fn unless_displaced<T>(&self, served: impl Future<Output = T>) -> Option<T> {
        let served = self.displaced.run_until_cancelled(served).await;
        self.asked();
        served
    }
}
