//! `getMore` and `killCursors`: on cursors that this proxy has opened, and on no other.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf};

use super::Run;
use crate::command::arguments::with_replaced;
use crate::command::cursor::{get_more_id, killed_ids, not_found};
use crate::command::reply::CursorReply;
use crate::session::error::RunError;

pub(super) async fn get_more(run: &mut Run<'_>) -> Result<RawDocumentBuf, RunError> {
    let id = get_more_id(run.head.body())?;
    if !run.shared.cursors.contains(id) {
        return Err(not_found(id).into());
    }
    // Sent without `exhaustAllowed`: one plain reply is always a legal answer.
    let reply = run.link.run(run.head.body()).await?;
    if CursorReply::parse(&reply).is_some_and(|cursor| cursor.id == 0) {
        run.shared.cursors.closed(id);
    }
    Ok(reply)
}

pub(super) async fn kill(run: &mut Run<'_>) -> Result<RawDocumentBuf, RunError> {
    let ids = killed_ids(run.head.body())?;
    let (ours, unknown): (Vec<i64>, Vec<i64>) = ids.into_iter().partition(|id| run.shared.cursors.contains(*id));
    let as_array = |ids: &[i64]| -> RawArrayBuf { ids.iter().map(|id| RawBsonRef::Int64(*id)).collect() };
    // Sent even when none is ours, so that the reply is mongod's own.
    let killed = as_array(&ours);
    let command = with_replaced(run.head.body(), &[("cursors", Some(RawBsonRef::Array(&killed)))]);
    let reply = run.link.run(&command).await?;
    for id in &ours {
        run.shared.cursors.closed(*id);
    }
    let not_found = reply.get_array("cursorsNotFound").ok();
    let mut missing: Vec<i64> = not_found
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(RawBsonRef::as_i64)
        .collect();
    missing.extend(unknown);
    let missing = as_array(&missing);
    Ok(with_replaced(
        &reply,
        &[("cursorsNotFound", Some(RawBsonRef::Array(&missing)))],
    ))
}
