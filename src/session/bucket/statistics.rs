//! `collStats`, `dataSize`, `$collStats` and `validate`: mongod's reply, with items in place of buckets.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::command::BucketCommand;
use super::upstream_query::{complete, documents};
use crate::command::aggregate::Aggregate;
use crate::command::arguments::with_replaced;
use crate::command::collection::impossible_in_validate;
use crate::command::document::{array_of, as_whole_number, first_field, get, single};
use crate::command::reply::CursorReply;
use crate::pattern::bucket::predicate_pushdown::BucketPredicate;
use crate::pattern::bucket::statistics::{self, ItemTotals};
use crate::pattern::bucket::unwind;
use crate::pattern::pipeline::{PipelinePosition, Pipelines};
use crate::pattern::unwound;
use crate::session::cross_collection::ReferencedCollections;
use crate::session::error::RunError;
use crate::session::metrics::RefusalReason;
use crate::session::refusal::refuse_stage;

const STAGE: &str = "$collStats";

pub(super) async fn coll_stats(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let body = run.context.head.body();
    run.ensure_readable(None).await?;
    let reply = run.context.link.run(body).await?;
    // An average size is in bytes, independent of `scale`.
    let bytes = if get(body, "scale").is_some() {
        let unscaled = run.context.link.run(&with_replaced(body, &[("scale", None)])).await?;
        size(&unscaled)
    } else {
        size(&reply)
    };
    let items = items(run).await?;
    Ok(statistics::of_collection(&reply, ItemTotals { items, bytes }))
}

pub(super) async fn data_size(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let body = run.context.head.body();
    // The bounds select buckets by key, which does not select the same range of items.
    let bound = ["keyPattern", "min", "max"]
        .into_iter()
        .find(|field| get(body, field).is_some_and(|value| !value.as_document().is_some_and(RawDocument::is_empty)));
    if let Some(bound) = bound {
        return Err(run.unsupported(&format!("dataSize with '{bound}'")).into());
    }
    run.ensure_readable(None).await?;
    let reply = run.context.link.run(body).await?;
    let items = items(run).await?;
    Ok(statistics::of_data_size(&reply, items))
}

pub(super) async fn validate(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let body = run.context.head.body();
    if let Some(option) = impossible_in_validate(body)? {
        return Err(run.unsupported(&format!("validate with '{option}'")).into());
    }
    run.ensure_readable(None).await?;
    let reply = run.context.link.run(body).await?;
    let items = items(run).await?;
    statistics::of_validation(&reply, items).ok_or_else(|| {
        let what =
            "validate of a collection with indexes of the application, with invalid documents, or on several shards";
        run.unsupported(what).into()
    })
}

pub(super) fn begins_with_statistics(aggregate: &Aggregate<'_>) -> bool {
    let first = aggregate.pipeline.first().and_then(|stage| first_field(stage));
    first.is_some_and(|(name, _)| name == STAGE) && !aggregate.explain
}

