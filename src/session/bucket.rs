//! Commands on bucket collections, and what they share. A command asks `pattern::bucket` for a plan, sends
//! its statements, and gives it the replies.

mod aggregate;
mod collection;
mod collection_lookup;
mod count;
mod cross_collection;
mod cursor;
mod cursor_source;
mod db_stats;
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
mod list_collections;
mod move_item;
mod referenced_shapes;
mod relocate;
mod rename_collection;
mod retime;
mod retry_on_swap;
mod statistics;
mod update;
mod upsert;
mod upstream_query;
mod write_concern;
mod write_statement;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bson::Binary;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

pub(super) use self::aggregate::judged as judged_aggregate;
pub(super) use self::cross_collection::CrossCollectionCommand;
pub(super) use self::cursor_source::CursorSource;
pub(super) use self::referenced_shapes::{ReferencedShapes, refuse};
use super::collection_catalog::{CatalogSession, Transaction};
use super::error::RunError;
use super::metrics::RefusalReason;
use super::upstream::UpstreamKind;
use super::upstream_connection::UpstreamConnection;
use super::{Settings, Shared};
use crate::command::arguments::InheritedOptions;
use crate::command::document::{as_whole_number, first_field, get};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::find::check_hint_form;
use crate::command::header::CommandHeader;
use crate::command::namespace::Namespace;
use crate::pattern::pipeline::documents;
use crate::pattern::shapes::BucketShape;

/// How often a race may be lost. Each time another writer got on.
const MAX_ATTEMPTS: u32 = 100;
/// The longest pause before another try, in milliseconds.
const MAX_PAUSE_MS: u64 = 50;

