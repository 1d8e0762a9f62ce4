//! Refused commands. Each refusal is counted, logged and returned as one kind of error.

use std::fmt::Display;

use super::metrics::{RefusalReason, SessionMetrics};
use crate::command::error::CommandError;
use crate::command::namespace::Namespace;
use crate::pattern::pipeline::PipelineRefusal;

/// A shaped collection as errors and metrics name it.
pub(super) struct RefusedCollection<'a> {
    /// The namespace that the command names.
    pub(super) namespace: Namespace<'a>,
    /// The namespace as configured.
    pub(super) configured: &'a dyn Display,
    pub(super) pattern: &'a str,
}

impl RefusedCollection<'_> {
    /// The error for a command or option that the pattern does not support.
    pub(super) fn refuse(&self, metrics: &SessionMetrics, reason: RefusalReason, what: &str) -> CommandError {
        metrics.rejected(&self.configured.to_string(), reason, what);
        CommandError::unsupported(self.namespace, self.pattern, what)
    }
}

/// The error for a stage that is not supported on a collection that its pipeline references.
pub(super) fn refuse_stage(metrics: &SessionMetrics, refused: &PipelineRefusal) -> CommandError {
    let collection = RefusedCollection {
        namespace: Namespace::new(&refused.database, &refused.collection),
        configured: &refused.configured,
        pattern: refused.pattern,
    };
    collection.refuse(metrics, RefusalReason::Mention, &refused.what)
}
