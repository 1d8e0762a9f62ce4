//! Inserts in a client's transaction. No statement may fail by design, because a failure ends the
//! transaction, and every refusal ends it, as in mongod.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf, cstr};

use super::batch::InsertBatch;
use crate::command::document::{get, single};
use crate::command::error::ErrorCode;
use crate::command::reply::{CursorReply, succeeded};
use crate::pattern::bucket::insert::{IdSet, InsertStatement, StatementKind};
use crate::session::bucket::command::BucketCommand;
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

/// Returns the statements after it has planned them again until no new page has an `_id` that
/// exists.
pub(super) async fn with_free_names(
    run: &mut BucketCommand<'_>,
    batch: &mut InsertBatch<'_>,
    mut statements: Vec<InsertStatement>,
) -> Result<Vec<InsertStatement>, RunError> {
    if !batch.in_transaction() {
        return Ok(statements);
    }
    loop {
        let taken = taken_names(run, &statements).await?;
        if taken.is_empty() {
            return Ok(statements);
        }
        for statement in &statements {
            if taken.contains(statement.after.id.as_raw_bson_ref())
                && statement.kind == StatementKind::Page
                && let Some(group) = batch.groups.get_mut(statement.group)
            {
                group.name_is_taken();
            }
        }
        statements = batch.plan(run);
    }
}

async fn taken_names(run: &mut BucketCommand<'_>, statements: &[InsertStatement]) -> Result<IdSet, RunError> {
    let pages = statements
        .iter()
        .filter(|statement| statement.kind == StatementKind::Page);
    let names: RawArrayBuf = pages.map(|page| page.after.id.as_raw_bson_ref()).collect();
    let mut hits = IdSet::default();
    if names.is_empty() {
        return Ok(hits);
    }
    let mut find = single("find", run.namespace.collection);
    find.append(cstr!("filter"), single("_id", single("$in", &names)));
    find.append(cstr!("projection"), single("_id", 1));
    find.append(cstr!("limit"), 1000);
    find.append(cstr!("singleBatch"), true);
    find.append(cstr!("batchSize"), 1000);
    run.context.inherited().append_to_internal_read(&mut find);
    let answer = run.context.link.run(&find).await?;
    let found = CursorReply::parse(&answer);
    for bucket in found.iter().flat_map(CursorReply::documents) {
        if let Some(id) = get(bucket, "_id") {
            hits.add(id);
        }
    }
    Ok(hits)
}

/// Ends the transaction if an item was refused, as a failed insert does in mongod. Sends a query
/// that certainly fails with `BadValue`, because any error ends a transaction. Any other error is
/// returned: it means that there is no transaction to end. After a statement, there is none if the
/// statement failed.
pub(super) async fn end_if_failed(run: &mut BucketCommand<'_>, batch: &InsertBatch<'_>) -> Result<(), RunError> {
    if !batch.in_transaction() || batch.failed.is_empty() {
        return Ok(());
    }
    let mut find: RawDocumentBuf = single("find", run.namespace.collection);
    find.append(cstr!("filter"), single("$mongoshape", RawBsonRef::Null));
    run.context.inherited().append_to_internal_read(&mut find);
    match succeeded(run.context.link.call(UpstreamRequest::plain(&find)).await?) {
        Err(error) if error.is(ErrorCode::NoSuchTransaction) && batch.has_sent() => Ok(()),
        Err(error) if !error.is(ErrorCode::BadValue) => Err(error.into()),
        _ => Ok(()),
    }
}

/// The error of the command after a round failed. A statement that stores several items can fail because of one of
/// them, which is not known. Its error ends the transaction, so no statement can store the items one by one.
pub(super) fn first_error(batch: &mut InsertBatch<'_>, error: RunError) -> RunError {
    let has_ended = matches!(&error, RunError::Command(error) if error.is(ErrorCode::NoSuchTransaction));
    match batch
        .error_of_several
        .take()
        .filter(|_| has_ended && batch.in_transaction())
    {
        Some(first) => first.into_command_error().into(),
        None => error,
    }
}
