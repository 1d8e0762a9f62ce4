//! Commands on bucket collections, and what they share. A command asks `pattern::bucket` for a plan, sends
//! its statements, and gives it the replies.

mod aggregate;
mod collection;
mod count;
mod cursor;
mod cursor_source;
mod delete;
mod distinct;
mod explain;
mod find;
mod find_and_delete;
mod find_and_modify;
mod indexes;
mod insert;
mod internal_transaction;
mod item_lookup;
mod item_update;
mod move_item;
mod relocate;
mod retime;
mod retry_on_swap;
mod statistics;
mod update;
mod upsert;
mod upstream_query;
mod write_concern;
mod write_statement;

use bson::Binary;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

pub(super) use self::aggregate::judged as judged_aggregate;
pub(super) use self::cursor_source::CursorSource;
use super::collection_catalog::CatalogSession;
use super::command_context::CommandContext;
use super::error::RunError;
use super::kill_cursors;
use super::metrics::RefusalReason;
use super::refusal::RefusedCollection;
use super::upstream::UpstreamKind;
use crate::command::document::{as_whole_number, get};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::find::check_hint_form;
use crate::command::header::CommandHeader;
use crate::command::namespace::Namespace;
use crate::command::registry::Command;
use crate::pattern::shapes::BucketShape;

/// One command on a shaped collection.
pub(super) struct BucketCommand<'a> {
    context: CommandContext<'a>,
    shape: &'a BucketShape,
    namespace: Namespace<'a>,
    /// The UUID of the collection that was found ready to be read: what a read asks in several queries is all
    /// asked of that.
    collection: Option<Binary>,
    /// What becomes of empty timestamps in documents that are inserted.
    timestamps: EmptyTimestamps,
    /// Commands of which mongod has answered that they changed items: what was executed is not run again.
    executed: u64,
}

/// What becomes of a `Timestamp(0, 0)` at the top of a document that is inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EmptyTimestamps {
    /// The time takes its place, as mongod does it with documents that clients insert.
    Filled,
    /// It stays: the document was made by an update, which has settled it.
    Kept,
}

impl<'a> BucketCommand<'a> {
    /// A client's command on a collection of a shape.
    pub(super) fn new(context: CommandContext<'a>, shape: &'a BucketShape, namespace: Namespace<'a>) -> Self {
        Self {
            context,
            shape,
            namespace,
            collection: None,
            timestamps: EmptyTimestamps::Filled,
            executed: 0,
        }
    }

    /// Runs it and gives the reply. Not cancel safe: the link is of no use after.
    pub(super) async fn run(mut self) -> Result<RawDocumentBuf, RunError> {
        self.context.head.validate()?;
        if self.context.upstream == UpstreamKind::Mongos {
            return Err(self.refuse(RefusalReason::Cluster, "a sharded cluster").into());
        }
        self.context.check_server_is_known()?;
        self.context.check_transaction()?;
        self.context.head.check_options()?;
        retry_on_swap::retry_on_swap(&mut self).await
    }

    async fn dispatch(&mut self) -> Result<RawDocumentBuf, RunError> {
        match self.context.head.command {
            Command::Insert => insert::run(self).await,
            Command::Find => find::run(self).await,
            Command::Delete => delete::run(self).await,
            Command::Update => update::run(self).await,
            Command::FindAndModify => find_and_modify::run(self).await,
            Command::Count => count::run(self).await,
            Command::Distinct => distinct::run(self).await,
            Command::Aggregate => aggregate::run(self).await,
            Command::Explain => explain::run(self).await,
            Command::GetMore => cursor::get_more(self).await,
            Command::KillCursors => kill_cursors::run(&mut self.context).await,
            Command::Create => collection::create(self).await,
            Command::Drop => collection::drop(self).await,
            Command::CollMod => collection::coll_mod(self).await,
            Command::CollStats => statistics::coll_stats(self).await,
            Command::DataSize => statistics::data_size(self).await,
            Command::Validate => statistics::validate(self).await,
            Command::PlanCacheClear => collection::plan_cache_clear(self).await,
            // The same for what is stored.
            Command::Compact => self.context.link.run(self.context.head.body()).await,
            Command::CreateIndexes => indexes::create::run(self).await,
            Command::ListIndexes => indexes::list::run(self).await,
            Command::DropIndexes => indexes::drop::run(self).await,
            _ => Err(self
                .unsupported(&format!("the command {}", self.context.head.name))
                .into()),
        }
    }