/// One command on a shaped collection.
pub(super) struct BucketCommand<'a> {
    pub(super) shared: &'a Shared,
    pub(super) settings: &'a Settings,
    pub(super) link: &'a mut UpstreamConnection,
    pub(super) upstream: UpstreamKind,
    /// The server's [term](super::upstream::Upstream::term).
    pub(super) term: u64,
    pub(super) head: &'a CommandHeader<'a>,
    pub(super) shape: &'a BucketShape,
    pub(super) namespace: Namespace<'a>,
    /// The UUID of the collection that was found ready to be read: what a read asks in several queries is all
    /// asked of that.
    pub(super) collection: Option<Binary>,
    /// Whether a command made from the client's has been sent that began its transaction.
    pub(super) txn_started: AtomicBool,
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
    /// Runs it and gives the reply. Not cancel safe: the link is of no use after.
    pub(super) async fn run(mut self) -> Result<RawDocumentBuf, RunError> {
        self.head.validate()?;
        match self.upstream {
            UpstreamKind::Mongos => {
                self.rejected(RefusalReason::Cluster, "a sharded cluster");
                let what = "a sharded cluster";
                return Err(CommandError::unsupported((self.namespace, BucketShape::PATTERN), what).into());
            }
            UpstreamKind::Unknown => return Err(unknown_upstream(self.head).into()),
            UpstreamKind::Standalone | UpstreamKind::Member => {}
        }
        if self.head.in_transaction() && self.upstream == UpstreamKind::Standalone {
            return Err(no_transaction_numbers().into());
        }
        self.head.check_options()?;
        retry_on_swap::retry_on_swap(&mut self).await
    }

    async fn dispatch(&mut self) -> Result<RawDocumentBuf, RunError> {
        match self.head.name {
            "insert" => insert::run(self).await,
            "find" => find::run(self).await,
            "delete" => delete::run(self).await,
            "update" => update::run(self).await,
            "findAndModify" | "findandmodify" => find_and_modify::run(self).await,
            "count" => count::run(self).await,
            "distinct" => distinct::run(self).await,
            "aggregate" => aggregate::run(self).await,
            "explain" => explain::run(self).await,
            "getMore" => cursor::get_more(self).await,
            "killCursors" => cursor::kill(self.shared, self.link, self.head).await,
            "create" => collection::create(self).await,
            "drop" => collection::drop(self).await,
            "collMod" => collection::coll_mod(self).await,
            "collStats" | "collstats" => statistics::coll_stats(self).await,
            "dataSize" | "datasize" => statistics::data_size(self).await,
            "validate" => statistics::validate(self).await,
            "planCacheClear" => collection::plan_cache_clear(self).await,
            // The same for what is stored.
            "compact" => self.link.run(self.head.body()).await,
            "createIndexes" => indexes::create::run(self).await,
            "listIndexes" => indexes::list::run(self).await,
            "dropIndexes" | "deleteIndexes" => indexes::drop::run(self).await,
            name => Err(self.unsupported(&format!("the command {name}")).into()),
        }
    }

    /// The same for a command of the proxy's own in place of the client's, of which `begun` says whether its
    /// transaction has.
    fn for_internal_command<'b>(&'b mut self, head: &'b CommandHeader<'b>, begun: bool) -> BucketCommand<'b> {
        BucketCommand {
            shared: self.shared,
            settings: self.settings,
            link: self.link,
            upstream: self.upstream,
            term: self.term,
            head,
            shape: self.shape,
            namespace: self.namespace,
            collection: self.collection.clone(),
            txn_started: begun.into(),
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

    /// What the next command made from the client's carries of it.
    fn carried(&self) -> InheritedOptions<'a> {
        InheritedOptions::of(self.head.body()).begun(self.txn_started.swap(true, Ordering::Relaxed))
    }

    fn asker(&mut self) -> CatalogSession<'_> {
        let body = self.head.body();
        let transaction = self.head.in_transaction().then_some(Transaction {
            begun: &self.txn_started,
            makes_none: self.head.begins_with_read_concern(),
        });
        CatalogSession {
            metrics: Some(&self.shared.metrics),
            link: self.link,
            shape: self.shape,
            namespace: self.namespace,
            carried: InheritedOptions::of(body),
            transaction,
        }
    }

    fn reaching(&mut self) -> ReferencedShapes<'a, '_> {
        ReferencedShapes {
            shared: self.shared,
            settings: self.settings,
            link: self.link,
            head: self.head,
        }
    }

    /// Whether the client may send it again. Retryable writes need a replica set: before a standalone, mongod
    /// refuses them in these words.
    fn is_retryable(&self) -> Result<bool, CommandError> {
        let numbered = self.head.is_retryable_write();
        if numbered && self.upstream == UpstreamKind::Standalone {
            return Err(no_transaction_numbers());
        }
        Ok(numbered)
    }

    /// Refuses a collection that holds what the shape cannot read.
    ///
    /// A hint is checked against a collection that is there: mongod gives none a thought on one that is not.
    async fn ensure_readable(&mut self, hint: Option<RawBsonRef<'_>>) -> Result<(), RunError> {
        let settings = self.settings;
        check_hint_form(hint)?;
        self.collection = settings.readiness.for_reading(&mut self.asker()).await?;
        if self.collection.is_none() {
            return Ok(());
        }
        if let Err(error) = indexes::check_hint(self, hint).await {
            item_update::end_running_transaction(self).await?;
            return Err(error);
        }
        Ok(())
    }

    /// Creates a missing collection before an upsert, as mongod does: an upsert that fails leaves an empty
    /// collection, and its hint is checked.
    async fn ensure_created(&mut self) -> Result<(), RunError> {
        if self.collection.is_none() {
            let settings = self.settings;
            let ready = settings.readiness.for_writing(&mut self.asker()).await?;
            self.collection = Some(ready.uuid);
        }
        Ok(())
    }

    /// Creates a collection again that was dropped after it was cached. For an upsert that failed before a
    /// write has met the collection's UUID. Costs one `listCollections`.
    async fn ensure_still_there(&mut self) -> Result<(), RunError> {
        if self.head.in_transaction() {
            return Ok(());
        }
        self.settings.readiness.forget(self.namespace);
        self.collection = None;
        self.ensure_created().await
    }

    /// The error for what the shape cannot do, counted.
    fn unsupported(&self, what: &str) -> CommandError {
        self.rejected(RefusalReason::of(self.head), what);
        CommandError::unsupported((self.namespace, BucketShape::PATTERN), what)
    }

    fn rejected(&self, reason: RefusalReason, what: &str) {
        self.shared.metrics.rejected(&self.label(), reason, what);
    }

    /// The error for a document in the collection that is none of the shape's buckets, counted.
    fn corrupt_bucket_error(&self) -> CommandError {
        self.shared.metrics.misfit(&self.label());
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

/// Whether nobody misses a command's effect when the client is gone before it ended.
pub(super) fn only_reads(head: &CommandHeader<'_>) -> bool {
    match head.name {
        "find" | "count" | "distinct" | "explain" | "getMore" | "listCollections" | "listIndexes" | "collStats"
        | "collstats" | "dataSize" | "datasize" => true,
        "aggregate" => {
            let stages = documents(get(head.body(), "pipeline"));
            let last = stages.as_deref().and_then(|stages| first_field(stages.last()?));
            last.is_none_or(|(name, _)| !matches!(name, "$out" | "$merge"))
        }
        _ => false,
    }
}

/// Nothing is written before it is known to what; drivers try again.
pub(super) fn unknown_upstream(head: &CommandHeader<'_>) -> CommandError {
    let message = "mongoshape does not know yet what kind of server it is connected to";
    let error = CommandError::new(ErrorCode::NotWritablePrimary, message);
    if head.is_retryable_write() {
        error.labelled()
    } else {
        error
    }
}

/// What mongod says of them where it stands alone.
fn no_transaction_numbers() -> CommandError {
    let message = "Transaction numbers are only allowed on a replica set member or mongos";
    CommandError::new(ErrorCode::IllegalOperation, message)
}

/// Waits a little, at random, when races were lost: the more often, the longer.
async fn pause(idle_rounds: u32) {
    if idle_rounds > 2 {
        let most = (1_u64 << idle_rounds.min(10)).min(MAX_PAUSE_MS);
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..=most))).await;
    }
}
