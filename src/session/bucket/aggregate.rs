//! `aggregate`: stages that unwind buckets, followed by the client's own stages.

use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::command::BucketCommand;
use super::explanation::Explained;
use super::page_pruning::{self, FilterAndCollation, Pruning};
use super::{change_stream, find, indexes, statistics};
use crate::command::aggregate::{Aggregate, as_find};
use crate::command::arguments::{is_generic, with_replaced};
use crate::command::document::{array_of, as_whole_number, first_field, get};
use crate::command::error::CommandError;
use crate::command::merge::{self, MergeStage};
use crate::command::reply::CursorReply;
use crate::pattern::bucket::near::begins_with_distance;
use crate::pattern::bucket::{count_pushdown, skip_scan, unwind};
use crate::pattern::pipeline::{PipelinePosition, Pipelines};
use crate::pattern::unwound::{joined_matches, only_match};
use crate::session::aggregate_validation::first_aggregate_error;
use crate::session::change_stream::options;
use crate::session::cross_collection::ReferencedCollections;
use crate::session::error::RunError;
use crate::session::metrics::Strategy;
use crate::session::outlier::merged_read::put_together;
use crate::session::refusal::refuse_stage;

/// mongod's codes for a command that was ended from outside, whatever its stages: by a time limit, by
/// `killOp`, by the end of the server or its term as a primary, or by a change of the collection.
const INTERRUPTIONS: [i32; 12] = [50, 91, 175, 189, 237, 262, 10107, 11600, 11601, 11602, 13435, 13436];

pub(super) async fn run(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let body = run.context.head.body();
    let mut aggregate = match Aggregate::parse(body) {
        Ok(aggregate) => aggregate,
        Err(error) => return Err(first_aggregate_error(run.context.link, run.context.head, error).await),
    };
    if options(&aggregate).is_some() {
        return change_stream::run(run, &aggregate).await;
    }
    if statistics::begins_with_statistics(&aggregate) {
        return statistics::aggregate(run, &aggregate).await;
    }
    let joined = joined_matches(&aggregate.pipeline);
    if let Some((first, count)) = &joined {
        aggregate.pipeline.drain(..*count);
        aggregate.pipeline.insert(0, first);
    }
    check_documents(run, &aggregate).await?;
    check_order(run, &aggregate)?;
    if let Some(find) = as_find(body, &aggregate).filter(|_| !aggregate.explain) {
        run.ensure_readable(aggregate.hint).await?;
        // With a batch size of 0 on a missing collection, mongod opens a cursor for an `aggregate`, but not
        // for a `find`.
        if run.collection.is_some()
            && let Some(reply) = find::without_pipeline(run, &find).await?
        {
            return Ok(reply);
        }
    }
    let Stages {
        all_items,
        skip_scan,
        filter,
        may_be_repeated,
        is_by_distance,
    } = stored(run, &aggregate).await?;
    run.record_read(Strategy::Pipeline);
    if let Some(stages) = skip_scan {
        let reply = put_together(run.context.link, &on_buckets(run, &stages)).await;
        if !is_refused(&reply) {
            return Ok(finish(run, &aggregate, &stages, reply?));
        }
    }
    let command = on_buckets(run, &all_items);
    let query = FilterAndCollation {
        filter: filter.as_deref(),
        collation: aggregate.collation,
    };
    let Some(mut pruning) = Pruning::of(run, query) else {
        let mut reply = put_together(run.context.link, &command).await;
        // Other pipelines can lack an index, too: the text index of a collection that they reference.
        if is_by_distance {
            reply = reply.map_err(|error| find::near::in_application_terms(run, error));
        }
        return Ok(finish(run, &aggregate, &all_items, reply?));
    };
    if may_be_repeated
        && !aggregate.explain
        && let Some(reply) = pruning.run_on_first_pages(run, &command).await?
    {
        return Ok(finish(run, &aggregate, &all_items, reply));
    }
    let command = pruning.pruned(run, &command).await?;
    let reply = put_together(run.context.link, &command).await?;
    let stages = get(&command, "pipeline").and_then(RawBsonRef::as_array);
    Ok(finish(run, &aggregate, stages.unwrap_or(&all_items), reply))
}

