//! Caches which documents were outliers at their last write, so that a push need not be tried as one on an
//! inline document.
//!
//! An entry is a guess: mongod's reply shows whether it was right, and a wrong one costs a round trip.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bson::oid::ObjectId;
use bson::raw::RawBsonRef;

use crate::command::document::single;
use crate::command::namespace::Namespace;
use crate::session::bounded_cache::Bounded;
use crate::session::first_page_cache::FirstPageKey;

/// The outliers that this proxy has seen, with their generations.
#[derive(Debug, Default)]
pub(in crate::session) struct KnownOutliers {
    generations: Mutex<Bounded<FirstPageKey, ObjectId>>,
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

    fn lock(&self) -> MutexGuard<'_, Bounded<FirstPageKey, ObjectId>> {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_with_long_ids_are_evicted_by_their_bytes() {
        let known = KnownOutliers::default();
        let place = |number: usize| {
            let id = format!("{number}{}", "x".repeat(1 << 20));
            KnownOutliers::place(Namespace::new("shop", "sales"), RawBsonRef::String(&id))
        };
        for number in 0..40 {
            known.learn(place(number), ObjectId::new());
        }
        assert_eq!(known.get(&place(0)), None);
        assert!(known.get(&place(39)).is_some());
    }
}
