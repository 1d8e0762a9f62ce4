//! Cursors of pipelines that reference collections with an automatic shape, and of change streams on their
//! database. mongod ends the cursors of a renamed collection, but a pipeline that references it by name would
//! go on with the other layout.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;

use super::stored::StoredCollection;
use super::touched::TouchedCollection;

/// Guarded cursors. The least recently used one is forgotten first, and its next `getMore` gets
/// `CursorNotFound`.
const MAX_CURSORS: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");

/// A collection that a pipeline references, as it was when the cursor was opened.
#[derive(Clone, Debug)]
pub(in crate::session) struct GuardedCollection {
    pub(in crate::session) collection: TouchedCollection,
    pub(in crate::session) stored: StoredCollection,
}

/// What an open cursor references.
#[derive(Clone, Debug, Default)]
pub(in crate::session) struct GuardedReferences {
    pub(in crate::session) collections: Vec<GuardedCollection>,
    /// Whether this is the cursor of a change stream. A change stream watches a name, not a collection. So it
    /// continues with another collection of that name and layout.
    pub(in crate::session) is_stream: bool,
}

/// The open cursors of such pipelines, by id.
#[derive(Debug)]
pub(in crate::session) struct GuardedCursors {
    open: Mutex<LruCache<i64, GuardedReferences>>,
}

impl Default for GuardedCursors {
    fn default() -> Self {
        // Allocates on demand.
        let mut open = LruCache::unbounded();
        open.resize(MAX_CURSORS);
        Self { open: Mutex::new(open) }
    }
}

impl GuardedCursors {
    pub(in crate::session) fn opened(&self, id: i64, references: GuardedReferences) {
        if id != 0 && !references.collections.is_empty() {
            self.lock().put(id, references);
        }
    }

    pub(in crate::session) fn of(&self, id: i64) -> Option<GuardedReferences> {
        self.lock().get(&id).cloned()
    }

    pub(in crate::session) fn closed(&self, id: i64) {
        self.lock().pop(&id);
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<i64, GuardedReferences>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
