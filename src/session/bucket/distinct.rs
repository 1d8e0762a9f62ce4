//! `distinct`: mongod finds the values, the proxy merges them.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::BucketCommand;
use super::count::judge_variable;
use super::explained::Explained;
use super::upstream_query::{get_more, kill};
use crate::command::distinct::{Distinct, too_big};
use crate::command::document::{get, single};
use crate::command::reply::{CursorReply, copy_cluster_time};
use crate::pattern::bucket::distinct;
use crate::pattern::bucket::layout::path;
use crate::pattern::unwound;
use crate::session::error::RunError;
use crate::session::metrics::Strategy;

/// Values asked for at once: as many as a reply can hold.
const BATCH_SIZE: u64 = 10_000_000;
/// What the values may weigh (`distinct.cpp`: `kMaxResponseSize`).
const MAX_BYTES: usize = 16 * 1024 * 1024 - 4096;

pub(super) async fn run(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let wanted = Distinct::parse(run.context.head.body())?;
    let mut command = by_pipeline(run, &wanted).await?;
    run.context.inherited().append_to_read(&mut command);
    run.context.shared.metrics.read(&run.label(), Strategy::Pipeline);
    answer(run, &wanted, &command).await
}

/// What is sent for it.
pub(super) async fn explained(run: &mut BucketCommand<'_>, wanted: &Distinct<'_>) -> Result<Explained, RunError> {
    Ok(Explained {
        strategy: Strategy::Pipeline,
        command: by_pipeline(run, wanted).await?,
    })
}

async fn by_pipeline(run: &mut BucketCommand<'_>, wanted: &Distinct<'_>) -> Result<RawDocumentBuf, RunError> {
    if let Some(operator) = wanted.query.and_then(unwound::unsupported_operator) {
        return Err(run.unsupported(&format!("{operator} in a filter")).into());
    }
    let stages = distinct::stages(run.shape, wanted.key, wanted.query, wanted.collation)
        .map_err(|what| run.unsupported(what))?;
    run.ensure_readable(None).await?;
    let mut command = single("distinct", run.namespace.collection);
    command.append(cstr!("key"), path::VERSION);
    judge_variable(run, command, wanted.query).await?;
    let mut command = unwound::aggregate(run.namespace.collection, &stages, Some(BATCH_SIZE));
    if let Some(collation) = wanted.collation {
        command.append(cstr!("collation"), collation);
    }
    Ok(command)
}

async fn answer(
    run: &mut BucketCommand<'_>,
    wanted: &Distinct<'_>,
    command: &RawDocument,
) -> Result<RawDocumentBuf, RunError> {
    let mut values = Values::default();
    let mut answer = run.context.link.run(command).await?;
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
            id if fits => answer = run.context.link.run(&get_more(run, id, None)).await?,
            id => {
                kill(run, id).await?;
                return Err(too_big().into());
            }
        }
    }
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("values"), &values.values);
    reply.append(cstr!("ok"), 1.0);
    copy_cluster_time(&mut reply, &answer);
    Ok(reply)
}

/// What was gathered.
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
    /// Takes a batch; whether all fits in a reply.
    fn take(&mut self, cursor: &CursorReply<'_>) -> bool {
        cursor.documents().all(|document| {
            // An item may hold a value that is undefined, which is one like any other.
            self.values.push(get(document, "v").unwrap_or(RawBsonRef::Null));
            self.values.as_bytes().len() <= MAX_BYTES
        })
    }
}
