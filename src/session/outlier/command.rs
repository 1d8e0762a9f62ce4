//! A client's command on an outlier collection.

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Binary, Timestamp};

use super::deferred_spill::DeferredSpills;
use super::merged_read::missing_extras;
use crate::command::error::{CommandError, ErrorCode};
use crate::command::namespace::Namespace;
use crate::pattern::outlier::classify::UpdateEffect;
use crate::pattern::outlier::layout::repeats_array;
use crate::pattern::shapes::OutlierShape;
use crate::session::command_context::CommandContext;
use crate::session::error::RunError;
use crate::session::memory::Reservation;
use crate::session::metrics::{RefusalReason, Strategy};
use crate::session::refusal::RefusedCollection;

pub(in crate::session) struct OutlierCommand<'a> {
    pub(in crate::session) context: CommandContext<'a>,
    pub(in crate::session) shape: &'a OutlierShape,
    pub(in crate::session) namespace: Namespace<'a>,
    /// mongod's reply to the client's own read command if it contains outliers.
    pub(in crate::session) held: Option<RawDocumentBuf>,
    /// Memory reserved for the reply until it is sent.
    pub(in crate::session) reply_memory: &'a mut Reservation,
    /// The deferred spills of the client's connection.
    pub(in crate::session) tails: &'a mut DeferredSpills,
    pub(in crate::session) facts: CommandState,
}

/// The state of a command's collection and of its read so far.
#[derive(Debug, Default)]
pub(in crate::session) struct CommandState {
    /// The `atClusterTime` of the snapshot from which base documents were read, if any.
    pub(super) snapshot_time: Option<Timestamp>,
    /// The time at which a cursor of `_id`s missed pages, or before it would do so. The next cursor reads at
    /// one cluster time, this one or later.
    pub(super) missed_at: Option<Timestamp>,
    /// The collection's UUID, set after its collation was checked.
    pub(super) collection: Option<Binary>,
}

impl OutlierCommand<'_> {
    /// Returns the error for an operation that the shape does not support, and counts the refusal.
    pub(super) fn unsupported(&self, what: &str) -> CommandError {
        self.refuse(RefusalReason::of(self.context.head), what)
    }

    /// Refuses an update that the pattern does not support.
    pub(super) fn check_change(&self, change: UpdateEffect) -> Result<(), CommandError> {
        match change {
            UpdateEffect::TouchesReserved => {
                Err(self.unsupported(&format!("an update of `{}` or its control field", self.shape.flag())))
            }
            UpdateEffect::RepeatsArray => Err(self.repeated_array()),
            UpdateEffect::LeavesArray | UpdateEffect::TouchesArray(_) => Ok(()),
        }
    }

    /// Refuses a document that has the array's field more than once.
    pub(super) fn check_array(&self, document: &RawDocument) -> Result<(), CommandError> {
        if repeats_array(self.shape, document) {
            return Err(self.repeated_array());
        }
        Ok(())
    }

    fn repeated_array(&self) -> CommandError {
        self.unsupported(&format!("a document with more than one field `{}`", self.shape.array()))
    }

    pub(super) fn refuse(&self, reason: RefusalReason, what: &str) -> CommandError {
        let collection = RefusedCollection {
            namespace: self.namespace,
            configured: self.shape.namespace(),
            pattern: OutlierShape::PATTERN,
        };
        collection.refuse(self.context.refusals(), reason, what)
    }

    /// Counts a read, and records its access path in the trace.
    pub(super) fn record_read(&mut self, strategy: Strategy) {
        self.context.record_read(self.shape.namespace(), strategy);
    }

    /// The namespace as a metrics label: as configured, which bounds the number of labels.
    pub(super) fn label(&self) -> String {
        self.shape.namespace().to_string()
    }

    /// Returns the error for a document whose extras cannot be read, and counts it.
    pub(super) fn misfit(&self) -> CommandError {
        self.context.refusals().misfit(self.shape.namespace());
        let message = format!(
            "mongoshape is configured to store {} in the outlier pattern, but it contains a document whose extras are not of layout \
             version 1: run `mongoshape check`, which names the document",
            self.namespace
        );
        CommandError::new(ErrorCode::InvalidOptions, message)
    }

    /// Returns the error for documents whose extras do not exist, and counts it.
    pub(super) fn missing_extras(&self) -> CommandError {
        self.context.refusals().misfit(self.shape.namespace());
        missing_extras(&format!("a document of {}", self.namespace))
    }

    /// Ignores a failed clean-up after a change: the change is done, and a later command can clean
    /// up. In a transaction the failure has aborted the change, so it is returned.
    pub(super) fn left_to_others(&self, done: Result<(), RunError>) -> Result<(), RunError> {
        match done {
            Err(RunError::Command(_)) if !self.context.head.in_transaction() => Ok(()),
            done => done,
        }
    }

    /// The error after [`MAX_ATTEMPTS`](crate::session::backoff::MAX_ATTEMPTS) lost races for a document.
    pub(super) fn lost_too_often(&self) -> CommandError {
        let message =
            "write conflict: a document was changed by other writers before each attempt; it is unchanged: try again";
        let error = CommandError::new(ErrorCode::WriteConflict, message);
        if self.context.head.in_transaction() {
            error.transient()
        } else {
            error
        }
    }
}
