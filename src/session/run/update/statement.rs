//! Commands of one statement: the client's own, which is judged, and those that change an item where it lies.

use bson::raw::{RawArrayBuf, RawDocument, RawDocumentBuf, cstr};

use super::outcome::Outcome;
use crate::command::arguments::Carried;
use crate::command::document::{array_of, single};
use crate::command::reply::succeeded;
use crate::pattern::bucket::insert::no_statement;
use crate::session::error::RunError;
use crate::session::link::Request;
use crate::session::run::Run;
use crate::session::run::task::Task;

/// Lets mongod judge the client's statement, and say whether it has executed it before.
pub(super) async fn judge(run: &mut Run<'_>, task: &Task<'_>, multi: bool) -> Result<Outcome, RunError> {
    let mut statement = single("q", task.no_filter());
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
    run.carried().append_to_write(&mut body);
    Ok(Outcome::of(succeeded(run.link.call(Request::plain(&body)).await?)?))
}

/// Sends the statement of one item.
pub(super) async fn send(run: &mut Run<'_>, task: &Task<'_>, statement: &RawDocument) -> Result<Outcome, RunError> {
    let mut body = body(run, task, statement);
    run.carried().append_to_write(&mut body);
    Ok(Outcome::of(succeeded(run.link.call(Request::plain(&body)).await?)?))
}

/// Sends the statements of some items, back to back. What the client waits for is left to [`settle`] where it may be.
pub(super) async fn send_all(
    run: &mut Run<'_>,
    task: &Task<'_>,
    (statements, at_once): (&[RawDocumentBuf], bool),
) -> Result<Vec<Outcome>, RunError> {
    let bodies: Vec<RawDocumentBuf> = statements
        .iter()
        .map(|statement| {
            let mut body = body(run, task, statement);
            let carried = run.carried();
            let carried = if at_once { carried.at_once() } else { carried };
            carried.append_to_write(&mut body);
            body
        })
        .collect();
    let requests: Vec<Request<'_>> = bodies.iter().map(|body| Request::plain(body)).collect();
    let answers = run.link.call_all(&requests).await?;
    let outcomes = answers.into_iter().map(|answer| Ok(Outcome::of(succeeded(answer)?)));
    outcomes.collect()
}

/// Waits for what the client's write concern asks, for all that was written before it.
pub(super) async fn settle(run: &mut Run<'_>) -> Result<RawDocumentBuf, RunError> {
    let mut command = single("update", run.namespace.collection);
    command.append(cstr!("updates"), array_of(&[no_statement()]));
    Carried::of(run.head.body()).unnumbered().append_to_write(&mut command);
    Ok(succeeded(run.link.call(Request::plain(&command)).await?)?)
}

fn body(run: &Run<'_>, task: &Task<'_>, statement: &RawDocument) -> RawDocumentBuf {
    let mut body = single("update", run.namespace.collection);
    body.append(cstr!("updates"), array_of(&[statement.to_owned()]));
    if let Some(id) = task.statement_id {
        let ids: RawArrayBuf = [id].into_iter().collect();
        body.append(cstr!("stmtIds"), &ids);
    }
    body
}
