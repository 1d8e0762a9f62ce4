//! The collation of an outlier collection. Updates of outliers are evaluated in a scratch collection without
//! it, where strings would compare otherwise.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bson::Binary;
use lru::LruCache;

use crate::command::namespace::Namespace;

/// Namespaces remembered.
const MAX_NAMESPACES: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");

/// The collections that have been seen to have none, by namespace. Every write of what was evaluated
/// elsewhere names the UUID, so that mongod refuses it where the collection is another one by now.
#[derive(Debug)]
pub(in crate::session) struct WithoutCollation(Mutex<LruCache<String, Binary>>);

impl Default for WithoutCollation {
    fn default() -> Self {
        // Grows as it is used.
        let mut seen = LruCache::unbounded();
        seen.resize(MAX_NAMESPACES);
        Self(Mutex::new(seen))
    }
}

impl WithoutCollation {
    /// Forgets a collection that is another one by now, or may be.
    pub(super) fn forget(&self, namespace: Namespace<'_>) {
        self.lock().pop(&namespace.to_string());
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, LruCache<String, Binary>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
