//! The collections in which updates are evaluated. If a proxy crashes, its copy blocks the document in that
//! collection for up to an hour. Until then, other commands use another scratch collection.

use crate::command::namespace::Namespace;
use crate::session::namespace_cache::NamespaceCache;

/// The scratch collections used last, by the namespace of the extras, newest last. If a namespace
/// is evicted, its collections are left to `setup`, which drops them.
#[derive(Debug, Default)]
pub(in crate::session) struct Scratches(NamespaceCache<Vec<String>>);

impl Scratches {
    /// Records that `name` is used. Returns a collection that is no longer in use and may be
    /// dropped.
    pub(super) fn take(&self, namespace: Namespace<'_>, name: &str) -> Option<String> {
        self.0.change(namespace, |used| {
            if used.last().is_none_or(|last| last != name) {
                used.push(name.to_owned());
            }
            // Another command may still use the collection of the hour before.
            (used.len() > 2).then(|| used.remove(0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_collection_unused_for_two_others_is_dropped() {
        let scratches = Scratches::default();
        let take = |name: &str| scratches.take(Namespace::new("shop", "extra_sales"), name);
        assert_eq!([take("a"), take("a"), take("b"), take("b")], [const { None }; 4]);
        assert_eq!(take("c").as_deref(), Some("a"));
        assert_eq!(take("c"), None);
        assert_eq!(take("d").as_deref(), Some("b"));
    }
}
