//! `count`: from the buckets' own counts where that is exact, else over unpacked items.

use bson::raw::{RawDocumentBuf, cstr};

use super::Run;
use crate::command::count::Count;
use crate::command::document::{as_whole_number, get};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::reply::{CursorReply, carry};
use crate::pattern::bucket::filter::{self, Narrowing};
use crate::pattern::bucket::pipeline;
use crate::session::error::RunError;

pub(super) async fn run(run: &mut Run<'_>) -> Result<RawDocumentBuf, RunError> {
    if run.head.in_transaction() {
        let message = "Cannot run 'count' in a multi-document transaction.";
        return Err(CommandError::new(ErrorCode::OperationNotSupportedInTransaction, message).into());
    }
    let count = Count::parse(run.head.body())?;
    if let Some(operator) = count.query.and_then(filter::unsupported_operator) {
        return Err(run.unsupported(&format!("{operator} in a filter")).into());
    }
    run.ready_to_read(count.hint).await?;
    let (stages, skip, limit) = stages(run, &count);
    let mut command = pipeline::aggregate(run.namespace.collection, &stages, None);
    if let Some(collation) = count.collation {
        command.append(cstr!("collation"), collation);
    }
    run.carried().append_to_read(&mut command);
    let answer = run.link.run(&command).await?;
    let first = CursorReply::parse(&answer).and_then(|cursor| cursor.documents().next());
    let found = first
        .and_then(|first| get(first, "n"))
        .and_then(as_whole_number)
        .unwrap_or(0);
    let found = u64::try_from(found).unwrap_or(0).saturating_sub(skip);
    let counted = if limit > 0 { found.min(limit) } else { found };
    let mut reply = RawDocumentBuf::new();
    match i32::try_from(counted) {
        Ok(counted) => reply.append(cstr!("n"), counted),
        Err(_) => reply.append(cstr!("n"), i64::try_from(counted).unwrap_or(i64::MAX)),
    }
    reply.append(cstr!("ok"), 1.0);
    carry(&mut reply, &answer);
    Ok(reply)
}

/// The stages, and what of skip and limit they leave to be done.
fn stages(run: &Run<'_>, count: &Count<'_>) -> (Vec<RawDocumentBuf>, u64, u64) {
    // Under a collation a key's equality takes in other keys; their buckets' counts are right all the same.
    match count.query {
        None => (pipeline::sum_of_counts(run.shape, None), count.skip, count.limit),
        Some(query) => match Narrowing::of(run.shape, Some(query)).only_one_key() {
            Some(key) => (pipeline::sum_of_counts(run.shape, Some(&key)), count.skip, count.limit),
            None => (
                pipeline::of_count(run.shape, Some(query), count.skip, count.limit),
                0,
                0,
            ),
        },
    }
}
