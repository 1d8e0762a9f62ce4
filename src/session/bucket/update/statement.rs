//! Commands of one statement: the client's own, for validation, and statements that change an item at its
//! position.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::outcome::UpdateOutcome;
use crate::command::document::{array_of, get, single};
use crate::command::error::WriteError;
use crate::command::reply::succeeded;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::item_update::ItemUpdate;
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

/// Has mongod validate the client's statement, with a filter that matches nothing. If the statement
/// was executed before, the result is mongod's retry record.
pub(super) async fn validate(
    run: &mut BucketCommand<'_>,
    task: &ItemUpdate<'_>,
    multi: bool,
) -> Result<UpdateOutcome, RunError> {
    let mut statement = single("q", run.without_match(task.wanted().filter));
    statement.append(cstr!("u"), task.asked.change);
    if multi {
        statement.append(cstr!("multi"), true);
    }
    task.append_own_options(&mut statement);
    if let Some(constants) = task.constants {
        statement.append(cstr!("c"), constants);
    }
    let mut body = body(run, task, &statement);
    if let Some(variables) = task.let_variables {
        body.append(cstr!("let"), variables);
    }
    run.context.inherited().append_to_write(&mut body);
    Ok(UpdateOutcome::of(succeeded(
        run.context.link.call(UpstreamRequest::plain(&body)).await?,
    )?))
}

/// Sends the statement that changes one item.
pub(super) async fn send(
    run: &mut BucketCommand<'_>,
    task: &ItemUpdate<'_>,
    statement: &RawDocument,
) -> Result<UpdateOutcome, RunError> {
    let mut body = body(run, task, statement);
    run.context.inherited().append_to_write(&mut body);
    let answer = succeeded(run.context.link.call(UpstreamRequest::plain(&body)).await?)?;
    run.record_executed(&answer);
    Ok(UpdateOutcome::of(answer))
}

/// The result of several statements in an ordered command.
pub(super) struct Together {
    /// Counts of the executed statements, without the failed one.
    pub(super) outcome: UpdateOutcome,
    /// Position and error of the failed statement.
    pub(super) failed: Option<(usize, WriteError)>,
}

/// Sends the statements of several items in one ordered command. `at_once`: the caller waits for
/// the client's write concern with [`wait`](crate::session::bucket::write_concern::wait).
pub(super) async fn send_together(
    run: &mut BucketCommand<'_>,
    statements: &[&RawDocument],
    at_once: bool,
) -> Result<Together, RunError> {
    let mut body = single("update", run.namespace.collection);
    body.append(cstr!("ordered"), true);
    let carried = run.context.inherited();
    let carried = if at_once { carried.without_wait() } else { carried };
    carried.append_to_write(&mut body);
    let request = UpstreamRequest {
        body: &body,
        sequence: Some(("updates", statements)),
    };
    let answer = succeeded(run.context.link.call(request).await?)?;
    run.record_executed(&answer);
    let errors = get(&answer, "writeErrors").and_then(RawBsonRef::as_array);
    let mut errors = errors
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(RawBsonRef::as_document);
    let failed = errors.next().and_then(WriteError::parse);
    let outcome = UpdateOutcome {
        failed: None,
        ..UpdateOutcome::of(answer)
    };
    Ok(Together { outcome, failed })
}

fn body(run: &BucketCommand<'_>, task: &ItemUpdate<'_>, statement: &RawDocument) -> RawDocumentBuf {
    let mut body = single("update", run.namespace.collection);
    body.append(cstr!("updates"), array_of(&[statement.to_owned()]));
    if let Some(id) = task.statement_id {
        let ids: RawArrayBuf = [id].into_iter().collect();
        body.append(cstr!("stmtIds"), &ids);
    }
    body
}
