//! Waits until a collection accepts writes again. One session of a proxy lists the frozen collection at short
//! intervals, and the others wait for its result. So a freeze costs the server the same for any number of
//! clients, while a conversion applies the last changes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

use super::automatic::stored::CollectionObserver;
use super::error::RunError;
use super::namespace_cache::NamespaceCache;

/// The interval between two lists.
const POLL: Duration = Duration::from_millis(20);

/// The waits for frozen collections.
#[derive(Debug, Default)]
pub(super) struct ThawWatch(NamespaceCache<Arc<Mutex<LastThaw>>>);

/// The beginning of the last list in which a collection accepted writes. `None`: no session has waited.
type LastThaw = Option<Instant>;

impl ThawWatch {
    /// Waits until a collection accepts writes. Returns whether it does before the limit. `refused`: a time
    /// from which on it may have accepted writes again.
    ///
    /// # Errors
    /// The error of a list.
    pub(super) async fn wait(
        &self,
        observer: &mut CollectionObserver<'_, '_>,
        refused: Instant,
        limit: Instant,
    ) -> Result<bool, RunError> {
        let last = self.0.change(observer.namespace, |last| Arc::clone(last));
        let Ok(mut last) = timeout_at(limit, last.lock()).await else {
            return Ok(false);
        };
        if last.is_some_and(|thaw| thaw > refused) {
            return Ok(true);
        }
        loop {
            let listed = Instant::now();
            if !observer.is_held().await? {
                *last = Some(listed);
                return Ok(true);
            }
            if listed >= limit {
                return Ok(false);
            }
            sleep(POLL).await;
        }
    }
}
