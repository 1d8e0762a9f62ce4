//! `count`, `distinct`, `aggregate` and `explain`. Passed on if they do not depend on the array.
//! Otherwise a pipeline reassembles outliers first.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::OutlierCommand;
use super::merged_read::put_together;
use crate::command::aggregate::Aggregate;
use crate::command::arguments::with_replaced;
use crate::command::count::{Count, all_of};
use crate::command::distinct::{Distinct, too_big};
use crate::command::document::{array_of, as_flag, first_field, get, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::find::Find;
use crate::command::reply::{CursorReply, copy_cluster_time};
use crate::pattern::outlier::classify::{depends_on_array, names_own};
use crate::pattern::outlier::enclosed::{enclosing, with_enclosed};
use crate::pattern::outlier::pipeline;
use crate::pattern::pipeline::{PipelinePosition, Pipelines};
use crate::pattern::shapes::Reads;
use crate::pattern::unwound;
use crate::session::aggregate_validation::first_aggregate_error;
use crate::session::cross_collection::ReferencedCollections;
use crate::session::dotted_names::{dotted_names, unless_rejected_name};
use crate::session::error::RunError;
use crate::session::metrics::Strategy;
use crate::session::refusal::refuse_stage;

/// Stages that read metadata of the collection instead of documents.
const OF_COLLECTION: &[&str] = &["$collStats", "$indexStats", "$planCacheStats"];
/// Values in one batch: more than a reply can hold.
const BATCH_SIZE: u64 = 10_000_000;
/// Maximum bytes of the values of a `distinct` (`distinct.cpp`: `kMaxResponseSize`).
const MAX_BYTES: usize = 16 * 1024 * 1024 - 4096;

impl OutlierCommand<'_> {
    /// Calls [`put_together`] on the command's connection.
    pub(super) async fn put_together(&mut self, command: &RawDocument) -> Result<RawDocumentBuf, RunError> {
        put_together(self.context.link, command).await
    }

    fn count_pipeline(&mut self) {
        self.record_read(Strategy::Pipeline);
    }
}

/// Has mongod validate a projection that only `find` supports.
pub(super) async fn validate_find(run: &mut OutlierCommand<'_>, find: &Find<'_>) -> Result<(), RunError> {
    let validation = unwound::validation(run.namespace.collection, find);
    if let Some(mut command) = validation.map_err(|what| run.unsupported(what))? {
        run.context.inherited().append_to_read(&mut command);
        run.context.link.validate(&command).await?;
    }
    Ok(())
}

pub(super) async fn count(run: &mut OutlierCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let count = Count::parse(run.context.head.body())?;
    let Some(query) = count.query.filter(|query| must_merge(run, query)) else {
        return run.as_it_is().await;
    };
    let most = (count.limit > 0).then(|| count.limit.saturating_add(count.skip));
    let stages = pipeline::of_count(run.shape, query, most).map_err(|what| run.unsupported(&what))?;
    let mut command = unwound::aggregate(run.namespace.collection, &stages, None);
    if let Some(collation) = count.collation {
        command.append(cstr!("collation"), collation);
    }
    if let Some(hint) = count.hint {
        command.append(cstr!("hint"), hint);
    }
    let mut validation = single("count", run.namespace.collection);
    validation.append(cstr!("limit"), 1);
    validate_variable(run, validation, count.query).await?;
    run.count_pipeline();
    run.context.inherited().append_to_read(&mut command);
    let answer = run.put_together(&command).await?;
    Ok(count.reply(all_of(&answer), &answer))
}

/// Has mongod validate a query of a `count` or `distinct` that references variables.
async fn validate_variable(
    run: &mut OutlierCommand<'_>,
    command: RawDocumentBuf,
    query: Option<&RawDocument>,
) -> Result<(), RunError> {
    if let Some(mut command) = unwound::variable_validation(command, &[], query) {
        run.context.inherited().append_to_read(&mut command);
        run.context.link.validate(&command).await?;
    }
    Ok(())
}

