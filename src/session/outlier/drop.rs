//! `drop`: drops the collection, then removes its extras.
//!
//! The collection of extras stays, because another client may have stored pages in it whose base document
//! follows, in the new collection of that name. Pages that a crash leaves are orphans.

use std::time::SystemTime;

use bson::oid::ObjectId;
use bson::raw::{RawDocumentBuf, cstr};

use super::command::OutlierCommand;
use super::internal_write::WriteOrigin;
use crate::command::document::single;
use crate::command::reply::CursorReply;
use crate::pattern::outlier::orphans;
use crate::pattern::unwound;
use crate::session::error::RunError;

/// Generations in one batch: all.
const BATCH_SIZE: u64 = orphans::MAX_YOUNG_PAGES.unsigned_abs();

pub(super) async fn run(run: &mut OutlierCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    if run.context.head.in_transaction() {
        // mongod refuses the command.
        return run.as_it_is().await;
    }
    let now = SystemTime::now();
    let counted = young_counted(run, now).await?;
    let answer = run.as_it_is().await?;
    let removed = remove_extras(run, &counted, now).await;
    run.context.settings.without_collation.forget(run.namespace);
    run.context.settings.outlier_shape_markers.forget(run.namespace);
    run.left_to_others(removed)?;
    Ok(answer)
}

/// The young generations that base documents reference before the drop. None if the client may not read: its
/// young pages stay orphans.
async fn young_counted(run: &mut OutlierCommand<'_>, now: SystemTime) -> Result<Vec<ObjectId>, RunError> {
    let stages = orphans::young_counted(run.shape, run.namespace.collection, now);
    let mut command = unwound::aggregate(run.shape.extras_collection(), &stages, Some(BATCH_SIZE));
    run.context.options().append_to_internal_read(&mut command);
    let reply = match run.context.link.run(&command).await {
        Err(RunError::Command(_)) => return Ok(Vec::new()),
        reply => reply?,
    };
    let cursor = CursorReply::parse(&reply);
    let found = cursor.iter().flat_map(CursorReply::documents);
    Ok(found.filter_map(orphans::counted_generation).collect())
}

/// Removes the pages that no base document can reference. If none is left, removes the indexes, too: the
/// shape marker would keep another shape from storing outliers.
async fn remove_extras(run: &mut OutlierCommand<'_>, counted: &[ObjectId], now: SystemTime) -> Result<(), RunError> {
    let extras = run.shape.extras_collection();
    let statement = orphans::removal_after_drop(counted, now);
    run.write(extras, "delete", &statement, WriteOrigin::Internal)
        .await?
        .succeeded()?;
    let mut find = single("find", extras);
    find.append(cstr!("projection"), single("_id", 1));
    find.append(cstr!("limit"), 1);
    if !run.ask(find).await?.is_empty() {
        return Ok(());
    }
    let mut command = single("dropIndexes", extras);
    command.append(cstr!("index"), "*");
    run.context.options().append_identity(&mut command);
    run.context.link.run(&command).await.map(|_| ())
}