    /// The same for a command of the proxy's own in place of the client's, of which `begun` says whether its
    /// transaction has.
    fn for_internal_command<'b>(&'b mut self, head: &'b CommandHeader<'b>, begun: bool) -> BucketCommand<'b> {
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
    fn record_executed(&mut self, answer: &RawDocument) {
        let result = get(answer, "lastErrorObject").and_then(RawBsonRef::as_document);
        let n = get(result.unwrap_or(answer), "n").and_then(as_whole_number);
        if n.is_some_and(|n| n > 0) {
            self.executed = self.executed.saturating_add(1);
        }
    }

    fn catalog_session(&mut self) -> CatalogSession<'_> {
        self.context.catalog_session(self.shape, self.namespace)
    }

    /// Refuses a collection that holds what the shape cannot read.
    ///
    /// A hint is checked against a collection that is there: mongod gives none a thought on one that is not.
    async fn ensure_readable(&mut self, hint: Option<RawBsonRef<'_>>) -> Result<(), RunError> {
        let settings = self.context.settings;
        check_hint_form(hint)?;
        self.collection = settings.readiness.for_reading(&mut self.catalog_session()).await?;
        if self.collection.is_none() {
            return Ok(());
        }
        if let Err(error) = indexes::check_hint(self, hint).await {
            self.context.fail_transaction(self.namespace.collection).await?;
            return Err(error);
        }
        Ok(())
    }

    /// Creates a missing collection before an upsert, as mongod does: an upsert that fails leaves an empty
    /// collection, and its hint is checked.
    async fn ensure_created(&mut self) -> Result<(), RunError> {
        if self.collection.is_none() {
            let settings = self.context.settings;
            let ready = settings.readiness.for_writing(&mut self.catalog_session()).await?;
            self.collection = Some(ready.uuid);
        }
        Ok(())
    }

    /// Creates a collection again that was dropped after it was cached. For an upsert that failed before a
    /// write has met the collection's UUID. Costs one `listCollections`.
    async fn ensure_still_there(&mut self) -> Result<(), RunError> {
        if self.context.head.in_transaction() {
            return Ok(());
        }
        self.context.settings.readiness.forget(self.namespace);
        self.collection = None;
        self.ensure_created().await
    }

    /// The error for what the shape cannot do, counted.
    fn unsupported(&self, what: &str) -> CommandError {
        self.refuse(RefusalReason::of(self.context.head), what)
    }

    fn refuse(&self, reason: RefusalReason, what: &str) -> CommandError {
        let collection = RefusedCollection {
            namespace: self.namespace,
            configured: self.shape.namespace(),
            pattern: BucketShape::PATTERN,
        };
        collection.refuse(&self.context.shared.metrics, reason, what)
    }

    /// The error for a document in the collection that is none of the shape's buckets, counted.
    fn corrupt_bucket_error(&self) -> CommandError {
        self.context.shared.metrics.misfit(&self.label());
        let message = format!(
            "mongoshape is configured to store {} in the bucket pattern, but it holds a document that is no bucket of layout \
             version 1: `mongoshape check` names it",
            self.namespace
        );
        CommandError::new(ErrorCode::InvalidOptions, message)
    }

    /// The namespace as metrics name it: as configured.
    fn label(&self) -> String {
        self.shape.namespace().to_string()
    }
}
