//! `distinct`: mongod finds the values, the proxy merges them.

mod value_scan;

use bson::Timestamp;
use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::BucketCommand;
use super::count::validate_variable;
use super::explanation::Explained;
use super::find::validate_code;
use super::page_pruning::{self, FilterAndCollation};
use super::upstream_query::{get_more, kill};
use crate::command::distinct::{Distinct, too_big};
use crate::command::document::{get, single};
use crate::command::reply::{CursorReply, copy_cluster_time};
use crate::pattern::bucket::distinct;
use crate::pattern::bucket::layout::path;
use crate::pattern::unwound;
use crate::session::dotted_names::{dotted_names, unless_rejected_name};
use crate::session::error::RunError;
use crate::session::metrics::Strategy;

/// Values in one batch: more than a reply can hold.
const BATCH_SIZE: u64 = 10_000_000;
/// Maximum bytes of the values (`distinct.cpp`: `kMaxResponseSize`).
const MAX_BYTES: usize = 16 * 1024 * 1024 - 4096;

pub(super) async fn run(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let wanted = Distinct::parse(run.context.head.body())?;
    let stages = stages(run, &wanted).await?;
    if let Some(found) = value_scan::read(run, &wanted).await?
        && found.values.as_bytes().len() <= MAX_BYTES
    {
        run.record_read(Strategy::Index);
        // It reads no snapshot, or that of a transaction.
        return Ok(reply_of(&found.values, None, &found.reply));
    }
    run.record_read(Strategy::Pipeline);
    if let Some(command) = of_stored_path(run, &wanted) {
        let reply = read(run, command).await?;
        let values = get(&reply, "values").and_then(RawBsonRef::as_array);
        let time = reply.get_timestamp("atClusterTime").ok();
        return Ok(reply_of(values.unwrap_or(&RawArrayBuf::new()), time, &reply));
    }
    if let Some(reply) = from_first_pages(run, &wanted).await? {
        return Ok(reply);
    }
    answer(run, &wanted, by_pipeline(run, &wanted, &stages)).await
}

/// The access path and the internal command of a `distinct`, for `explain`.
pub(super) async fn explained(run: &mut BucketCommand<'_>, wanted: &Distinct<'_>) -> Result<Explained, RunError> {
    let stages = stages(run, wanted).await?;
    if let Some(found) = value_scan::read(run, wanted).await? {
        return Ok(Explained {
            strategy: Strategy::Index,
            command: found.query,
        });
    }
    let first_pages = first_pages(run, wanted).map(|stages| by_pipeline(run, wanted, &stages));
    let command = match of_stored_path(run, wanted).or(first_pages) {
        Some(command) => command,
        None => page_pruning::pruned(run, by_pipeline(run, wanted, &stages), query_of(wanted)).await?,
    };
    let strategy = Strategy::Pipeline;
    Ok(Explained { strategy, command })
}

/// The stages that answer any `distinct`. Checks that the collection can be read, and has mongod validate the
/// variables of the query.
async fn stages(run: &mut BucketCommand<'_>, wanted: &Distinct<'_>) -> Result<Vec<RawDocumentBuf>, RunError> {
    if let Some(operator) = wanted.query.and_then(unwound::unsupported_operator) {
        return Err(run.unsupported(&format!("{operator} in a filter")).into());
    }
    run.context.link.check_field(wanted.newer_field()).await?;
    let dotted = dotted_names(run.context.link, wanted).await?;
    let stages = distinct::stages(run.shape, wanted.key, wanted.query, wanted.collation, dotted)
        .map_err(|what| run.unsupported(what))?;
    run.ensure_readable(wanted.hint).await?;
    let mut command = single("distinct", run.namespace.collection);
    command.append(cstr!("key"), path::VERSION);
    validate_variable(run, command, wanted.query).await?;
    validate_code(run, wanted.query, None).await?;
    Ok(stages)
}

fn by_pipeline(run: &BucketCommand<'_>, wanted: &Distinct<'_>, stages: &[RawDocumentBuf]) -> RawDocumentBuf {
    let mut command = unwound::aggregate(run.namespace.collection, stages, Some(BATCH_SIZE));
    if let Some(collation) = wanted.collation {
        command.append(cstr!("collation"), collation);
    }
    command
}

fn query_of<'a>(wanted: &Distinct<'a>) -> FilterAndCollation<'a> {
    FilterAndCollation {
        filter: wanted.query,
        collation: wanted.collation,
    }
}