fn must_merge(run: &OutlierCommand<'_>, expression: &RawDocument) -> bool {
    run.shape.reads() == Reads::Merged && depends_on_array(run.shape, expression)
}

pub(super) async fn distinct(run: &mut OutlierCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let wanted = Distinct::parse(run.context.head.body())?;
    if run.shape.reads() == Reads::Merged && names_own(run.shape, RawBsonRef::String(wanted.key)) {
        return Err(run.unsupported(&format!("distinct of `{}`", wanted.key)).into());
    }
    let of_array = must_merge(run, &single(wanted.key, 1));
    if !of_array && !wanted.query.is_some_and(|query| must_merge(run, query)) {
        return run.as_it_is().await;
    }
    run.context.link.check_field(wanted.newer_field()).await?;
    let dotted = dotted_names(run.context.link, &wanted).await?;
    let stages = pipeline::of_distinct(run.shape, wanted.key, wanted.query, wanted.collation, dotted)
        .map_err(|what| run.unsupported(&what))?;
    let mut command = unwound::aggregate(run.namespace.collection, &stages, Some(BATCH_SIZE));
    if let Some(collation) = wanted.collation {
        command.append(cstr!("collation"), collation);
    }
    if let Some(hint) = wanted.hint {
        command.append(cstr!("hint"), hint);
    }
    let mut validation = single("distinct", run.namespace.collection);
    validation.append(cstr!("key"), "_id");
    validate_variable(run, validation, wanted.query).await?;
    run.count_pipeline();
    run.context.inherited().append_to_read(&mut command);
    let answer = run.put_together(&command).await;
    let answer = answer.map_err(|error| unless_rejected_name(error, |what| run.unsupported(what)))?;
    let mut values = RawArrayBuf::new();
    if let Some(cursor) = CursorReply::parse(&answer) {
        if wanted.collation.is_some() && cursor.batch.into_iter().flatten().any(unwound::distinct::holds_symbol) {
            return Err(run.unsupported("distinct of symbols under a collation").into());
        }
        for document in cursor.documents() {
            values.push(get(document, "v").unwrap_or(RawBsonRef::Null));
        }
        if cursor.id != 0 || values.as_bytes().len() > MAX_BYTES {
            return Err(too_big().into());
        }
    }
    let mut reply = single("values", &values);
    if let Some(time) = CursorReply::parse(&answer).and_then(|cursor| cursor.snapshot_time) {
        reply.append(cstr!("atClusterTime"), time);
    }
    reply.append(cstr!("ok"), 1.0);
    copy_cluster_time(&mut reply, &answer);
    Ok(reply)
}

pub(super) async fn aggregate(run: &mut OutlierCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let body = run.context.head.body();
    let aggregate = match Aggregate::parse(body) {
        Ok(aggregate) => aggregate,
        Err(error) => return Err(first_aggregate_error(run.context.link, run.context.head, error).await),
    };
    let stages = &aggregate.pipeline;
    let first = stages
        .first()
        .and_then(|stage| first_field(stage))
        .map(|(name, _)| name);
    if first == Some("$changeStream") {
        return Err(run.unsupported("a change stream").into());
    }
    let reaches_others = stages.iter().any(|stage| reaches_others(stage));
    let is_of_collection = first.is_some_and(|name| OF_COLLECTION.contains(&name));
    if !reaches_others && (is_of_collection || leaves_array_out(run, stages)) {
        return of_base_documents(run, &aggregate).await;
    }
    if run.shape.reads() == Reads::Base {
        return Err(run
            .unsupported("a pipeline that may read all fields, with reads = \"base\",")
            .into());
    }
    if aggregate.explain {
        return Err(run
            .unsupported("explain of a pipeline that may depend on the array")
            .into());
    }
    let mut pipelines = Pipelines::new(&run.context.settings.shapes, run.context.head.database);
    let refusals = run.context.refusals();
    let rewritten = pipelines
        .stages(stages, PipelinePosition::Open)
        .map_err(|refused| refuse_stage(refusals, &refused))?;
    let stages = if is_of_collection {
        rewritten
    } else {
        pipeline::of_aggregate(run.shape, stages, &rewritten).map_err(|what| run.unsupported(&what))?
    };
    let mut referenced = ReferencedCollections {
        context: &mut run.context,
    };
    referenced.prepare(&pipelines.into_reached()).await?;
    let stages: RawArrayBuf = enclosing(run.shape, &stages).unwrap_or_else(|| array_of(&stages));
    let command = with_replaced(body, &[("pipeline", Some(RawBsonRef::Array(&stages)))]);
    run.count_pipeline();
    let reply = run.put_together(&command).await?;
    Ok(with_enclosed(run.shape, reply))
}

