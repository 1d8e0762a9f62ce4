//! How statements reach a shard of a sharded collection.
//!
//! A statement that upserts, every `findAndModify`, and every other statement that changes one document, has the
//! key of its page (`pattern::bucket::targeting`).
//!
//! An application can shard a collection at any moment, which leaves its UUID as it is. So reads never depend on
//! whether it is sharded, and a write that a mongos refuses for that reason is executed again.

mod statement_targets;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

pub(super) use self::statement_targets::{StatementById, StatementTargets, find_targets};
use super::command::BucketCommand;
use super::retry_on_swap::{CommandReply, write_errors};
use super::upstream_query::documents;
use super::write_statement::{WriteResult, parse_retry_record, retry_record_query};
use crate::command::document::{array_of, get, put, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::reply::succeeded;
use crate::pattern::bucket::insert::{ids_query, no_statement};
use crate::pattern::bucket::item_index::is_simple;
use crate::pattern::bucket::predicate_pushdown::BucketPredicate;
use crate::pattern::bucket::targeting;
use crate::pattern::shapes::BucketShape;
use crate::pattern::unwound;
use crate::session::error::RunError;
use crate::session::metrics::RefusalReason;
use crate::session::upstream_connection::UpstreamRequest;

/// The errors of a mongos for a statement that does not lead to one shard.
const NO_SHARD_KEY: [ErrorCode; 2] = [ErrorCode::ShardKeyNotFound, ErrorCode::InvalidOptions];

/// The shard of a client's statement that writes at most one item.
#[derive(Clone, Debug)]
pub(super) struct Target {
    key: RawDocumentBuf,
    missing: RawDocumentBuf,
}

impl Target {
    /// The shard of an item or page with this `key`, for a client's filter.
    pub(super) fn of(shape: &BucketShape, key: RawDocumentBuf, filter: &BucketPredicate) -> Self {
        let mut missing = RawDocumentBuf::new();
        for (position, field) in shape.key().iter().enumerate() {
            if let Some(condition) = get(&key, field).filter(|_| !filter.demands_key_field(position)) {
                put(&mut missing, field, condition);
            }
        }
        Self { key, missing }
    }

    /// The conditions on the key fields that send a statement to the shard.
    pub(super) fn key(&self) -> &RawDocument {
        &self.key
    }

    /// Those that the client's filter lacks. A mongos finds no shard key in a query that has a condition twice.
    pub(super) fn missing(&self) -> &RawDocument {
        &self.missing
    }

    /// Whether an item is on the shard for certain: it has the key.
    pub(super) fn has(&self, shape: &BucketShape, item: &RawDocument) -> bool {
        key_condition(shape, item).as_ref() == Some(&self.key)
    }
}

/// The refusal of a statement that cannot be sent to one shard.
const NO_KEY: &str = "a write of one item of a sharded collection whose filter does not name the item's key";

fn lacks_shard_key(answer: &CommandReply) -> bool {
    match answer {
        Ok(reply) => write_errors(reply).any(|(_, error)| NO_SHARD_KEY.iter().any(|code| error.code == code.number())),
        Err(RunError::Command(error)) => NO_SHARD_KEY.iter().any(|code| error.is(*code)),
        Err(_) => false,
    }
}

impl BucketCommand<'_> {
    /// Learns that the collection has been sharded since it was checked, if a mongos has refused a statement that
    /// does not name the key. Returns whether it has been.
    pub(super) async fn learn_of_shards(&mut self, answer: &CommandReply) -> Result<bool, RunError> {
        if !self.is_behind_mongos() || self.is_sharded() || !lacks_shard_key(answer) {
            return Ok(false);
        }
        let settings = self.context.settings;
        settings.catalog.forget(self.namespace);
        if self.context.head.in_transaction() {
            return Ok(false);
        }
        self.collection = settings.catalog.for_reading(&mut self.catalog_session()).await?;
        Ok(self.is_sharded())
    }

    /// Whether the collection was sharded when it was checked.
    pub(super) fn is_sharded(&self) -> bool {
        self.collection.as_ref().is_some_and(|collection| collection.is_sharded)
    }

    /// Sets the target of the statements that belong to a client's statement with this filter, which writes at most
    /// one item. Under a collation, several keys can match.
    pub(super) fn set_target(
        &mut self,
        filter: Option<&RawDocument>,
        collation: Option<&RawDocument>,
    ) -> Result<(), CommandError> {
        self.target = None;
        if !self.is_sharded() {
            return Ok(());
        }
        let narrowing = BucketPredicate::of(self.shape, filter);
        match narrowing.one_key().filter(|_| is_simple_collation(collation)) {
            Some(key) => self.target = Some(Target::of(self.shape, key, &narrowing)),
            None => return Err(self.refuse(RefusalReason::Cluster, NO_KEY)),
        }
        Ok(())
    }

    /// Like [`set_target`](Self::set_target), for an `update` or a `delete`. Without the key, but with an `_id`, the
    /// target is the shard of the item with this `_id`, as of a mongos that sends the statement to all shards.
    /// `statement_id`: the `stmtId` if the command is retryable.
    ///
    /// Returns the retry record of an earlier attempt. Its item may be deleted by now, and then only the records of
    /// all shards show that the statement was executed. Costs one round trip if the filter does not name the key.
    pub(super) async fn find_target(
        &mut self,
        filter: &RawDocument,
        collation: Option<&RawDocument>,
        statement_id: Option<i32>,
    ) -> Result<Option<WriteResult>, RunError> {
        if !self.is_sharded() {
            self.target = None;
            return Ok(None);
        }
        let narrowing = BucketPredicate::of(self.shape, Some(filter));
        let is_indexed = self.shape.item_ids().are_indexed();
        let id = narrowing
            .one_id()
            .filter(|_| is_indexed && is_simple_collation(collation));
        let Some(id) = id.filter(|_| narrowing.one_key().is_none()) else {
            self.set_target(Some(filter), collation)?;
            return Ok(None);
        };
        self.target = None;
        let mut find = single("find", self.namespace.collection);
        ids_query(self.shape, std::iter::once(id), &mut find);
        self.context.inherited().append_to_selection(&mut find);
        let mut commands = vec![find];
        commands.extend(statement_id.map(|id| retry_record_query(self, id, targeting::no_statement_on_any_shard())));
        let requests: Vec<UpstreamRequest<'_>> =
            commands.iter().map(|command| UpstreamRequest::plain(command)).collect();
        let mut answers = self.context.link.call_all(&requests).await?.into_iter();
        let (found, recorded) = (answers.next(), answers.next());
        if let Some((id, answer)) = statement_id.zip(recorded)
            && let Some(record) = parse_retry_record(self, id, answer)?
        {
            return Ok(Some(record));
        }
        let found = succeeded(found.ok_or_else(|| self.corrupt_bucket_error())?)?;
        self.target = Some(Target::of(self.shape, self.key_of_pages(&found)?, &narrowing));
        Ok(None)
    }

    /// The conditions on the key fields that all pages satisfy which a query has found. Without a page: those of any
    /// shard.
    fn key_of_pages(&self, answer: &RawDocument) -> Result<RawDocumentBuf, CommandError> {
        let mut keys: Vec<RawDocumentBuf> = Vec::new();
        for page in documents(answer) {
            let key = key_condition(self.shape, page).ok_or_else(|| self.refuse(RefusalReason::Cluster, NO_KEY))?;
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        if keys.len() > 1 {
            let what = "a write of one item of a sharded collection by an `_id` that items of several keys have";
            return Err(self.refuse(RefusalReason::Cluster, what));
        }
        Ok(keys.pop().unwrap_or_else(|| key_of_any_shard(self.shape)))
    }

    /// The statement as it is sent. `key` returns the condition on the key fields that the page of the statement
    /// satisfies.
    pub(super) fn targeted(&self, statement: RawDocumentBuf, key: impl FnOnce() -> RawDocumentBuf) -> RawDocumentBuf {
        if self.is_sharded() {
            targeting::with_key(&statement, &key())
        } else {
            statement
        }
    }

    /// A statement with the client's filter, as it is sent.
    pub(super) fn at_target(&self, statement: RawDocumentBuf) -> RawDocumentBuf {
        match &self.target {
            Some(target) => targeting::with_key(&statement, &target.missing),
            None => statement,
        }
    }

    /// The client's filter, and a condition that matches nothing, for the shard of the client's statement.
    pub(super) fn without_match(&self, filter: Option<&RawDocument>) -> RawDocumentBuf {
        let Some(target) = &self.target else {
            return unwound::without_match(filter);
        };
        // A mongos finds no shard key in a constant query, nor in one that names it twice.
        let mut clauses = vec![single("_id", targeting::nothing())];
        clauses.extend(filter.map(RawDocument::to_owned));
        clauses.push(target.missing.clone());
        single("$and", array_of(&clauses))
    }

    /// An element of `updates` that changes nothing, for the shard of the client's statement.
    pub(super) fn no_statement(&self) -> RawDocumentBuf {
        match &self.target {
            Some(target) => targeting::no_statement(&target.key),
            None => no_statement(),
        }
    }
}

fn is_simple_collation(collation: Option<&RawDocument>) -> bool {
    collation.is_none_or(|collation| is_simple(RawBsonRef::Document(collation)))
}

/// The conditions on the key fields for a statement that has no item: any shard can validate it.
pub(super) fn key_of_any_shard(shape: &BucketShape) -> RawDocumentBuf {
    key_condition(shape, &RawDocumentBuf::new()).unwrap_or_default()
}

/// The conditions on the key fields that an item or page satisfies, in the form of [`Target::key`].
pub(super) fn key_condition(shape: &BucketShape, document: &RawDocument) -> Option<RawDocumentBuf> {
    let mut key = RawDocumentBuf::new();
    for field in shape.key() {
        let value = get(document, field).unwrap_or(RawBsonRef::Null);
        put(&mut key, field, single("$eq", value));
    }
    BucketPredicate::of(shape, Some(&key)).one_key()
}
