//! A cache by namespace, for facts about collections.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use lru::LruCache;

use crate::command::namespace::Namespace;

/// Maximum number of entries. A shape for all databases may match many namespaces.
const MAX_NAMESPACES: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");

/// A value for each namespace. If there are too many, the least recently used one is evicted.
#[derive(Debug)]
pub(super) struct NamespaceCache<V>(Mutex<LruCache<String, V>>);

impl<V> Default for NamespaceCache<V> {
    fn default() -> Self {
        // `LruCache::new` would allocate memory for all entries.
        let mut entries = LruCache::unbounded();
        entries.resize(MAX_NAMESPACES);
        Self(Mutex::new(entries))
    }
}

impl<V: Clone> NamespaceCache<V> {
    pub(super) fn get(&self, namespace: Namespace<'_>) -> Option<V> {
        self.with(|entries| entries.get(&namespace.to_string()).cloned())
    }

    pub(super) fn put(&self, namespace: Namespace<'_>, value: V) {
        self.with(|entries| entries.put(namespace.to_string(), value));
    }

    /// Drops the entry of a collection that may have been dropped or replaced.
    pub(super) fn forget(&self, namespace: Namespace<'_>) {
        self.with(|entries| entries.pop(&namespace.to_string()));
    }

    /// Changes a value in place. A missing value is created with its default.
    pub(super) fn change<R>(&self, namespace: Namespace<'_>, change: impl FnOnce(&mut V) -> R) -> R
    where
        V: Default,
    {
        self.with(|entries| change(entries.get_or_insert_mut(namespace.to_string(), V::default)))
    }

    fn with<R>(&self, of: impl FnOnce(&mut LruCache<String, V>) -> R) -> R {
        of(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_namespace_is_evicted() {
        let cache = NamespaceCache::default();
        let names: Vec<String> = (0..=MAX_NAMESPACES.get()).map(|number| number.to_string()).collect();
        let namespace = |number: usize| Namespace::new("shop", &names[number]);
        for number in 0..MAX_NAMESPACES.get() {
            cache.put(namespace(number), number);
        }
        assert_eq!(cache.get(namespace(0)), Some(0));
        cache.put(namespace(MAX_NAMESPACES.get()), 7);
        assert_eq!([cache.get(namespace(0)), cache.get(namespace(1))], [Some(0), None]);
        cache.forget(namespace(0));
        assert_eq!(cache.get(namespace(0)), None);
        cache.change(namespace(0), |value| *value += 1);
        assert_eq!(cache.get(namespace(0)), Some(1));
    }
}