/// Executes a pipeline that does not depend on the array.
async fn of_base_documents(
    run: &mut OutlierCommand<'_>,
    aggregate: &Aggregate<'_>,
) -> Result<RawDocumentBuf, RunError> {
    let Some(stages) = enclosing(run.shape, &aggregate.pipeline).filter(|_| !aggregate.explain) else {
        return run.as_it_is().await;
    };
    let replaced = [("pipeline", Some(RawBsonRef::Array(&stages)))];
    let body = with_replaced(run.context.head.body(), &replaced);
    let reply = run.with_body(&body).await?;
    Ok(with_enclosed(run.shape, reply))
}

/// Whether no stage depends on the array, and the result does not contain whole documents.
fn leaves_array_out(run: &OutlierCommand<'_>, stages: &[&RawDocument]) -> bool {
    let shape = run.shape;
    let is_blind = |stage: &&RawDocument| {
        !depends_on_array(shape, stage) && !names_own(shape, RawBsonRef::Document(stage)) && !chooses_index(stage)
    };
    stages.iter().all(is_blind) && stages.iter().any(|stage| makes_others(stage))
}

/// Whether mongod chooses the geographic index that a stage uses, which may be one of the array's elements.
fn chooses_index(stage: &RawDocument) -> bool {
    let arguments = get(stage, "$geoNear").and_then(RawBsonRef::as_document);
    arguments.is_some_and(|arguments| get(arguments, "key").is_none())
}

/// Whether a stage can read another collection, which may be a shaped one.
fn reaches_others(stage: &RawDocument) -> bool {
    let first = first_field(stage).map(|(name, _)| name);
    first.is_some_and(|name| {
        matches!(
            name,
            "$lookup" | "$graphLookup" | "$unionWith" | "$facet" | "$out" | "$merge"
        )
    })
}

/// Whether a stage returns documents with only the fields that it names.
fn makes_others(stage: &RawDocument) -> bool {
    match first_field(stage) {
        Some(("$group" | "$count" | "$sortByCount" | "$bucket" | "$bucketAuto", _)) => true,
        Some(("$project", RawBsonRef::Document(fields))) => {
            let mut fields = fields.iter().flatten().filter(|(name, _)| name.as_str() != "_id");
            fields
                .next()
                .is_some_and(|(_, value)| !matches!(value, RawBsonRef::Document(_)) && as_flag(value) == Some(true))
        }
        _ => false,
    }
}

/// Passed on if the explained command does not depend on the array.
pub(super) async fn explain(run: &mut OutlierCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let explained = get(run.context.head.body(), "explain").and_then(RawBsonRef::as_document);
    let depends = explained.is_none_or(|explained| depends_on_array(run.shape, explained));
    if depends {
        let what = format!("explain of a command that may depend on {}", run.shape.array());
        return Err(run.unsupported(&what).into());
    }
    run.as_it_is().await
}

/// The error for a write that succeeded in an earlier attempt and whose result is no longer
/// available.
pub(super) fn forgotten() -> CommandError {
    let message = "the retried command already succeeded, but its original result is no longer available";
    CommandError::new(ErrorCode::IllegalOperation, message)
}
