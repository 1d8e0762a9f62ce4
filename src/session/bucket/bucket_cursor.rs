//! A cursor of items between two batches.
//!
//! mongod keeps the collection, the read concern and the read preference of an open cursor. A query with a
//! limit leaves no cursor open, so the next batch needs another query. That query repeats them from the
//! command that opened the cursor: drivers do not send them with a `getMore`.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::command::BucketCommand;
use super::find::item_cursor::{BatchRequest, BatchStatus, ItemCursor};
use crate::command::arguments::with_replaced;
use crate::command::batch::ReplyBatch;
use crate::command::document::{append_fields, get, put};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::header::CommandHeader;
use crate::command::namespace::Namespace;
use crate::pattern::shapes::BucketShape;
use crate::session::collection_catalog::ReadyCollection;
use crate::session::error::RunError;

/// The options of the opening command that later queries repeat.
const REPEATED: [&str; 2] = ["readConcern", "$readPreference"];

/// The items, and what later queries repeat from the command that opened the cursor.
#[derive(Debug)]
pub(in crate::session) struct BucketCursor {
    pub(super) items: Box<ItemCursor>,
    /// The shape when the cursor was opened. The configuration may have changed since.
    shape: BucketShape,
    collection: Option<ReadyCollection>,
    /// The server's [term](crate::session::upstream::Upstream::term).
    term: u64,
    /// Those of [`REPEATED`] that the command had.
    options: RawDocumentBuf,
    /// Whether commands of the cursor leave out `apiStrict`, so that a query can name the UUID. mongod has
    /// validated the opening command. It stays so, because a `getMore` must repeat the API parameters of its
    /// cursor.
    is_without_strict: bool,
}

impl BucketCursor {
    /// The cursor that the command opens.
    pub(super) fn new(items: Box<ItemCursor>, run: &BucketCommand<'_>) -> Self {
        let mut options = RawDocumentBuf::new();
        for name in REPEATED {
            if let Some(value) = get(run.context.head.body(), name) {
                put(&mut options, name, value);
            }
        }
        Self {
            items,
            shape: run.shape.clone(),
            collection: run.collection.clone(),
            term: run.context.term,
            options,
            is_without_strict: false,
        }
    }

    /// Whether the server was the primary without interruption since the cursor was opened. mongod's own
    /// cursors end with their server, and writes that the cursor has read may have been rolled back.
    pub(super) fn is_of_term(&self, term: u64) -> bool {
        self.term == term
    }

    /// Bytes in memory that depend on the client.
    pub(super) fn weight(&self) -> usize {
        self.items.weight().saturating_add(self.options.as_bytes().len())
    }

    /// Fills one batch for a `getMore`.
    ///
    /// # Errors
    /// `QueryPlanKilled` if the collection was dropped, renamed or replaced, as mongod ends its cursors then.
    pub(super) async fn fill(
        &mut self,
        run: &mut BucketCommand<'_>,
        wanted: BatchRequest,
    ) -> Result<(ReplyBatch, BatchStatus), RunError> {
        if self.items.upstream_id().is_none() {
            self.is_without_strict = true;
        }
        let body = self.internal_body(run.context.head.body());
        let head = CommandHeader::of_body(&body)?;
        let namespace = run.namespace;
        let mut command = run.for_internal_command(&head, false);
        command.shape = &self.shape;
        command.collection.clone_from(&self.collection);
        let filled = self.items.fill(&mut command, &self.shape, wanted, None).await;
        let ended = |error| in_terms_of_cursor(namespace, error);
        filled.map_err(|error| error.map_command(ended))
    }

    /// The body of a `getMore` with the options of the opening command.
    fn internal_body(&self, more: &RawDocument) -> RawDocumentBuf {
        let strict = self.is_without_strict.then_some("apiStrict");
        let names = REPEATED.into_iter().chain(strict);
        let left_out: Vec<(&str, Option<RawBsonRef<'_>>)> = names.map(|name| (name, None)).collect();
        let mut body = with_replaced(more, &left_out);
        append_fields(&mut body, &self.options);
        body
    }
}

/// The error of a cursor for that of a query.
pub(super) fn in_terms_of_cursor(namespace: Namespace<'_>, error: CommandError) -> CommandError {
    if !error.is(ErrorCode::CollectionUuidMismatch) {
        return error;
    }
    let message = format!("collection {namespace} was dropped, renamed or replaced after the cursor was opened");
    CommandError::new(ErrorCode::QueryPlanKilled, message)
}
