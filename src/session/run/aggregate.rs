//! `aggregate`: the unpacking stages, then the client's own.

use bson::raw::{RawBsonRef, RawDocumentBuf};

use super::Run;
use crate::command::aggregate::Aggregate;
use crate::command::arguments::with_replaced;
use crate::command::document::{array_of, first_field};
use crate::command::reply::CursorReply;
use crate::pattern::bucket::{filter, pipeline};
use crate::session::error::RunError;
use crate::session::metrics::Strategy;

pub(super) async fn run(run: &mut Run<'_>) -> Result<RawDocumentBuf, RunError> {
    let aggregate = Aggregate::parse(run.head.body())?;
    if aggregate.explain {
        return Err(run.unsupported("explain").into());
    }
    for stage in &aggregate.pipeline {
        if let Some(("$match", RawBsonRef::Document(condition))) = first_field(stage)
            && let Some(operator) = filter::unsupported_operator(condition)
        {
            return Err(run.unsupported(&format!("{operator} in a $match")).into());
        }
    }
    let stages = pipeline::of_aggregate(run.shape, &aggregate.pipeline)
        .map_err(|stage| run.unsupported(&format!("the stage {stage}")))?;
    run.ready_to_read(aggregate.hint).await?;
    let stages = array_of(&stages);
    let replaced = [("pipeline", Some(RawBsonRef::Array(&stages))), ("hint", None)];
    let command = with_replaced(run.head.body(), &replaced);
    run.shared.metrics.read(&run.label(), Strategy::Pipeline);
    let reply = run.link.run(&command).await?;
    if let Some(cursor) = CursorReply::parse(&reply) {
        run.shared.cursors.opened(cursor.id);
    }
    Ok(reply)
}
