//! Caches which documents were outliers at their last write, so that a push need not be tried as one on an
//! inline document.
//!
//! An entry is a guess: mongod's reply shows whether it was right, and a wrong one costs a round trip.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bson::oid::ObjectId;
use bson::raw::RawBsonRef;
use lru::LruCache;

use crate::command::document::single;
use crate::command::namespace::Namespace;
use crate::session::first_page_cache::FirstPageKey;

/// Documents in the cache. An entry has about 200 bytes.
const MAX_DOCUMENTS: NonZeroUsize = NonZeroUsize::new(100_000).expect("not zero");

/// The outliers that this proxy has seen, with their generations.
#[derive(Debug)]
pub(in crate::session) struct KnownOutliers {
    generations: Mutex<LruCache<FirstPageKey, ObjectId>>,
}

impl Default for KnownOutliers {
    fn default() -> Self {
        // Allocates on demand.
        let mut generations = LruCache::unbounded();
        generations.resize(MAX_DOCUMENTS);
        Self {
            generations: Mutex::new(generations),
        }
    }
}

impl KnownOutliers {
    /// The cache key of a document.
    pub(super) fn place(namespace: Namespace<'_>, id: RawBsonRef<'_>) -> FirstPageKey {
        FirstPageKey::new(namespace, single("_id", id).into_bytes())
    }

    /// The generation at the last write.
    pub(super) fn get(&self, place: &FirstPageKey) -> Option<ObjectId> {
        self.lock().get(place).copied()
    }

    pub(super) fn learn(&self, place: FirstPageKey, generation: ObjectId) {
        self.lock().put(place, generation);
    }

    /// Removes an entry that was wrong.
    pub(super) fn forget(&self, place: &FirstPageKey) {
        self.lock().pop(place);
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<FirstPageKey, ObjectId>> {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
