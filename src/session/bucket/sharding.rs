//! How statements reach a shard of a sharded collection.
//!
//! A statement that upserts, every `findAndModify`, and every other statement that changes one document, has the
//! key of its page (`pattern::bucket::targeting`).
//!
//! An application can shard a collection at any moment, which leaves its UUID as it is. So reads never depend on
//! whether it is sharded, and a write that a mongos refuses for that reason is executed again.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::command::BucketCommand;
use super::retry_on_swap::{CommandReply, write_errors};
use crate::command::error::{CommandError, ErrorCode};
use crate::pattern::bucket::insert::no_statement;
use crate::pattern::bucket::item_index::is_simple;
use crate::pattern::bucket::predicate_pushdown::BucketPredicate;
use crate::pattern::bucket::targeting;
use crate::session::error::RunError;
use crate::session::metrics::RefusalReason;

/// The errors of a mongos for a statement that does not lead to one shard.
const NO_SHARD_KEY: [ErrorCode; 2] = [ErrorCode::ShardKeyNotFound, ErrorCode::InvalidOptions];

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
        if collation.is_none_or(|collation| is_simple(RawBsonRef::Document(collation))) {
            self.target = BucketPredicate::of(self.shape, filter).one_key();
        }
        if self.target.is_some() {
            return Ok(());
        }
        let what = "a write of one item of a sharded collection whose filter does not name the item's key";
        Err(self.refuse(RefusalReason::Cluster, what))
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

    /// An element of `updates` that changes nothing, for the shard of the client's statement.
    pub(super) fn no_statement(&self) -> RawDocumentBuf {
        match &self.target {
            Some(key) => targeting::no_statement(key),
            None => no_statement(),
        }
    }
}
