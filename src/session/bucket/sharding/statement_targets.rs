//! The shards of several statements that each write one item by `_id`.

use std::collections::{HashMap, HashSet};

use bson::raw::{RawBson, RawDocument, RawDocumentBuf, cstr};

use super::{Target, key_condition, key_of_any_shard};
use crate::command::document::{length_of, single};
use crate::command::write_batch::lookup_parts;
use crate::pattern::bucket::insert::{ids_of, ids_query, no_statement};
use crate::pattern::bucket::key::value_identity;
use crate::pattern::bucket::predicate_pushdown::BucketPredicate;
use crate::pattern::bucket::targeting;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::insert::{SoughtRecord, remembered};
use crate::session::bucket::upstream_query::{documents, more};
use crate::session::error::RunError;

/// `_id`s in one query.
const MAX_IDS: usize = 1000;
/// Documents in a batch. mongod ends a batch earlier if it reaches the maximum reply size.
const BATCH_SIZE: i32 = 100_000;

/// A statement that writes one item by `_id`.
pub(in crate::session::bucket) struct StatementById<'a> {
    pub(in crate::session::bucket) filter: &'a RawDocument,
    /// The `_id` that the filter demands.
    pub(in crate::session::bucket) id: &'a RawBson,
    pub(in crate::session::bucket) statement_id: i32,
}

/// The shards of the statements, by their positions. Empty if the collection is not sharded.
#[derive(Default)]
pub(in crate::session::bucket) struct StatementTargets(Vec<StatementTarget>);

enum StatementTarget {
    Shard(Target),
    /// An earlier attempt has executed the statement, on a shard that is not known.
    Executed,
}

impl StatementTargets {
    /// The statement at a position as it is sent.
    pub(in crate::session::bucket) fn targeted(&self, position: usize, statement: RawDocumentBuf) -> RawDocumentBuf {
        match self.0.get(position) {
            None => statement,
            Some(StatementTarget::Shard(target)) => targeting::with_key(&statement, target.missing()),
            Some(StatementTarget::Executed) => targeting::no_statement_on_any_shard(),
        }
    }

    /// An element of `updates` that changes nothing, for the shard of the statement at a position.
    pub(in crate::session::bucket) fn no_statement(&self, position: usize) -> RawDocumentBuf {
        match self.0.get(position) {
            None => no_statement(),
            Some(StatementTarget::Shard(target)) => targeting::no_statement(target.key()),
            Some(StatementTarget::Executed) => targeting::no_statement_on_any_shard(),
        }
    }
}

/// Finds the shards of all statements. `None`: they must be executed one by one, because items of several
/// keys have the `_id` of one. If filters do not name the key, costs a round trip for 1,000 of their `_id`s,
/// and one more for their retry records.
pub(in crate::session::bucket) async fn find_targets(
    run: &mut BucketCommand<'_>,
    statements: impl Iterator<Item = StatementById<'_>>,
) -> Result<Option<StatementTargets>, RunError> {
    if !run.is_sharded() {
        return Ok(Some(StatementTargets::default()));
    }
    let statements: Vec<StatementById<'_>> = statements.collect();
    let filters = statements.iter();
    let filters: Vec<BucketPredicate> = filters
        .map(|statement| BucketPredicate::of(run.shape, Some(statement.filter)))
        .collect();
    let named: Vec<Option<RawDocumentBuf>> = filters.iter().map(BucketPredicate::one_key).collect();
    let unnamed = statements.iter().zip(&named).filter(|(_, key)| key.is_none());
    let unnamed: Vec<&StatementById<'_>> = unnamed.map(|(statement, _)| statement).collect();
    let ids: Vec<&RawBson> = unnamed.iter().map(|statement| statement.id).collect();
    let Some(keys) = keys_of_items(run, &ids).await? else {
        return Ok(None);
    };
    // After the keys: an attempt that is executed in between has its record on the shard of the key.
    let executed = executed_before(run, &unnamed).await?;
    let targets = statements.iter().zip(filters).zip(named);
    let targets = targets.map(|((statement, filter), named)| {
        if executed.contains(&statement.statement_id) {
            return StatementTarget::Executed;
        }
        let found = || keys.get(&value_identity(statement.id.as_raw_bson_ref())).cloned();
        let key = named.or_else(found).unwrap_or_else(|| key_of_any_shard(run.shape));
        StatementTarget::Shard(Target::of(run.shape, key, &filter))
    });
    Ok(Some(StatementTargets(targets.collect())))
}

/// The `stmtId`s of the statements with a retry record. All shards are asked: the item may be deleted by now.
async fn executed_before(
    run: &mut BucketCommand<'_>,
    statements: &[&StatementById<'_>],
) -> Result<HashSet<i32>, RunError> {
    if statements.is_empty() || !run.context.head.is_retryable_write() {
        return Ok(HashSet::new());
    }
    let sought = statements.iter().map(|statement| SoughtRecord {
        id: statement.statement_id,
        nothing: targeting::no_statement_on_any_shard(),
    });
    let sought: Vec<SoughtRecord> = sought.collect();
    Ok(remembered(run, &sought, None).await?.into_keys().collect())
}

/// The conditions on the key fields of the items with these `_id`s, by the [identity](value_identity) of the `_id`.
/// `None`: items of several keys have an `_id`, or a key has no condition.
async fn keys_of_items(
    run: &mut BucketCommand<'_>,
    ids: &[&RawBson],
) -> Result<Option<HashMap<Vec<u8>, RawDocumentBuf>>, RunError> {
    let wanted: HashSet<Vec<u8>> = ids.iter().map(|id| value_identity(id.as_raw_bson_ref())).collect();
    let mut keys: HashMap<Vec<u8>, RawDocumentBuf> = HashMap::new();
    for ids in lookup_parts(ids, MAX_IDS, |id| length_of(id.as_raw_bson_ref())) {
        let mut find = single("find", run.namespace.collection);
        ids_query(run.shape, ids.iter().copied(), &mut find);
        find.append(cstr!("batchSize"), BATCH_SIZE);
        run.context.inherited().append_to_selection(&mut find);
        let mut next = Some(run.context.link.run(&find).await?);
        while let Some(answer) = next.take() {
            for page in documents(&answer) {
                let Some(key) = key_condition(run.shape, page) else {
                    return Ok(None);
                };
                let found = ids_of(run.shape, page).map(value_identity);
                for id in found.filter(|id| wanted.contains(id)) {
                    if keys.insert(id, key.clone()).is_some_and(|other| other != key) {
                        return Ok(None);
                    }
                }
            }
            next = more(run, &answer).await?;
        }
    }
    Ok(Some(keys))
}