/// The `distinct` on buckets that returns the values of all items. `None` if mongod must unwind the buckets.
fn of_stored_path(run: &BucketCommand<'_>, wanted: &Distinct<'_>) -> Option<RawDocumentBuf> {
    wanted
        .is_of_all()
        .then(|| distinct::of_stored_path(run.shape, run.namespace.collection, wanted.key))
        .flatten()
}

fn first_pages(run: &BucketCommand<'_>, wanted: &Distinct<'_>) -> Option<Vec<RawDocumentBuf>> {
    wanted
        .is_of_all()
        .then(|| distinct::of_first_pages(run.shape, wanted.key))
        .flatten()
}

/// Reads the values of a key field from the first page of each value. `None` if the first pages do not show
/// all values.
async fn from_first_pages(
    run: &mut BucketCommand<'_>,
    wanted: &Distinct<'_>,
) -> Result<Option<RawDocumentBuf>, RunError> {
    let Some(stages) = first_pages(run, wanted) else {
        return Ok(None);
    };
    let reply = read(run, by_pipeline(run, wanted, &stages)).await?;
    let Some(cursor) = CursorReply::parse(&reply) else {
        return Ok(None);
    };
    let mut values = Values::default();
    let is_all = cursor.documents().all(distinct::is_first_page) && values.take(&cursor);
    if cursor.id != 0 {
        kill(run, cursor.id).await?;
    }
    let time = cursor.snapshot_time;
    Ok((is_all && cursor.id == 0).then(|| reply_of(&values.values, time, &reply)))
}

async fn read(run: &mut BucketCommand<'_>, mut command: RawDocumentBuf) -> Result<RawDocumentBuf, RunError> {
    run.context.inherited().append_to_read(&mut command);
    run.context.link.run(&command).await
}

/// The client's reply. `time`: that of the snapshot, at which a session continues.
fn reply_of(values: &RawArray, time: Option<Timestamp>, upstream: &RawDocument) -> RawDocumentBuf {
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("values"), values);
    if let Some(time) = time {
        reply.append(cstr!("atClusterTime"), time);
    }
    reply.append(cstr!("ok"), 1.0);
    copy_cluster_time(&mut reply, upstream);
    reply
}

async fn answer(
    run: &mut BucketCommand<'_>,
    wanted: &Distinct<'_>,
    command: RawDocumentBuf,
) -> Result<RawDocumentBuf, RunError> {
    let mut values = Values::default();
    let mut command = command;
    run.context.inherited().append_to_read(&mut command);
    let refused = |run: &BucketCommand<'_>, error| unless_rejected_name(error, |what| run.unsupported(what));
    let answer = page_pruning::run(run, &command, query_of(wanted)).await;
    let mut answer = answer.map_err(|error| refused(run, error))?;
    let time = CursorReply::parse(&answer).and_then(|cursor| cursor.snapshot_time);
    while let Some(cursor) = CursorReply::parse(&answer) {
        if wanted.collation.is_some() && cursor.batch.into_iter().flatten().any(unwound::distinct::holds_symbol) {
            if cursor.id != 0 {
                kill(run, cursor.id).await?;
            }
            return Err(run.unsupported("distinct of symbols under a collation").into());
        }
        let fits = values.take(&cursor);
        match cursor.id {
            0 if fits => break,
            0 => return Err(too_big().into()),
            id if fits => {
                let further = run.context.link.run(&get_more(run, id, None)).await;
                answer = further.map_err(|error| refused(run, error))?;
            }
            id => {
                kill(run, id).await?;
                return Err(too_big().into());
            }
        }
    }
    Ok(reply_of(&values.values, time, &answer))
}

/// The values that were read.
struct Values {
    values: RawArrayBuf,
}

impl Default for Values {
    fn default() -> Self {
        Self {
            values: RawArrayBuf::new(),
        }
    }
}

impl Values {
    /// Adds the values of a batch. Returns whether all values fit in a reply.
    fn take(&mut self, cursor: &CursorReply<'_>) -> bool {
        cursor.documents().all(|document| {
            // An item may have a BSON undefined, which is a value like any other.
            self.values.push(get(document, "v").unwrap_or(RawBsonRef::Null));
            self.values.as_bytes().len() <= MAX_BYTES
        })
    }
}
