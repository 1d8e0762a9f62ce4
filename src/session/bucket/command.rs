//! A client's command on a bucket collection.

use bson::Binary;
use bson::raw::{RawBsonRef, RawDocument};

use crate::command::document::{as_whole_number, get};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::header::CommandHeader;
use crate::command::namespace::Namespace;
use crate::pattern::shapes::BucketShape;
use crate::session::collection_catalog::CatalogSession;
use crate::session::command_context::CommandContext;
use crate::session::metrics::RefusalReason;
use crate::session::refusal::RefusedCollection;

/// One command on a shaped collection.
pub(in crate::session) struct BucketCommand<'a> {
    pub(super) context: CommandContext<'a>,
    pub(super) shape: &'a BucketShape,
    pub(super) namespace: Namespace<'a>,
    /// The UUID of the collection that was found ready to be read: what a read asks in several queries is all
    /// asked of that.
    pub(super) collection: Option<Binary>,
    /// What becomes of empty timestamps in documents that are inserted.
    pub(super) timestamps: EmptyTimestamps,
    /// Commands of which mongod has answered that they changed items: what was executed is not run again.
    pub(super) executed: u64,
}

/// What becomes of a `Timestamp(0, 0)` at the top of a document that is inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EmptyTimestamps {
    /// The time takes its place, as mongod does it with documents that clients insert.
    Filled,
    /// It stays: the document was made by an update, which has settled it.
    Kept,
}

impl<'a> BucketCommand<'a> {
    /// A client's command on a collection of a shape.
    pub(in crate::session) fn new(
        context: CommandContext<'a>,
        shape: &'a BucketShape,
        namespace: Namespace<'a>,
    ) -> Self {
        Self {
            context,
            shape,
            namespace,
            collection: None,
            timestamps: EmptyTimestamps::Filled,
            executed: 0,
        }
    }

    /// The same for a command of the proxy's own in place of the client's, of which `begun` says whether its
    /// transaction has.
    pub(super) fn for_internal_command<'b>(
        &'b mut self,
        head: &'b CommandHeader<'b>,
        begun: bool,
    ) -> BucketCommand<'b> {
        BucketCommand {
            context: self.context.for_internal_command(head, begun),
            shape: self.shape,
            namespace: self.namespace,
            collection: self.collection.clone(),
            timestamps: EmptyTimestamps::Kept,
            executed: 0,
        }
    }

    /// Records whether mongod's answer to a write of the client's own items says that it changed any.
    pub(super) fn record_executed(&mut self, answer: &RawDocument) {
        let result = get(answer, "lastErrorObject").and_then(RawBsonRef::as_document);
        let n = get(result.unwrap_or(answer), "n").and_then(as_whole_number);
        if n.is_some_and(|n| n > 0) {
            self.executed = self.executed.saturating_add(1);
        }
    }

    pub(super) fn catalog_session(&mut self) -> CatalogSession<'_> {
        self.context.catalog_session(self.shape, self.namespace)
    }

    /// The error for what the shape cannot do, counted.
    pub(super) fn unsupported(&self, what: &str) -> CommandError {
        self.refuse(RefusalReason::of(self.context.head), what)
    }

    pub(super) fn refuse(&self, reason: RefusalReason, what: &str) -> CommandError {
        let collection = RefusedCollection {
            namespace: self.namespace,
            configured: self.shape.namespace(),
            pattern: BucketShape::PATTERN,
        };
        collection.refuse(&self.context.shared.metrics, reason, what)
    }

    /// The error for a document in the collection that is none of the shape's buckets, counted.
    pub(super) fn corrupt_bucket_error(&self) -> CommandError {
        self.context.shared.metrics.misfit(&self.label());
        let message = format!(
            "mongoshape is configured to store {} in the bucket pattern, but it holds a document that is no bucket of layout \
             version 1: `mongoshape check` names it",
            self.namespace
        );
        CommandError::new(ErrorCode::InvalidOptions, message)
    }

    /// The namespace as metrics name it: as configured.
    pub(super) fn label(&self) -> String {
        self.shape.namespace().to_string()
    }
}
