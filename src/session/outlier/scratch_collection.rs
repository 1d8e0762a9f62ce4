//! The collections in which updates are evaluated. A copy that a dead proxy left blocks that document for at
//! most an hour: other commands use another scratch collection.

use crate::command::namespace::Namespace;
use crate::session::namespace_cache::NamespaceCache;

/// The last scratch collections that were used, by the namespace of their extras, the newest last. `setup`
/// drops those of a namespace that has left the cache.
#[derive(Debug, Default)]
pub(in crate::session) struct Scratches(NamespaceCache<Vec<String>>);

impl Scratches {
    /// Remembers that this one is used. Gives one that nobody uses any more, if there is one.
    pub(super) fn take(&self, namespace: Namespace<'_>, name: &str) -> Option<String> {
        self.0.change(namespace, |used| {
            if used.last().is_none_or(|last| last != name) {
                used.push(name.to_owned());
            }
            // That of the hour before may be somebody's still.
            (used.len() > 2).then(|| used.remove(0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_goes_when_two_others_were_used_since() {
        let scratches = Scratches::default();
        let take = |name: &str| scratches.take(Namespace::new("shop", "extra_sales"), name);
        assert_eq!([take("a"), take("a"), take("b"), take("b")], [const { None }; 4]);
        assert_eq!(take("c").as_deref(), Some("a"));
        assert_eq!(take("c"), None);
        assert_eq!(take("d").as_deref(), Some("b"));
    }
}
