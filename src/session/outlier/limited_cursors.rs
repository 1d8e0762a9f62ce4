//! Cursors of pipelines that answer a `find` with a limit. mongod closes the cursor of a `find` with the last
//! document of the limit, but that of a pipeline after it, by an empty batch.
//!
//! If a cursor was evicted, or another proxy has opened it, the client gets that empty batch.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;

/// The least recently used cursor is evicted first.
const MAX_CURSORS: NonZeroUsize = NonZeroUsize::new(100_000).expect("not zero");

/// The number of documents that each open cursor has yet to return, by its id.
#[derive(Debug)]
pub(in crate::session) struct LimitedCursors(Mutex<LruCache<i64, u64>>);

impl Default for LimitedCursors {
    fn default() -> Self {
        // Allocates on demand.
        let mut left = LruCache::unbounded();
        left.resize(MAX_CURSORS);
        Self(Mutex::new(left))
    }
}

impl LimitedCursors {
    pub(in crate::session) fn contains(&self, id: i64) -> bool {
        self.lock().contains(&id)
    }

    pub(super) fn keep(&self, id: i64, left: u64) {
        self.lock().put(id, left);
    }

    pub(super) fn take(&self, id: i64) -> Option<u64> {
        self.lock().pop(&id)
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<i64, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
