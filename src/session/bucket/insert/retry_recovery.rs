//! Finds the items that an earlier attempt at the same command stored.

use std::collections::{HashMap, HashSet};

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::batch::{InsertBatch, Placed};
use super::dispatch::key_of;
use super::prefetch::{Suspects, refuse};
use crate::command::document::{as_whole_number, get};
use crate::command::reply::succeeded;
use crate::pattern::bucket::insert::{MAX_STATEMENTS, Recorded, no_statement, record_query};
use crate::pattern::bucket::targeting;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::internal_transaction::{OwnTransaction, unlabelled};
use crate::session::bucket::write_statement::retried_ids;
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

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

/// A statement that an earlier attempt may have sent, and the position of its first item.
struct SuspectStatement {
    group: usize,
    position: usize,
    id: i32,
}

async fn recover_groups(run: &mut BucketCommand<'_>, batch: &mut InsertBatch<'_>) -> Result<(), RunError> {
    let groups = batch.groups.iter().enumerate();
    let resent: Vec<usize> = groups
        .filter(|(_, group)| group.is_resent())
        .map(|(number, _)| number)
        .collect();
    if resent.is_empty() {
        return Ok(());
    }
    let statements: Vec<SuspectStatement> = resent
        .iter()
        .filter_map(|group| Some((*group, batch.groups.get(*group)?)))
        .flat_map(|(group, of_key)| {
            let ids = of_key.statement_ids();
            ids.map(move |(position, id)| SuspectStatement { group, position, id })
        })
        .collect();
    let sought = statements.iter().map(|statement| SoughtRecord {
        id: statement.id,
        nothing: no_statement_of(run, batch, statement.group),
    });
    let sought: Vec<SoughtRecord> = sought.collect();
    let executed = remembered(run, &sought, None).await?;
    let mut recorded: HashMap<usize, Vec<(usize, Recorded)>> = HashMap::new();
    for statement in &statements {
        if let Some(what) = executed.get(&statement.id) {
            let of_group = recorded.entry(statement.group).or_default();
            of_group.push((statement.position, what.clone()));
        }
    }
    for number in resent {
        let recorded = recorded.remove(&number).unwrap_or_default();
        take_over(run, batch, number, &recorded);
    }
    // Items after a failure were left pending until the retry records were known.
    batch.refuse(Vec::new());
    Ok(())
}

fn take_over(run: &BucketCommand<'_>, batch: &mut InsertBatch<'_>, number: usize, recorded: &[(usize, Recorded)]) {
    let Some(group) = batch.groups.get_mut(number) else {
        return;
    };
    let found = group.recover(run.shape, recorded);
    let indexes = found.iter().filter_map(|position| Some(group.item(*position)?.index()));
    batch.resent.extend(indexes);
    let count = u64::try_from(found.len()).unwrap_or(u64::MAX);
    run.context.shared.metrics.inserts.resent_items.inc_by(count);
    // The earlier attempt may not have waited for its write concern, so this one does.
    if !found.is_empty() {
        batch.concern.owe();
    }
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
