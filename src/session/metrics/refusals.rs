//! Refusals: logged, and kept for the operator's page.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;

use super::label::RefusalReason;

/// Kinds in memory. The least recent one is evicted.
const MAX_KINDS: NonZeroUsize = NonZeroUsize::new(100).expect("not zero");
/// Characters of a description that are kept. It may contain names of commands and stages, which
/// clients choose.
const MAX_CHARACTERS: usize = 200;

/// A kind of refusal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RefusalKind {
    /// The shape's namespace, as configured.
    pub namespace: String,
    /// The category.
    pub reason: RefusalReason,
    /// The command, option or state. Without values of documents.
    pub what: String,
    /// Whether the shape is in observe mode. Then the command was relayed.
    pub is_observed: bool,
}

/// The kinds of refusals with their counts.
#[derive(Clone, Debug)]
pub(super) struct RefusalLog {
    kinds: Arc<Mutex<LruCache<RefusalKind, u64>>>,
    is_observed: bool,
}

impl Default for RefusalLog {
    fn default() -> Self {
        Self {
            kinds: Arc::new(Mutex::new(LruCache::new(MAX_KINDS))),
            is_observed: false,
        }
    }
}

impl RefusalLog {
    /// A handle to the same log for shapes in observe mode.
    pub(super) fn observed(&self) -> Self {
        Self {
            kinds: Arc::clone(&self.kinds),
            is_observed: true,
        }
    }

    /// Counts a refusal. The first of its kind is logged at info, later ones at debug, because an
    /// application may repeat one endlessly.
    pub(super) fn add(&self, namespace: &str, reason: RefusalReason, what: &str) {
        let kind = RefusalKind {
            namespace: namespace.to_owned(),
            reason,
            what: what.chars().take(MAX_CHARACTERS).collect(),
            is_observed: self.is_observed,
        };
        let (what, reason) = (kind.what.clone(), reason.label());
        match (self.count(kind), self.is_observed) {
            (1, false) => tracing::info!(
                namespace,
                reason,
                ?what,
                "refused a command; further refusals of this kind are logged at level debug"
            ),
            (_, false) => tracing::debug!(namespace, reason, ?what, "refused a command"),
            (1, true) => tracing::info!(namespace, reason, ?what, "observed: would be refused"),
            (_, true) => tracing::debug!(namespace, reason, ?what, "observed: would be refused"),
        }
    }

    fn count(&self, kind: RefusalKind) -> u64 {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let count = kinds.get_or_insert_mut(kind, || 0);
        *count += 1;
        *count
    }

    /// All kinds with their counts, the most recent first.
    pub(super) fn kinds(&self) -> Vec<(RefusalKind, u64)> {
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.iter().map(|(kind, count)| (kind.clone(), *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_and_bounded() {
        let log = RefusalLog::default();
        log.add("d.c", RefusalReason::Read, "x");
        log.add("d.c", RefusalReason::Read, "x");
        log.observed().add("d.c", RefusalReason::Read, "x");
        let counts: Vec<u64> = log.kinds().iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [1, 2]);
        for number in 0..2 * MAX_KINDS.get() {
            log.add("d.c", RefusalReason::Read, &number.to_string());
        }
        assert_eq!(log.kinds().len(), MAX_KINDS.get());
        log.add("d.c", RefusalReason::Read, &"x".repeat(2 * MAX_CHARACTERS));
        assert_eq!(log.kinds()[0].0.what.len(), MAX_CHARACTERS);
    }
}
