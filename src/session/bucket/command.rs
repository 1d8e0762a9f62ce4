//! A client's command on a bucket collection.

use bson::raw::{RawBson, RawBsonRef, RawDocument};

use super::sharding::Target;
use crate::command::document::{as_whole_number, get};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::header::CommandHeader;
use crate::command::namespace::Namespace;
use crate::pattern::shapes::BucketShape;
use crate::session::collection_catalog::{CatalogSession, ReadyCollection};
use crate::session::command_context::CommandContext;
use crate::session::metrics::{RefusalReason, Strategy};
use crate::session::refusal::RefusedCollection;

pub(in crate::session) struct BucketCommand<'a> {
    pub(super) context: CommandContext<'a>,
    pub(super) shape: &'a BucketShape,
    pub(super) namespace: Namespace<'a>,
    /// The collection that was checked before the read. All queries of one read name its UUID.
    pub(super) collection: Option<ReadyCollection>,
    /// The shard of the client's statement, if the collection is sharded.
    pub(super) target: Option<Target>,
    /// How empty timestamps in inserted documents are treated.
    pub(super) timestamps: EmptyTimestamps,
    /// The `_id` of a page to which an internal `insert` adds no item.
    pub(super) avoided_page: Option<RawBson>,
    /// Number of replies in which mongod reported changed items. If it is above 0, the command must
    /// not be executed a second time.
    pub(in crate::session) executed: u64,
    /// Whether the collection's layout changed after a part of the statements was executed. Then the reply
    /// has an error of a swap for every statement that was not.
    pub(in crate::session) is_interrupted: bool,
}

/// How a `Timestamp(0, 0)` in a top-level field of an inserted document is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EmptyTimestamps {
    /// Replaced by the current time, as mongod does in documents that clients insert.
    Filled,
    /// Kept: the document results from an update, which has handled its timestamps.
    Kept,
}

impl<'a> BucketCommand<'a> {
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
            target: None,
            timestamps: EmptyTimestamps::Filled,
            avoided_page: None,
            executed: 0,
            is_interrupted: false,
        }
    }

    /// Returns a command on the same collection with the head of an internal command. `begun`:
    /// whether the transaction of the internal command has begun.
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
            target: self.target.clone(),
            timestamps: EmptyTimestamps::Kept,
            avoided_page: None,
            executed: 0,
            is_interrupted: false,
        }
    }

    /// Increments `executed` if mongod's reply to a write on the client's items reports at least
    /// one changed item.
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

    /// Returns the error for an operation that the shape does not support, and counts the refusal.
    pub(super) fn unsupported(&self, what: &str) -> CommandError {
        self.refuse(RefusalReason::of(self.context.head), what)
    }

    /// Counts a refusal whose error is not [unsupported](Self::unsupported), and returns the error.
    pub(super) fn refused(&self, error: CommandError) -> CommandError {
        let reason = RefusalReason::of(self.context.head);
        let recorder = self.context.refusals();
        recorder.record(self.shape.namespace(), reason, error.message());
        error
    }

    pub(super) fn refuse(&self, reason: RefusalReason, what: &str) -> CommandError {
        let collection = RefusedCollection {
            namespace: self.namespace,
            configured: self.shape.namespace(),
            pattern: BucketShape::PATTERN,
        };
        collection.refuse(self.context.refusals(), reason, what)
    }

    /// Returns the error for a document that is not a bucket of the shape, and counts it.
    pub(super) fn corrupt_bucket_error(&self) -> CommandError {
        self.context.refusals().misfit(self.shape.namespace());
        let message = format!(
            "mongoshape is configured to store {} in the bucket pattern, but it contains a document that is not a bucket of layout \
             version 1: run `mongoshape check`, which names the document",
            self.namespace
        );
        CommandError::new(ErrorCode::InvalidOptions, message)
    }

    /// Counts a read, and records its access path in the trace.
    pub(super) fn record_read(&mut self, strategy: Strategy) {
        self.context.record_read(self.shape.namespace(), strategy);
    }

    /// The namespace as a metrics label: as configured, which bounds the number of labels.
    pub(super) fn label(&self) -> String {
        self.shape.namespace().to_string()
    }
}
