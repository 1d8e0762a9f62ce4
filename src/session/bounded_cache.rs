//! A cache that is bounded by the number of its entries and by their bytes, because clients choose the length
//! of keys.

use std::hash::Hash;

use lru::LruCache;

const MAX_ENTRIES: usize = 100_000;
/// Maximum bytes of all entries.
const MAX_BYTES: usize = 48 << 20;

/// The bytes of an entry, estimated from its key. The value must be proportional to the key.
pub(super) trait Weighed {
    /// Estimated bytes of the entry.
    fn bytes(&self) -> usize;
}

/// Evicts the least recently used entry first.
#[derive(Debug)]
pub(super) struct Bounded<K: Hash + Eq, V> {
    entries: LruCache<K, V>,
    bytes: usize,
}

impl<K: Hash + Eq + Weighed, V> Default for Bounded<K, V> {
    fn default() -> Self {
        // Allocates on demand.
        let entries = LruCache::unbounded();
        Self { entries, bytes: 0 }
    }
}

impl<K: Hash + Eq + Weighed, V> Bounded<K, V> {
    pub(super) fn get(&mut self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    /// Adds an entry. An entry that exceeds the limit alone is evicted at once.
    pub(super) fn put(&mut self, key: K, value: V) {
        self.bytes = self.bytes.saturating_add(key.bytes());
        if let Some((replaced, _)) = self.entries.push(key, value) {
            self.bytes = self.bytes.saturating_sub(replaced.bytes());
        }
        while self.bytes > MAX_BYTES || self.entries.len() > MAX_ENTRIES {
            let Some((oldest, _)) = self.entries.pop_lru() else {
                break;
            };
            self.bytes = self.bytes.saturating_sub(oldest.bytes());
        }
    }

    pub(super) fn pop(&mut self, key: &K) {
        if let Some((removed, _)) = self.entries.pop_entry(key) {
            self.bytes = self.bytes.saturating_sub(removed.bytes());
        }
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Weighed for Vec<u8> {
        fn bytes(&self) -> usize {
            self.len()
        }
    }

    #[test]
    fn least_recently_used_entry_is_evicted_by_bytes_or_entries() {
        let mut cache = Bounded::default();
        for number in 0..100_u8 {
            cache.put(vec![number; 1 << 20], ());
            assert!(cache.bytes <= MAX_BYTES);
        }
        let most = MAX_BYTES >> 20;
        assert_eq!(cache.entries.len(), most);
        assert!(cache.get(&vec![99; 1 << 20]).is_some() && cache.get(&vec![20; 1 << 20]).is_none());
        cache.put(vec![99; 1 << 20], ());
        cache.pop(&vec![99; 1 << 20]);
        assert_eq!((cache.entries.len(), cache.bytes), (most - 1, MAX_BYTES - (1 << 20)));
        cache.put(vec![0; MAX_BYTES + 1], ());
        assert_eq!((cache.entries.len(), cache.bytes), (0, 0));
        for number in 0..150_000_u32 {
            cache.put(number.to_be_bytes().to_vec(), ());
        }
        assert_eq!(cache.entries.len(), MAX_ENTRIES);
        cache.clear();
        assert_eq!((cache.entries.len(), cache.bytes), (0, 0));
    }
}