/// Has mongod refuse a pipeline that reads no collection. It has another error for the stage behind others.
async fn check_documents(run: &mut BucketCommand<'_>, aggregate: &Aggregate<'_>) -> Result<(), RunError> {
    let first = aggregate.pipeline.first();
    let Some(documents) = first.filter(|stage| matches!(first_field(stage), Some(("$documents", _)))) else {
        return Ok(());
    };
    let command = on_buckets(run, &array_of(&[RawDocument::to_owned(documents)]));
    run.context.link.run(&command).await?;
    Err(run.unsupported("the stage $documents").into())
}

/// Refuses a hint of an order, unless the first stage behind those that match removes the order.
fn check_order(run: &BucketCommand<'_>, aggregate: &Aggregate<'_>) -> Result<(), CommandError> {
    let stages = aggregate.pipeline.iter();
    let mut names = stages.filter_map(|stage| Some(first_field(stage)?.0));
    let first = names.find(|name| *name != "$match");
    let is_free = matches!(first, Some("$sort" | "$count" | "$geoNear"));
    indexes::check_hinted_order(run, aggregate.hint.filter(|_| !is_free))
}

/// Whether mongod refused the stages of a skip scan: any error except an [interruption](INTERRUPTIONS). For
/// example, a `$graphLookup` needs more than 100 MB, or a key is a document with a field that begins
/// with `$`. The pipeline of all items then returns the result, or mongod's error for the client's own
/// stages.
fn is_refused(reply: &Result<RawDocumentBuf, RunError>) -> bool {
    let Err(RunError::Command(CommandError::Upstream(reply))) = reply else {
        return false;
    };
    reply.get_i32("code").is_ok_and(|code| !INTERRUPTIONS.contains(&code))
}

/// The client's command with stages on buckets.
fn on_buckets(run: &BucketCommand<'_>, stages: &RawArray) -> RawDocumentBuf {
    let replaced = [("pipeline", Some(RawBsonRef::Array(stages))), ("hint", None)];
    with_replaced(run.context.head.body(), &replaced)
}

/// Converts mongod's reply to these stages to the client's reply.
fn finish(
    run: &BucketCommand<'_>,
    aggregate: &Aggregate<'_>,
    stages: &RawArray,
    reply: RawDocumentBuf,
) -> RawDocumentBuf {
    if aggregate.explain {
        return explanation(run.context.head.body(), stages).added_to(reply);
    }
    if let Some(cursor) = CursorReply::parse(&reply) {
        run.context.shared.cursors.opened(cursor.id);
    }
    reply
}

/// The access path and the internal command of an `aggregate` with this body, for `explain`.
pub(super) async fn explained(run: &mut BucketCommand<'_>, body: &RawDocument) -> Result<Explained, RunError> {
    let mut aggregate = Aggregate::parse_explained(body)?;
    let joined = joined_matches(&aggregate.pipeline);
    if let Some((first, count)) = &joined {
        aggregate.pipeline.drain(..*count);
        aggregate.pipeline.insert(0, first);
    }
    check_order(run, &aggregate)?;
    if let Some(find) = as_find(body, &aggregate) {
        run.ensure_readable(aggregate.hint).await?;
        if run.collection.is_some()
            && let Some(explained) = find::explained_without_pipeline(run, &find).await?
        {
            return Ok(explained);
        }
    }
    let stages = stored(run, &aggregate).await?;
    if let Some(skip_scan) = &stages.skip_scan {
        return Ok(explanation(body, skip_scan));
    }
    let explained = explanation(body, &stages.all_items);
    let query = FilterAndCollation {
        filter: stages.filter.as_deref(),
        collation: aggregate.collation,
    };
    let command = page_pruning::pruned(run, explained.command, query).await?;
    Ok(Explained {
        strategy: explained.strategy,
        command,
    })
}

/// The explanation of an `aggregate` with this body, and stages on buckets. The generic fields are those
/// of the command that explains.
fn explanation(body: &RawDocument, stages: &RawArray) -> Explained {
    let mut command = RawDocumentBuf::new();
    for (name, value) in body.iter().flatten() {
        match name.as_str() {
            "pipeline" => command.append(name, stages),
            "hint" | "explain" => {}
            field if is_generic(field) => {}
            _ => command.append(name, value),
        }
    }
    Explained {
        strategy: Strategy::Pipeline,
        command,
    }
}

