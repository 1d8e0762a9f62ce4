//! A cache by namespace, for facts about collections.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;
use tokio::sync::OwnedMutexGuard;

use crate::command::namespace::Namespace;

/// Maximum number of entries. A shape for all databases may match many namespaces.
const MAX_NAMESPACES: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");

/// A value for each namespace. If there are too many, the least recently used one is evicted.
#[derive(Debug)]
pub(super) struct NamespaceCache<V> {
    values: Entries<V>,
    turns: Entries<Arc<tokio::sync::Mutex<()>>>,
}

#[derive(Debug)]
struct Entries<V>(Mutex<LruCache<String, V>>);

/// The result of a lookup in the cache.
pub(super) enum CacheLookup<V> {
    Known(V),
    /// The session finds the value out. Others wait for it while this one has a turn.
    Unknown(Option<LookupTurn>),
}

/// The turn of one session to find a value out. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct LookupTurn {
    _guard: OwnedMutexGuard<()>,
}

impl<V> Default for NamespaceCache<V> {
    fn default() -> Self {
        Self {
            values: Entries::default(),
            turns: Entries::default(),
        }
    }
}

impl<V> Default for Entries<V> {
    fn default() -> Self {
        // `LruCache::new` would allocate memory for all entries.
        let mut entries = LruCache::unbounded();
        entries.resize(MAX_NAMESPACES);
        Self(Mutex::new(entries))
    }
}

impl<V: Clone> NamespaceCache<V> {
    pub(super) fn get(&self, namespace: Namespace<'_>) -> Option<V> {
        self.values.with(|values| values.get(&namespace.to_string()).cloned())
    }

    /// The value. Waits if another session is finding it out, but only once: that session may find nothing
    /// that is cached.
    pub(super) async fn lookup(&self, namespace: Namespace<'_>) -> CacheLookup<V> {
        if let Some(value) = self.get(namespace) {
            return CacheLookup::Known(value);
        }
        let turn = self.turns.with(|turns| {
            let turn = turns.get_or_insert_mut(namespace.to_string(), Arc::default);
            Arc::clone(turn)
        });
        if let Ok(guard) = Arc::clone(&turn).try_lock_owned() {
            return CacheLookup::Unknown(Some(LookupTurn { _guard: guard }));
        }
        drop(turn.lock().await);
        match self.get(namespace) {
            Some(value) => CacheLookup::Known(value),
            None => CacheLookup::Unknown(None),
        }
    }

    pub(super) fn put(&self, namespace: Namespace<'_>, value: V) {
        self.values.with(|values| values.put(namespace.to_string(), value));
    }

    /// Drops the entry of a collection that may have been dropped or replaced.
    pub(super) fn forget(&self, namespace: Namespace<'_>) {
        self.values.with(|values| values.pop(&namespace.to_string()));
    }

    /// Changes a value in place. A missing value is created with its default.
    pub(super) fn change<R>(&self, namespace: Namespace<'_>, change: impl FnOnce(&mut V) -> R) -> R
    where
        V: Default,
    {
        self.values
            .with(|values| change(values.get_or_insert_mut(namespace.to_string(), V::default)))
    }
}

impl<V> Entries<V> {
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

    #[tokio::test]
    async fn one_session_finds_a_value_out_and_the_others_wait_once() {
        let cache = NamespaceCache::default();
        let namespace = Namespace::new("shop", "orders");
        let CacheLookup::Unknown(Some(turn)) = cache.lookup(namespace).await else {
            panic!("the first session has no turn");
        };
        let found = async {
            tokio::task::yield_now().await;
            cache.put(namespace, 7);
            drop(turn);
        };
        let (waited, ()) = tokio::join!(cache.lookup(namespace), found);
        assert!(matches!(waited, CacheLookup::Known(7)));
        cache.forget(namespace);
        let CacheLookup::Unknown(Some(turn)) = cache.lookup(namespace).await else {
            panic!("there is no turn after a forgotten value");
        };
        let (waited, ()) = tokio::join!(cache.lookup(namespace), async { drop(turn) });
        assert!(matches!(waited, CacheLookup::Unknown(None)));
    }
}
