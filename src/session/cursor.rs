//! Which cursors on shaped collections are ours.
//!
//! A cursor that was opened on raw buckets, by another program, must not be read through the proxy as if it gave items;
//! so an id that no session of this proxy has opened is not found. Ids are mongod's own, and any connection may use them.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use lru::LruCache;

/// Open cursors remembered; the least recently used is forgotten first, and its reader told that it is not found.
const MAX_CURSORS: NonZeroUsize = NonZeroUsize::new(100_000).expect("not zero");

/// The cursors that sessions have opened on shaped collections.
#[derive(Debug)]
pub(super) struct CursorRegistry {
    open: Mutex<LruCache<i64, ()>>,
}

impl Default for CursorRegistry {
    fn default() -> Self {
        // Grows as it is used: most proxies have a handful of cursors open.
        let mut open = LruCache::unbounded();
        open.resize(MAX_CURSORS);
        Self { open: Mutex::new(open) }
    }
}

impl CursorRegistry {
    /// Remembers a cursor that a reply has named; 0 is none.
    pub(super) fn opened(&self, id: i64) {
        if id != 0 {
            self.lock().put(id, ());
        }
    }

    /// Whether it is one of ours.
    pub(super) fn contains(&self, id: i64) -> bool {
        self.lock().get(&id).is_some()
    }

    /// Forgets a cursor that is exhausted or was killed.
    pub(super) fn closed(&self, id: i64) {
        self.lock().pop(&id);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LruCache<i64, ()>> {
        // Nothing in here is ever left half done.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
