//! Refused commands. Each refusal is counted, logged and returned as one kind of error.

use std::fmt::Display;

use super::metrics::{Refusal, RefusalReason, SessionMetrics};
use crate::command::error::CommandError;
use crate::command::namespace::Namespace;
use crate::command::registry::Command;
use crate::pattern::pipeline::PipelineRefusal;

/// Counts and logs the refusals of one client command.
#[derive(Clone, Copy)]
pub(super) struct RefusalRecorder<'a> {
    pub(super) metrics: &'a SessionMetrics,
    /// The client's command.
    pub(super) command: Command,
}

impl RefusalRecorder<'_> {
    /// `namespace`: as configured. `what`: a description without values of documents.
    pub(super) fn record(self, namespace: &dyn Display, reason: RefusalReason, what: &str) {
        self.metrics.rejected(&Refusal {
            namespace: &namespace.to_string(),
            command: self.command,
            reason,
            what,
        });
    }

    /// Records the refusal of a collection whose documents do not fit its shape.
    pub(super) fn misfit(self, namespace: &dyn Display) {
        // The log must not contain the `_id` of the document.
        self.record(
            namespace,
            RefusalReason::Misfit,
            "the stored documents do not fit the shape",
        );
    }
}

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
    pub(super) fn refuse(&self, recorder: RefusalRecorder<'_>, reason: RefusalReason, what: &str) -> CommandError {
        recorder.record(self.configured, reason, what);
        CommandError::unsupported(self.namespace, self.pattern, what)
    }
}

/// The error for a stage that is not supported on a collection that its pipeline references.
pub(super) fn refuse_stage(recorder: RefusalRecorder<'_>, refused: &PipelineRefusal) -> CommandError {
    let collection = RefusedCollection {
        namespace: Namespace::new(&refused.database, &refused.collection),
        configured: &refused.configured,
        pattern: refused.pattern,
    };
    collection.refuse(recorder, RefusalReason::Mention, &refused.what)
}
