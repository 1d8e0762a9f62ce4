//! `createIndexes` in a transaction: only on a collection that the transaction created, or where all indexes
//! exist.

use std::sync::atomic::Ordering;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::{error_of, in_items_terms, is_lost_race, note, there, without_others};
use crate::command::arguments::with_replaced;
use crate::command::document::{array_of, get, put, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::pattern::bucket::index;
use crate::pattern::bucket::item_index::{Conflict, Indexes, conflict};
use crate::session::bucket::command::BucketCommand;
use crate::session::error::RunError;

pub(super) async fn run(
    run: &mut BucketCommand<'_>,
    wanted: &[&RawDocument],
    stored: &[RawDocumentBuf],
) -> Result<RawDocumentBuf, RunError> {
    // Outside the transaction: `listIndexes` is not allowed in one.
    let there = there(run).await?;
    let conflict = there.as_ref().and_then(|there| conflict(there, wanted));
    let made = match &there {
        Some(_) => None,
        None => Some(run.catalog_session().make_in_transaction().await?),
    };
    let mut command = single("createIndexes", run.namespace.collection);
    let specs: Vec<RawDocumentBuf> = match &there {
        Some(there) => stored.iter().map(|spec| there.as_there(spec)).collect(),
        None => stored.to_vec(),
    };
    put(&mut command, "indexes", array_of(&specs));
    for (name, value) in run.context.head.body().iter().flatten().skip(1) {
        let name = name.as_str();
        let is_said =
            run.context.txn_started.load(Ordering::Relaxed) && matches!(name, "startTransaction" | "readConcern");
        if name != "indexes" && !is_said {
            put(&mut command, name, value);
        }
    }
    run.context.txn_started.store(true, Ordering::Relaxed);
    let reply = match run.context.link.run(&command).await {
        Err(RunError::Command(error)) if is_lost_race(&error) => return Err(conflicting(run, conflict).into()),
        Err(error) => return Err(error.map_command(|error| in_items_terms(run, &[], error))),
        Ok(reply) => reply,
    };
    let others = match &there {
        Some(Indexes { others, .. }) => others.len(),
        None => index::specs(run.shape).len(),
    };
    let after = without_others(&reply, "numIndexesAfter", others);
    if let Some(made) = made.filter(|made| get(made, "numIndexesBefore") != get(made, "numIndexesAfter")) {
        return Ok(new(&made, after, wanted));
    }
    let before = without_others(&reply, "numIndexesBefore", others);
    Ok(with_replaced(&reply, &numbers(before, after)))
}

/// The reply if the transaction created the collection. Counts only the client's indexes and that on `_id`.
fn new(made: &RawDocument, after: i32, wanted: &[&RawDocument]) -> RawDocumentBuf {
    let mut reply = RawDocumentBuf::new();
    for (name, value) in with_replaced(made, &numbers(1, after)).iter().flatten() {
        if name == "ok"
            && let Some(note) = note(wanted)
        {
            put(&mut reply, "note", note);
        }
        reply.append(name, value);
    }
    reply
}

fn numbers(before: i32, after: i32) -> [(&'static str, Option<RawBsonRef<'static>>); 2] {
    [("numIndexesBefore", before), ("numIndexesAfter", after)]
        .map(|(name, number)| (name, Some(RawBsonRef::Int32(number))))
}

/// The error for a conflict in the application's terms. mongod's message would have stored field names.
fn conflicting(run: &BucketCommand<'_>, conflict: Option<Conflict>) -> CommandError {
    if let Some(conflict) = conflict {
        return error_of(run, &conflict);
    }
    let message = format!(
        "an index of {} conflicts with an index that the transaction creates",
        run.namespace
    );
    CommandError::new(ErrorCode::IndexOptionsConflict, message)
}
