//! `find` and `getMore`. Outliers in mongod's reply are reassembled. A query that depends on the
//! array becomes a pipeline.

use std::sync::atomic::Ordering;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::OutlierCommand;
use super::leftover_cursor;
use super::read::validate_find;
use super::reassemble::Merged;
use super::reply_inspection::shows_own;
use crate::command::arguments::with_replaced;
use crate::command::batch::BatchKind;
use crate::command::cursor::GetMore;
use crate::command::document::{as_flag, get, put, single};
use crate::command::find::Find;
use crate::command::reply::{CursorReply, succeeded, with_closed_cursor};
use crate::pattern::outlier::classify::{depends_on_array, names_own};
use crate::pattern::outlier::pipeline;
use crate::pattern::shapes::{OutlierShape, Reads};
use crate::pattern::unsupported::Unsupported;
use crate::pattern::unwound;
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::error::RunError;
use crate::session::metrics::Strategy;

/// The execution plan of a `find`.
pub(super) enum FindPlan {
    /// mongod executes the client's query, with this projection if there is one. Outliers in its
    /// reply are reassembled.
    Complete(Option<RawDocumentBuf>),
    /// A pipeline reassembles outliers before it evaluates the query.
    Pipeline,
}

pub(super) async fn run(run: &mut OutlierCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let find = Find::parse(run.context.head.body())?;
    match way(run.shape, &find).map_err(|what| run.unsupported(&what))? {
        FindPlan::Complete(projection) => {
            let projection = projection.as_deref().map(RawBsonRef::Document);
            let body = match projection {
                Some(_) => &with_replaced(run.context.head.body(), &[("projection", projection)]),
                None => run.context.head.body(),
            };
            let batches = if find.single_batch {
                Batches::Only
            } else {
                Batches::First
            };
            for attempt in 0..MAX_ATTEMPTS {
                pause(attempt).await;
                let answer = read(run, &run.next(body)).await?;
                if let Some(answer) = complete(run, &answer, batches).await? {
                    return Ok(answer);
                }
            }
            Err(run.missing_extras().into())
        }
        FindPlan::Pipeline => by_pipeline(run, &find).await,
    }
}

/// Returns the held reply, or sends the client's read command.
async fn read(run: &mut OutlierCommand<'_>, body: &RawDocument) -> Result<RawDocumentBuf, RunError> {
    if let Some(held) = run.held.take() {
        return Ok(succeeded(held)?);
    }
    let answer = run.context.link.run_reserving(body, run.reply_memory).await?;
    run.context.txn_started.store(true, Ordering::Relaxed);
    Ok(answer)
}

/// Plans a `find`. `Err`: the option that is not supported.
pub(super) fn way(shape: &OutlierShape, find: &Find<'_>) -> Result<FindPlan, Unsupported> {
    if shape.reads() == Reads::Base {
        return Ok(FindPlan::Complete(None));
    }
    let depends =
        |expression: Option<&RawDocument>| expression.is_some_and(|expression| depends_on_array(shape, expression));
    let by_pipeline = || match find.beyond_aggregation.first() {
        Some(option) => Err(format!("find with '{option}' that depends on {}", shape.array()).into()),
        None => Ok(FindPlan::Pipeline),
    };
    if depends(find.filter) || depends(find.sort) {
        return by_pipeline();
    }
    // An index on the array contains only the elements of base documents.
    if depends(find.min) || depends(find.max) {
        return Err(format!("find with min or max on {}", shape.array()).into());
    }
    if find.beyond_aggregation.contains(&"returnKey") {
        return Err("find with 'returnKey'".into());
    }
    let Some(projection) = find.projection else {
        return Ok(FindPlan::Complete(None));
    };
    if may_leave_id_out(shape, projection) {
        return by_pipeline();
    }
    let mut flags = projection.iter().flatten().map(|(_, value)| match value {
        RawBsonRef::Document(_) | RawBsonRef::Array(_) | RawBsonRef::String(_) => None,
        value => as_flag(value),
    });
    let are_plain = flags.all(|flag| flag.is_some());
    if names_own(shape, RawBsonRef::Document(projection)) && !(are_plain && leaves_control(shape, projection)) {
        return Err(format!("a projection of `{}` or its control field", shape.flag()).into());
    }
    if !depends_on_array(shape, projection) {
        return Ok(FindPlan::Complete(None));
    }
    match get(projection, shape.array()).filter(|_| are_plain).and_then(as_flag) {
        Some(true) => {
            let mut with_control = projection.to_owned();
            put(&mut with_control, shape.control(), true);
            Ok(FindPlan::Complete(Some(with_control)))
        }
        Some(false) => Ok(FindPlan::Complete(None)),
        None => by_pipeline(),
    }
}

/// Whether a projection names none of the proxy's own fields except the flag, which clients never
/// see.
fn leaves_control(shape: &OutlierShape, projection: &RawDocument) -> bool {
    projection.iter().flatten().all(|(name, _)| {
        let name = name.as_str();
        name == shape.flag() || !names_own(shape, RawBsonRef::String(name))
    })
}

/// Whether a projection may include the array without the whole `_id`, which identifies its pages.
fn may_leave_id_out(shape: &OutlierShape, projection: &RawDocument) -> bool {
    let is_plain = |value| match value {
        RawBsonRef::Document(_) | RawBsonRef::Array(_) | RawBsonRef::String(_) => None,
        value => as_flag(value),
    };
    let changes_id = projection.iter().flatten().any(|(name, value)| {
        name.as_str().starts_with("_id.") || (name.as_str() == "_id" && is_plain(value).is_none())
    });
    if get(projection, "_id").and_then(is_plain) != Some(false) && !changes_id {
        return false;
    }
    let mut others = projection
        .iter()
        .flatten()
        .filter(|(name, _)| name.as_str() != "_id")
        .peekable();
    let shows_others_only = others.peek().is_some()
        && others.all(|(name, value)| is_plain(value) == Some(true) && name.as_str() != shape.array());
    let leaves_array_out = get(projection, shape.array()).and_then(is_plain) == Some(false);
    !shows_others_only && !leaves_array_out
}

