//! Caches the head page of keys, and gives one writer at a time the lease of a key, so that writers
//! of one proxy do not conflict in mongod.
//!
//! An entry may be stale because other proxies write, too. So statements demand the page's state in
//! their filter. An evicted entry costs one lookup. The least recently used entries are evicted
//! first.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bson::Binary;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout_at};

use super::bounded_cache::{Bounded, Weighed};
use crate::pattern::bucket::layout::PageHeader;

/// Bytes of an entry without its key, with the `_id`s of the page.
const AROUND_KEY: usize = 450;

/// The longest time that a writer waits for a lease. If mongod delays the lease's holder for longer, the
/// writer continues without it, and mongod decides which write is first.
const PATIENCE: Duration = Duration::from_millis(500);

/// The known head page of a key. `None`: unknown. `Some(None)`: the key has no pages.
pub(super) type KnownHeadPage = Option<Option<PageHeader>>;

/// A key of a collection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HeadPageKey {
    /// The primary's term, because writes of another primary may have been rolled back.
    term: u64,
    /// The collection's UUID, because a recreated collection has no pages.
    collection: Vec<u8>,
    key: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct HeadPages {
    places: Mutex<Bounded<HeadPageKey, Arc<tokio::sync::Mutex<KnownHeadPage>>>>,
}

impl Weighed for HeadPageKey {
    fn bytes(&self) -> usize {
        // The page's `_id` contains the key, and a string may take twice its length there.
        self.key.len().saturating_mul(3).saturating_add(AROUND_KEY)
    }
}

/// The right to append to a key. Other writers wait until it is dropped.
#[derive(Debug)]
pub(super) struct KeyLease {
    /// `None`: the wait timed out, and the cached head page must not be used.
    hint: Option<OwnedMutexGuard<KnownHeadPage>>,
}

impl HeadPages {
    /// Takes the leases of these keys, one after the other. All writers must pass keys in the same
    /// order, or they could deadlock. Waits for [`PATIENCE`] in total.
    pub(super) async fn lease(
        &self,
        term: u64,
        collection: &Binary,
        keys: impl Iterator<Item = &[u8]>,
    ) -> Vec<KeyLease> {
        let places: Vec<_> = {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            let place = |key: &[u8]| HeadPageKey {
                term,
                collection: collection.bytes.clone(),
                key: key.to_vec(),
            };
            let known = |key: &[u8]| {
                let place = place(key);
                if let Some(hint) = places.get(&place) {
                    return Arc::clone(hint);
                }
                let hint = Arc::default();
                places.put(place, Arc::clone(&hint));
                hint
            };
            keys.map(known).collect()
        };
        let deadline = Instant::now() + PATIENCE;
        let mut leases = Vec::with_capacity(places.len());
        for place in places {
            let hint = match Arc::clone(&place).try_lock_owned() {
                Ok(hint) => Some(hint),
                Err(_) => timeout_at(deadline, place.lock_owned()).await.ok(),
            };
            leases.push(KeyLease { hint });
        }
        leases
    }
}

impl HeadPages {
    /// Removes all entries: after a restart, a server may have lost writes that were not in its
    /// journal.
    pub(super) fn clear(&self) {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl KeyLease {
    /// The head page that the last writer recorded.
    pub(super) fn hint(&self) -> KnownHeadPage {
        self.hint.as_deref().cloned().flatten()
    }

    /// Whether another writer waits for the lease.
    pub(super) fn is_waited_for(&self) -> bool {
        // The cache and this lease have one reference each, and each waiting writer another.
        let shared = |hint| Arc::strong_count(OwnedMutexGuard::mutex(hint)) > 2;
        self.hint.as_ref().is_none_or(shared)
    }

    /// Records the head page for the next writer, and ends the lease.
    pub(super) fn leave(mut self, hint: KnownHeadPage) {
        if let Some(place) = self.hint.as_deref_mut() {
            *place = hint;
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::raw::RawBson;
    use bson::spec::BinarySubtype;

    use super::*;

    fn collection(byte: u8) -> Binary {
        Binary {
            subtype: BinarySubtype::Uuid,
            bytes: vec![byte; 16],
        }
    }

    fn page(page: i32) -> PageHeader {
        PageHeader {
            id: RawBson::Null,
            page,
            count: 1,
            bytes: 1,
            to: None,
            short: false,
            late: false,
            unordered: false,
            nonce: Some(7),
            next: Vec::new(),
            anchor: false,
            size: None,
            revision: None,
            ids: None,
            contended: 0,
        }
    }

    async fn lease(hints: &HeadPages, byte: u8, key: &[u8]) -> KeyLease {
        hints.lease(1, &collection(byte), [key].into_iter()).await.remove(0)
    }

    #[tokio::test]
    async fn a_hint_is_left_to_the_next_writer_of_the_key_in_that_collection() {
        let hints = HeadPages::default();
        assert!(lease(&hints, 1, b"a").await.hint().is_none());
        lease(&hints, 1, b"a").await.leave(Some(Some(page(7))));
        assert_eq!(
            lease(&hints, 1, b"a").await.hint().flatten().map(|page| page.page),
            Some(7)
        );
        assert!(lease(&hints, 1, b"b").await.hint().is_none());
        assert!(lease(&hints, 2, b"a").await.hint().is_none());
        let collection = collection(1);
        let other_term = hints
            .lease(2, &collection, [b"a".as_slice()].into_iter())
            .await
            .remove(0);
        assert!(other_term.hint().is_none());
        hints.clear();
        assert!(lease(&hints, 1, b"a").await.hint().is_none());
        lease(&hints, 1, b"a").await.leave(None);
        assert!(lease(&hints, 1, b"a").await.hint().is_none());
    }

    #[tokio::test]
    async fn key_lease_timeout_continues_without_a_hint() {
        let hints = HeadPages::default();
        lease(&hints, 1, b"a").await.leave(Some(None));
        let first = lease(&hints, 1, b"a").await;
        assert!(!first.is_waited_for());
        let begun = Instant::now();
        let second = lease(&hints, 1, b"a").await;
        assert!(begun.elapsed() >= PATIENCE);
        assert!(second.is_waited_for() && second.hint().is_none());
        second.leave(Some(Some(page(1))));
        assert_eq!(first.hint().map(|page| page.is_none()), Some(true));
    }
}