/// The pipelines on buckets that return the result of the client's pipeline.
struct Stages {
    /// Reads all pages that may have an item of the result.
    all_items: RawArrayBuf,
    /// Reads one page of each key. `None` if the client's pipeline needs other items, or if `all_items` could
    /// not be executed after a refusal.
    skip_scan: Option<RawArrayBuf>,
    /// The filter of the first stage, if that is a `$match`.
    filter: Option<RawDocumentBuf>,
    /// Whether another pipeline can be executed after this one, and the reply needs no other collection.
    may_be_repeated: bool,
    /// Whether the client's pipeline begins with a query by distance.
    is_by_distance: bool,
}

/// Plans the pipelines on buckets, and checks that the referenced collections can be read.
async fn stored(run: &mut BucketCommand<'_>, aggregate: &Aggregate<'_>) -> Result<Stages, RunError> {
    let mut pipelines = Pipelines::new(&run.context.settings.shapes, run.context.head.database);
    let refusals = run.context.refusals();
    let (read, merge) = explained_merge(run, &aggregate.pipeline)?;
    let stages = pipelines
        .stages(read, PipelinePosition::Open)
        .map_err(|refused| refuse_stage(refusals, &refused))?;
    let unwound = if begins_with_distance(&stages) {
        None
    } else {
        Some(match count_pushdown::of_aggregate(run.shape, &stages) {
            Some(counted) => counted,
            None => unwind::of_aggregate(run.shape, &stages).map_err(|what| run.unsupported(&what))?,
        })
    };
    let may_be_repeated = may_be_repeated(run, aggregate);
    let skip_scan = may_be_repeated
        .then(|| skip_scan::of_aggregate(run.shape, run.namespace.collection, &stages))
        .flatten();
    let mut referenced = ReferencedCollections {
        context: &mut run.context,
    };
    let reached = pipelines.into_reached();
    referenced.prepare(&reached).await?;
    run.ensure_readable(aggregate.hint).await?;
    let is_by_distance = unwound.is_none();
    let mut all_items = match unwound {
        Some(stages) => stages,
        None => find::near::of_aggregate(run, &stages, aggregate.hint).await?,
    };
    all_items.extend(merge.map(RawDocument::to_owned));
    let filter = stages.first().and_then(|stage| only_match(stage.as_ref()));
    Ok(Stages {
        all_items: array_of(&all_items),
        skip_scan: skip_scan.map(|stages| array_of(&stages)),
        filter: filter.map(RawDocument::to_owned),
        may_be_repeated: may_be_repeated && reached.is_empty(),
        is_by_distance,
    })
}

/// The stages that read, and the last stage if it merges into a shaped collection: an explanation contains
/// it as it is. Such an `aggregate` is otherwise executed by [`crate::session::merge`].
fn explained_merge<'s, 'd>(
    run: &BucketCommand<'_>,
    pipeline: &'s [&'d RawDocument],
) -> Result<(&'s [&'d RawDocument], Option<&'d RawDocument>), CommandError> {
    let Some((last, read)) = pipeline.split_last() else {
        return Ok((pipeline, None));
    };
    let into = merge::target(run.context.head.database, last);
    if into.and_then(|into| run.context.settings.shapes.bucket(into)).is_none() {
        return Ok((pipeline, None));
    }
    if MergeStage::parse(last).is_some_and(|merge| !merge.is_by_id()) {
        return Err(run.unsupported("explain of a $merge by other fields than _id into a shaped collection"));
    }
    Ok((read, Some(last)))
}

/// Whether the pipeline of all items can be executed after mongod has [refused](is_refused) a skip scan. It
/// cannot in a transaction, which the error has ended. It cannot with a batch size of 0, because the error is
/// then that of the first `getMore`. It cannot with a stage that writes, because the stage might have
/// written. A skip scan reads the page index, so a hint and a collation exclude it, too.
fn may_be_repeated(run: &BucketCommand<'_>, aggregate: &Aggregate<'_>) -> bool {
    let cursor = get(run.context.head.body(), "cursor").and_then(RawBsonRef::as_document);
    let batch_size = cursor.and_then(|cursor| as_whole_number(get(cursor, "batchSize")?));
    !run.context.head.in_transaction()
        && aggregate.hint.is_none()
        && aggregate.collation.is_none()
        && batch_size != Some(0)
        && !aggregate.pipeline.last().is_some_and(|stage| writes(stage))
}

fn writes(stage: &RawDocument) -> bool {
    matches!(first_field(stage), Some(("$out" | "$merge", _)))
}
