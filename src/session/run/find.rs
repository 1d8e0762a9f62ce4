//! `find`: from the pages that hold the answer, or by a pipeline.

mod by_page;

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf, cstr};

use super::Run;
use crate::command::document::{get, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::find::Find;
use crate::command::reply::{CursorReply, with_closed_cursor};
use crate::pattern::bucket::read::PageRead;
use crate::pattern::bucket::{filter, pipeline};
use crate::session::error::RunError;
use crate::session::metrics::Strategy;

pub(super) async fn run(run: &mut Run<'_>) -> Result<RawDocumentBuf, RunError> {
    let find = Find::parse(run.head.body())?;
    check(run, &find)?;
    run.ready_to_read(find.hint).await?;
    if let Some(read) = PageRead::of(run.shape, &find)
        && let Some(reply) = by_page::run(run, &read).await?
    {
        run.shared.metrics.read(&run.label(), Strategy::Page);
        return Ok(reply);
    }
    run.shared.metrics.read(&run.label(), Strategy::Pipeline);
    by_pipeline(run, &find).await
}

fn check(run: &Run<'_>, find: &Find<'_>) -> Result<(), CommandError> {
    if find
        .beyond_aggregation
        .iter()
        .any(|option| matches!(*option, "tailable" | "awaitData"))
    {
        let message = "error processing query: tailable cursor requested on non capped collection";
        return Err(CommandError::new(ErrorCode::BadValue, message));
    }
    if let Some(option) = find.beyond_aggregation.first() {
        return Err(run.unsupported(&format!("find with '{option}'")));
    }
    if let Some(operator) = find.filter.and_then(filter::unsupported_operator) {
        return Err(run.unsupported(&format!("{operator} in a filter")));
    }
    if find.sort.is_some_and(|sort| get(sort, "$natural").is_some()) {
        return Err(run.unsupported("a sort by $natural"));
    }
    Ok(())
}

/// Adds what every command made from the client's carries.
fn complete(run: &Run<'_>, mut request: RawDocumentBuf) -> RawDocumentBuf {
    run.carried().append_to_read(&mut request);
    request
}

async fn by_pipeline(run: &mut Run<'_>, find: &Find<'_>) -> Result<RawDocumentBuf, RunError> {
    let stages =
        pipeline::of_find(run.shape, find).map_err(|form| run.unsupported(&format!("{form} in a projection")))?;
    let mut command = pipeline::aggregate(run.namespace.collection, &stages, find.batch_size);
    if let Some(collation) = find.collation {
        command.append(cstr!("collation"), collation);
    }
    if let Some(variables) = find.let_variables {
        command.append(cstr!("let"), variables);
    }
    if let Some(allowed) = find.allow_disk_use {
        command.append(cstr!("allowDiskUse"), allowed);
    }
    let command = complete(run, command);
    let reply = run.link.run(&command).await?;
    let Some(cursor) = CursorReply::parse(&reply) else {
        return Ok(reply);
    };
    let returned = u64::try_from(cursor.documents().count()).unwrap_or(u64::MAX);
    // As `find` does and an aggregation does not: the cursor is closed with the last document that was asked for.
    if cursor.id != 0 && (find.single_batch || (find.limit > 0 && returned >= find.limit)) {
        kill(run, cursor.id).await?;
        return Ok(with_closed_cursor(&reply));
    }
    run.shared.cursors.opened(cursor.id);
    Ok(reply)
}

async fn kill(run: &mut Run<'_>, id: i64) -> Result<(), RunError> {
    let mut command = single("killCursors", run.namespace.collection);
    let ids: RawArrayBuf = [RawBsonRef::Int64(id)].into_iter().collect();
    command.append(cstr!("cursors"), &ids);
    run.carried().append_to_look_up(&mut command);
    run.link.run(&command).await.map(|_| ())
}