/// An `aggregate` that begins with `$collStats`. The stage's result is read first, converted to
/// items, and passed to the remaining stages as a literal.
pub(super) async fn aggregate(
    run: &mut BucketCommand<'_>,
    aggregate: &Aggregate<'_>,
) -> Result<RawDocumentBuf, RunError> {
    let body = run.context.head.body();
    let Some((stage, behind)) = aggregate.pipeline.split_first() else {
        return Err(run.unsupported("no stage").into());
    };
    let asked = first_field(stage).and_then(|(_, value)| value.as_document());
    // Latency and execution counters contain the proxy's internal commands.
    let of_server = ["latencyStats", "queryExecStats"]
        .into_iter()
        .find(|name| asked.is_some_and(|asked| get(asked, name).is_some()));
    if let Some(name) = of_server {
        return Err(run.unsupported(&format!("{name} of the stage {STAGE}")).into());
    }
    if run.context.head.in_transaction() {
        // mongod refuses the stage in a transaction. Its own error comes first.
        ask(run, stage).await?;
        return Err(run.unsupported(&format!("the stage {STAGE} in a transaction")).into());
    }
    let mut pipelines = Pipelines::new(&run.context.settings.shapes, run.context.head.database);
    let refusals = run.context.refusals();
    let behind = pipelines
        .stages(behind, PipelinePosition::Open)
        .map_err(|refused| refuse_stage(refusals, &refused))?;
    let mut referenced = ReferencedCollections {
        context: &mut run.context,
    };
    referenced.prepare(&pipelines.into_reached()).await?;
    run.ensure_readable(aggregate.hint).await?;
    let converted = match converted(run, stage).await {
        Ok(converted) => converted,
        Err(RunError::Command(error)) => {
            // mongod reports an error in the following stages first, so the whole pipeline is sent for
            // validation.
            let mut stages = vec![(*stage).to_owned()];
            stages.extend(behind);
            let stages = array_of(&stages);
            let command = with_replaced(body, &[("pipeline", Some(RawBsonRef::Array(&stages)))]);
            run.context.link.run(&command).await?;
            return Err(error.into());
        }
        Err(error) => return Err(error),
    };
    let mut stages = vec![
        // The stage returns one document. Its content is replaced.
        single(STAGE, RawDocumentBuf::new()),
        single("$replaceWith", single("$literal", &converted)),
    ];
    stages.extend(behind);
    let stages = array_of(&stages);
    let command = with_replaced(body, &[("pipeline", Some(RawBsonRef::Array(&stages)))]);
    let reply = run.context.link.run(&command).await?;
    if let Some(cursor) = CursorReply::parse(&reply) {
        run.context.shared.cursors.opened(cursor.id);
    }
    Ok(reply)
}

/// The document of the stage, with items in place of buckets. A mongos returns a document for each shard:
/// several are refused.
async fn converted(run: &mut BucketCommand<'_>, stage: &RawDocument) -> Result<RawDocumentBuf, RunError> {
    let first = ask(run, stage).await?;
    let Some(stored) = get(&first, "storageStats").and_then(RawBsonRef::as_document) else {
        return Ok(match get(&first, "count") {
            Some(_) => statistics::with_number(&first, "count", items(run).await?),
            None => first,
        });
    };
    let unscaled = ask(run, &single(STAGE, single("storageStats", RawDocumentBuf::new()))).await?;
    let bytes = get(&unscaled, "storageStats")
        .and_then(RawBsonRef::as_document)
        .map_or(0, size);
    let items = items(run).await?;
    let stored = statistics::of_collection(stored, ItemTotals { items, bytes });
    let converted = with_replaced(&first, &[("storageStats", Some(RawBsonRef::Document(&stored)))]);
    Ok(statistics::with_number(&converted, "count", items))
}

async fn ask(run: &mut BucketCommand<'_>, stage: &RawDocument) -> Result<RawDocumentBuf, RunError> {
    let command = unwound::aggregate(run.namespace.collection, &[stage.to_owned()], None);
    let reply = run.context.link.run(&complete(run, command)).await?;
    let mut of_shards = documents(&reply);
    let first = of_shards.next();
    if of_shards.next().is_some() {
        return Err(run
            .refuse(RefusalReason::Cluster, &format!("the stage {STAGE} on several shards"))
            .into());
    }
    Ok(first.map(ToOwned::to_owned).unwrap_or_default())
}

/// The number of items in the collection.
async fn items(run: &mut BucketCommand<'_>) -> Result<i64, RunError> {
    let mut command = unwound::aggregate(
        run.namespace.collection,
        &unwind::sum_of_counts(run.shape, &BucketPredicate::of(run.shape, None)),
        None,
    );
    run.context.inherited().append_to_read(&mut command);
    let reply = run.context.link.run(&command).await?;
    let sum = documents(&reply).next().and_then(|sum| get(sum, "n"));
    Ok(sum.and_then(as_whole_number).unwrap_or(0))
}

fn size(statistics: &RawDocument) -> i64 {
    get(statistics, "size").and_then(as_whole_number).unwrap_or(0)
}