async fn close(run: &mut OutlierCommand<'_>, answer: &RawDocument) -> Result<(), RunError> {
    match CursorReply::parse(answer).filter(|cursor| cursor.id != 0) {
        Some(cursor) => run.close_cursor(run.namespace.collection, cursor.id).await,
        None => Ok(()),
    }
}

pub(super) async fn get_more(run: &mut OutlierCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    if run.held.is_none()
        && let Some(reply) = leftover_cursor::get_more(run).await?
    {
        return Ok(reply);
    }
    let more = GetMore::parse(run.context.head.body()).ok();
    let left = more.and_then(|more| run.context.shared.limited_cursors.take(more.id));
    let answer = read(run, run.context.head.body()).await;
    let answer = answer.map_err(|error| run.of_later_batch(error))?;
    match (complete(run, &answer, Batches::Next).await?, left) {
        (Some(answer), Some(left)) => within_limit(run, answer, left).await,
        (Some(answer), None) => Ok(answer),
        (None, _) => Err(run.other_extras().into()),
    }
}

/// Closes the cursor of a pipeline if the batch has the last document of the limit, as mongod closes that of
/// a `find`. `left`: the number of documents up to the limit.
async fn within_limit(
    run: &mut OutlierCommand<'_>,
    answer: RawDocumentBuf,
    left: u64,
) -> Result<RawDocumentBuf, RunError> {
    let Some(cursor) = CursorReply::parse(&answer).filter(|cursor| cursor.id != 0) else {
        return Ok(answer);
    };
    let returned = u64::try_from(cursor.documents().count()).unwrap_or(u64::MAX);
    let left = left.saturating_sub(returned);
    if left > 0 {
        run.context.shared.limited_cursors.keep(cursor.id, left);
        return Ok(answer);
    }
    close(run, &answer).await?;
    Ok(with_closed_cursor(&answer))
}

/// The batch of a cursor that a reply contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Batches {
    First,
    /// The first batch of a query that requests a single one.
    Only,
    /// A later batch.
    Next,
}

/// Reassembles the outliers of a reply. Documents that do not fit are kept for `getMore`. `None`:
/// the pages of a document were replaced after it was read. Then, and after an error, the cursor is closed: a
/// `getMore` would leave out the documents of this reply.
async fn complete(
    run: &mut OutlierCommand<'_>,
    answer: &RawDocument,
    batches: Batches,
) -> Result<Option<RawDocumentBuf>, RunError> {
    let completed = reassembled(run, answer, batches).await;
    if matches!(completed, Ok(None) | Err(RunError::Command(_))) {
        close(run, answer).await?;
    }
    completed
}

async fn reassembled(
    run: &mut OutlierCommand<'_>,
    answer: &RawDocument,
    batches: Batches,
) -> Result<Option<RawDocumentBuf>, RunError> {
    let Some(cursor) = CursorReply::parse(answer) else {
        return Ok(Some(answer.to_owned()));
    };
    run.facts.snapshot_time = cursor.snapshot_time;
    let documents: Vec<&RawDocument> = cursor.documents().collect();
    if !documents.iter().any(|document| shows_own(run.shape, document)) {
        return Ok(Some(answer.to_owned()));
    }
    let kind = match batches {
        Batches::First | Batches::Only => BatchKind::First,
        Batches::Next => BatchKind::Next,
    };
    let Merged::Batch(batch, count) = run.merge(&documents, kind).await? else {
        return Ok(None);
    };
    let left = match batches {
        Batches::Only => &[],
        Batches::First | Batches::Next => documents.get(count..).unwrap_or_default(),
    };
    let id = run.keep_leftover(answer, left, count).await?;
    Ok(Some(batch.into_reply_like(answer, id)))
}

async fn by_pipeline(run: &mut OutlierCommand<'_>, find: &Find<'_>) -> Result<RawDocumentBuf, RunError> {
    validate_find(run, find).await?;
    let mut find = find.clone();
    let natural = find
        .sort
        .and_then(|sort| get(sort, "$natural").map(|order| single("$natural", order)));
    if let Some(natural) = &natural {
        // `find` expresses the natural order as a sort, `aggregate` as a hint.
        if find.hint.is_some() || find.sort.is_some_and(|sort| sort.iter().count() > 1) {
            return Err(run.unsupported("a sort by $natural beside a hint").into());
        }
        find.sort = None;
        find.hint = Some(RawBsonRef::Document(natural));
    }
    let find = &find;
    let stages = pipeline::of_find(run.shape, find).map_err(|what| run.unsupported(&what))?;
    let mut command = unwound::aggregate(run.namespace.collection, &stages, find.batch_size);
    let parts = [("collation", find.collation), ("let", find.let_variables)];
    for (name, part) in parts {
        if let Some(part) = part {
            put(&mut command, name, part);
        }
    }
    if let Some(hint) = find.hint {
        command.append(cstr!("hint"), hint);
    }
    if let Some(allow) = find.allow_disk_use {
        command.append(cstr!("allowDiskUse"), allow);
    }
    run.record_read(Strategy::Pipeline);
    run.context.inherited().append_to_read(&mut command);
    let reply = run.put_together(&command).await?;
    if find.single_batch {
        return within_limit(run, reply, 0).await;
    }
    match find.limit {
        0 => Ok(reply),
        limit => within_limit(run, reply, limit).await,
    }
}
