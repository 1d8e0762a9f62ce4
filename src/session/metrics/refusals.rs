//! Refusals: logged, and kept for the operator's page.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;

use super::label::RefusalReason;
use crate::command::registry::Command;

/// Kinds in memory. The least recent one is evicted.
const MAX_KINDS: NonZeroUsize = NonZeroUsize::new(100).expect("not zero");
/// Characters of a description that are kept. It may contain names of commands and stages, which
/// clients choose.
const MAX_CHARACTERS: usize = 200;
/// The shortest time between two log lines at level info with the same namespace, command and reason.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// A refused command.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    /// The shape's namespace, as configured.
    pub namespace: &'a str,
    /// The client's command.
    pub command: Command,
    /// The category.
    pub reason: RefusalReason,
    /// The refused command, option or state. Without values of documents.
    pub what: &'a str,
}

/// A class of refusals, which share the log lines at level info. The number of classes is bounded: all fields
/// are of closed sets, or configured.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RefusalClass {
    /// The shape's namespace, as configured.
    pub namespace: String,
    /// The client's command.
    pub command: Command,
    /// The category.
    pub reason: RefusalReason,
    /// Whether the shape is in observe mode. Then the command was relayed.
    pub is_observed: bool,
}

/// A kind of refusal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RefusalKind {
    /// The class.
    pub class: RefusalClass,
    /// The command, option or state. Without values of documents.
    pub what: String,
}

/// The last line of a [`RefusalClass`].
#[derive(Clone, Copy, Debug)]
struct LastLine {
    at: Instant,
    /// Number of refusals since then that were not logged at level info.
    suppressed: u64,
}

#[derive(Debug)]
struct RefusalTable {
    kinds: LruCache<RefusalKind, u64>,
    lines: HashMap<RefusalClass, LastLine>,
}

/// The kinds of refusals with their counts.
#[derive(Clone, Debug)]
pub(super) struct RefusalLog {
    recorded: Arc<Mutex<RefusalTable>>,
    is_observed: bool,
}

impl Default for RefusalLog {
    fn default() -> Self {
        let recorded = RefusalTable {
            kinds: LruCache::new(MAX_KINDS),
            lines: HashMap::new(),
        };
        Self {
            recorded: Arc::new(Mutex::new(recorded)),
            is_observed: false,
        }
    }
}

impl RefusalLog {
    /// A handle to the same log for shapes in observe mode.
    pub(super) fn observed(&self) -> Self {
        Self {
            recorded: Arc::clone(&self.recorded),
            is_observed: true,
        }
    }

    /// Counts and logs a refusal. Each namespace, command and reason has one line a minute at level info,
    /// because an application may repeat a command endlessly. The other lines have level debug.
    pub(super) fn add(&self, refusal: &Refusal<'_>) {
        let what: String = refusal.what.chars().take(MAX_CHARACTERS).collect();
        let suppressed = self.count(refusal, &what, Instant::now());
        let (namespace, command, reason) = (refusal.namespace, refusal.command.name(), refusal.reason.label());
        let instead = refusal.reason.remedy();
        match (suppressed, self.is_observed) {
            (Some(suppressed), false) => {
                tracing::info!(
                    namespace,
                    command,
                    reason,
                    ?what,
                    instead,
                    suppressed,
                    "refused a command"
                );
            }
            (Some(suppressed), true) => {
                tracing::info!(
                    namespace,
                    command,
                    reason,
                    ?what,
                    instead,
                    suppressed,
                    "observed: would be refused"
                );
            }
            (None, false) => tracing::debug!(namespace, command, reason, ?what, "refused a command"),
            (None, true) => tracing::debug!(namespace, command, reason, ?what, "observed: would be refused"),
        }
    }

    /// Counts a refusal. Returns the number of refusals since the last line if a line is due.
    fn count(&self, refusal: &Refusal<'_>, what: &str, now: Instant) -> Option<u64> {
        let class = RefusalClass {
            namespace: refusal.namespace.to_owned(),
            command: refusal.command,
            reason: refusal.reason,
            is_observed: self.is_observed,
        };
        let kind = RefusalKind {
            class: class.clone(),
            what: what.to_owned(),
        };
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        *recorded.kinds.get_or_insert_mut(kind, || 0) += 1;
        match recorded.lines.get_mut(&class) {
            Some(last) if now.saturating_duration_since(last.at) < LOG_INTERVAL => {
                last.suppressed += 1;
                None
            }
            last => {
                let suppressed = last.map_or(0, |last| last.suppressed);
                recorded.lines.insert(class, LastLine { at: now, suppressed: 0 });
                Some(suppressed)
            }
        }
    }

    /// All kinds with their counts, the most recent first.
    pub(super) fn kinds(&self) -> Vec<(RefusalKind, u64)> {
        let recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds = recorded.kinds.iter();
        kinds.map(|(kind, count)| (kind.clone(), *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(what: &str) -> Refusal<'_> {
        Refusal {
            namespace: "d.c",
            command: Command::Find,
            reason: RefusalReason::Read,
            what,
        }
    }

    #[test]
    fn kinds_are_counted_and_bounded() {
        let log = RefusalLog::default();
        log.add(&refusal("x"));
        log.add(&refusal("x"));
        log.observed().add(&refusal("x"));
        let counts: Vec<u64> = log.kinds().iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [1, 2]);
        for number in 0..2 * MAX_KINDS.get() {
            log.add(&refusal(&number.to_string()));
        }
        assert_eq!(log.kinds().len(), MAX_KINDS.get());
        log.add(&refusal(&"x".repeat(2 * MAX_CHARACTERS)));
        assert_eq!(log.kinds()[0].0.what.len(), MAX_CHARACTERS);
    }

    #[test]
    fn a_minute_has_one_line_for_each_namespace_command_and_reason() {
        let log = RefusalLog::default();
        let begin = Instant::now();
        let count =
            |refusal: &Refusal<'_>, seconds| log.count(refusal, refusal.what, begin + Duration::from_secs(seconds));
        assert_eq!(count(&refusal("x"), 0), Some(0));
        assert_eq!(count(&refusal("x"), 1), None);
        assert_eq!(count(&refusal("y"), 59), None);
        assert_eq!(count(&refusal("y"), 60), Some(2));
        assert_eq!(count(&refusal("x"), 119), None);
        assert_eq!(count(&refusal("x"), 300), Some(1));
        let others = [
            Refusal {
                namespace: "d.d",
                ..refusal("x")
            },
            Refusal {
                command: Command::Count,
                ..refusal("x")
            },
            Refusal {
                reason: RefusalReason::Misfit,
                ..refusal("x")
            },
        ];
        for other in others {
            assert_eq!(count(&other, 300), Some(0));
            assert_eq!(count(&other, 301), None);
        }
        let observed = log.observed();
        assert_eq!(
            observed.count(&refusal("x"), "x", begin + Duration::from_secs(301)),
            Some(0)
        );
    }
}
