//! The collections in which updates are evaluated. A copy that a dead proxy left blocks that document for at
//! most an hour: other commands use another scratch collection.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use bson::raw::RawDocumentBuf;
use lru::LruCache;

use super::OutlierCommand;
use crate::command::arguments::InheritedOptions;
use crate::command::document::single;
use crate::command::namespace::Namespace;
use crate::pattern::outlier::orphans::shared_scratch;
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

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
    fn take(&self, namespace: String, name: &str) -> Option<String> {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let used = used.get_or_insert_mut(namespace, Vec::new);
        if used.last().is_none_or(|last| last != name) {
            used.push(name.to_owned());
        }
        // That of the hour before may be somebody's still.
        (used.len() > 2).then(|| used.remove(0))
    }
}

impl OutlierCommand<'_> {
    /// The collection in which all work at this time.
    pub(super) async fn shared_scratch(&mut self) -> Result<String, RunError> {
        let name = shared_scratch(self.shape, SystemTime::now());
        let extras = Namespace::new(self.context.head.database, self.shape.extras_collection());
        if let Some(former) = self.context.settings.scratches.take(extras.to_string(), &name) {
            let mut command = single("drop", former);
            self.append_scratch(&mut command);
            // mongod says so if there is none.
            self.context.link.call(UpstreamRequest::plain(&command)).await?;
        }
        Ok(name)
    }

    /// Never a part of a transaction, nor of a retryable write.
    pub(super) fn append_scratch(&self, command: &mut RawDocumentBuf) {
        InheritedOptions::of(self.context.head.body()).append_identity(command);
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
