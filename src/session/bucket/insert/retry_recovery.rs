//! Finds the items that an earlier attempt at the same command stored.

use std::collections::{BTreeMap, HashMap, HashSet};

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::batch::{InsertBatch, Placed};
use super::dispatch::key_of;
use super::prefetch::{Suspects, refuse};
use crate::command::document::{as_whole_number, get, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::reply::{CursorReply, succeeded};
use crate::pattern::bucket::insert::{KeyBatch, MAX_STATEMENTS, Recorded, no_statement, record_query};
use crate::pattern::bucket::targeting;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::internal_transaction::{OwnTransaction, unlabelled};
use crate::session::bucket::write_statement::retried_ids;
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

/// Queries that are sent together.
const MAX_QUERIES: usize = 1000;

/// Reads mongod's retry records of the suspect groups, and records the items of executed statements as
/// stored. An item whose `_id` or key exists and that none of these statements stored is refused. The order
/// matters: `_id`s and keys are looked up before the retry records.
pub(super) async fn recover(
    run: &mut BucketCommand<'_>,
    batch: &mut InsertBatch<'_>,
    suspects: Suspects,
) -> Result<(), RunError> {
    for suspect in &suspects {
        if let Some(group) = batch.groups.get_mut(suspect.placed.group) {
            group.suspect_resend();
        }
    }
    recover_groups(run, batch).await?;
    let pending: HashSet<Placed> = batch.pending_placed().collect();
    let taken = suspects.into_iter().filter(|suspect| pending.contains(&suspect.placed));
    let taken: Suspects = taken.collect();
    refuse(batch, taken);
    Ok(())
}

async fn recover_groups(run: &mut BucketCommand<'_>, batch: &mut InsertBatch<'_>) -> Result<(), RunError> {
    if !batch.groups.iter().any(KeyBatch::is_resent) {
        return Ok(());
    }
    let collection = run.namespace.collection;
    let executed = executed(run, batch).await?;
    let pushed = pushed(run, batch, &executed, collection).await?;
    take_over(run, batch, &executed, &pushed)?;
    // Items after a failure were left pending until the retry records were known.
    batch.refuse(Vec::new());
    Ok(())
}

/// mongod's retry records for the suspect groups, by group. Each has the position of the statement's first item.
pub(super) type ExecutedStatements = BTreeMap<usize, Vec<(usize, Recorded)>>;

/// A statement that an earlier attempt may have sent, and the position of its first item.
struct SuspectStatement {
    group: usize,
    position: usize,
    id: i32,
}

/// Reads mongod's retry records for the suspect groups.
pub(super) async fn executed(
    run: &mut BucketCommand<'_>,
    batch: &InsertBatch<'_>,
) -> Result<ExecutedStatements, RunError> {
    let resent = batch.groups.iter().enumerate().filter(|(_, group)| group.is_resent());
    let statements = resent.clone().flat_map(|(group, of_key)| {
        let ids = of_key.statement_ids();
        ids.map(move |(position, id)| SuspectStatement { group, position, id })
    });
    let statements: Vec<SuspectStatement> = statements.collect();
    let sought = statements.iter().map(|statement| SoughtRecord {
        id: statement.id,
        nothing: no_statement_of(run, batch, statement.group),
    });
    let sought: Vec<SoughtRecord> = sought.collect();
    let recorded = remembered(run, &sought, None).await?;
    let mut executed: ExecutedStatements = resent.map(|(number, _)| (number, Vec::new())).collect();
    for statement in &statements {
        if let Some(what) = recorded.get(&statement.id) {
            let of_group = executed.entry(statement.group).or_default();
            of_group.push((statement.position, what.clone()));
        }
    }
    Ok(executed)
}

/// The ids of the items in the push records of a `collection`, for the groups that need them. One query for each
/// group. Must be read after mongod's retry records.
pub(super) async fn pushed(
    run: &mut BucketCommand<'_>,
    batch: &InsertBatch<'_>,
    executed: &ExecutedStatements,
    collection: &str,
) -> Result<HashSet<i32>, RunError> {
    let mut pushed = HashSet::new();
    let Some(number) = &batch.retry_number else {
        return Ok(pushed);
    };
    let of_group = |(group, recorded): (&usize, &Vec<(usize, Recorded)>)| {
        let group = batch.groups.get(*group)?;
        let key = group.item(0)?.key();
        group.needs_push_records(recorded).then(|| {
            let mut find = single("find", collection);
            number.append_query(run.shape, key, &mut find);
            run.context.inherited().append_to_read_of_write(&mut find);
            find
        })
    };
    let queries: Vec<RawDocumentBuf> = executed.iter().filter_map(of_group).collect();
    for queries in queries.chunks(MAX_QUERIES) {
        let requests: Vec<UpstreamRequest<'_>> = queries.iter().map(|query| UpstreamRequest::plain(query)).collect();
        for answer in run.context.link.call_all(&requests).await? {
            let answer = succeeded(answer)?;
            let pages = CursorReply::parse(&answer);
            let pages = pages.iter().flat_map(CursorReply::documents);
            pushed.extend(pages.flat_map(|page| number.items_on(page)));
        }
    }
    Ok(pushed)
}

/// Records the items of an earlier attempt as stored.
pub(super) fn take_over(
    run: &BucketCommand<'_>,
    batch: &mut InsertBatch<'_>,
    executed: &ExecutedStatements,
    pushed: &HashSet<i32>,
) -> Result<(), CommandError> {
    for (number, recorded) in executed {
        let Some(group) = batch.groups.get_mut(*number) else {
            continue;
        };
        let found = group.recover(run.shape, recorded, pushed).map_err(|_| unknown_push())?;
        let indexes = found.iter().filter_map(|position| Some(group.item(*position)?.index()));
        batch.resent.extend(indexes);
        let count = u64::try_from(found.len()).unwrap_or(u64::MAX);
        run.context.shared.metrics.inserts.resent_items.inc_by(count);
        // The earlier attempt may not have waited for its write concern, so this one does.
        if !found.is_empty() {
            batch.concern.owe();
        }
    }
    Ok(())
}

fn unknown_push() -> CommandError {
    CommandError::new(
        ErrorCode::IncompleteTransactionHistory,
        "an earlier attempt has stored some of these documents, and it is unknown which: the pages that recorded it are \
         removed; read the documents before you insert them again",
    )
}

/// A statement whose retry record is requested.
#[derive(Clone, Debug)]
pub(in crate::session::bucket) struct SoughtRecord {
    /// Its `stmtId`.
    pub(in crate::session::bucket) id: i32,
    /// An element of `updates` that changes nothing, and that reaches the shard of the statement.
    pub(in crate::session::bucket) nothing: RawDocumentBuf,
}

/// An element of `updates` that changes nothing, for the shard of a group.
pub(super) fn no_statement_of(run: &BucketCommand<'_>, batch: &InsertBatch<'_>, group: usize) -> RawDocumentBuf {
    if run.is_sharded() {
        targeting::no_statement(&key_of(run, batch, group))
    } else {
        no_statement()
    }
}

/// mongod's retry records, by `stmtId`, of the statements that it has executed for this command, or under the
/// internal session `own`.
pub(in crate::session::bucket) async fn remembered(
    run: &mut BucketCommand<'_>,
    sought: &[SoughtRecord],
    own: Option<&OwnTransaction>,
) -> Result<HashMap<i32, Recorded>, RunError> {
    let mut recorded = HashMap::new();
    for chunk in sought.chunks(MAX_STATEMENTS) {
        let ids: Vec<i32> = chunk.iter().map(|sought| sought.id).collect();
        let mut body = record_query(run.namespace.collection, &ids);
        run.context.inherited().without_wait().append_to_write(&mut body);
        if let Some(own) = own {
            body = own.numbered(&body);
        }
        let nothing: Vec<&RawDocument> = chunk.iter().map(|sought| &*sought.nothing).collect();
        let request = UpstreamRequest {
            body: &body,
            sequence: Some(("updates", &nothing)),
        };
        let answer = succeeded(run.context.link.call(request).await?);
        let answer = answer.map_err(|error| if own.is_some() { unlabelled(error) } else { error })?;
        let executed: HashSet<i32> = retried_ids(&answer).collect();
        for (place, id) in ids.iter().enumerate() {
            if executed.contains(id) {
                let what = inserted(&answer, place).map_or(Recorded::Update, Recorded::Insert);
                recorded.insert(*id, what);
            }
        }
    }
    Ok(recorded)
}

/// The `_id` that a statement inserted. `None` if the statement was not an insert.
fn inserted(answer: &RawDocument, place: usize) -> Option<RawBson> {
    let upserted = answer.get_array("upserted").ok()?;
    let mut elements = upserted.into_iter().flatten().filter_map(RawBsonRef::as_document);
    let place = i64::try_from(place).ok()?;
    let of_place = elements.find(|element| get(element, "index").and_then(as_whole_number) == Some(place))?;
    get(of_place, "_id").map(RawBson::from)
}
