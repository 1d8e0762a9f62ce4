//! The collections in which updates are evaluated. A copy that a dead proxy left blocks that document for at
//! most an hour: other commands use another scratch collection.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use lru::LruCache;

/// Namespaces remembered. What is left of the scratch collections of others `setup` drops.
const MAX_NAMESPACES: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");

/// The last ones that were used, by the namespace of their extras, the newest last.
#[derive(Debug)]
pub(in crate::session) struct Scratches(Mutex<LruCache<String, Vec<String>>>);

impl Default for Scratches {
    fn default() -> Self {
        // Grows as it is used.
        let mut used = LruCache::unbounded();
        used.resize(MAX_NAMESPACES);
        Self(Mutex::new(used))
    }
}

impl Scratches {
    /// Remembers that this one is used. Gives one that nobody uses any more, if there is one.
    pub(super) fn take(&self, namespace: String, name: &str) -> Option<String> {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let used = used.get_or_insert_mut(namespace, Vec::new);
        if used.last().is_none_or(|last| last != name) {
            used.push(name.to_owned());
        }
        // That of the hour before may be somebody's still.
        (used.len() > 2).then(|| used.remove(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_goes_when_two_others_were_used_since() {
        let scratches = Scratches::default();
        let take = |name: &str| scratches.take("shop.extra_sales".to_owned(), name);
        assert_eq!([take("a"), take("a"), take("b"), take("b")], [const { None }; 4]);
        assert_eq!(take("c").as_deref(), Some("a"));
        assert_eq!(take("c"), None);
        assert_eq!(take("d").as_deref(), Some("b"));
    }
}
