//! Queries by distance, answered by a pipeline that begins with `$geoNear` on pages.

use std::sync::Arc;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::{aggregation_of, as_find_reply, by_pipeline, validate};
use crate::command::document::{first_field, get, put, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::find::Find;
use crate::pattern::bucket::near::{self, GeoNear, Near, NearAccess, NearFilter};
use crate::pattern::bucket::readable_indexes::ReadableIndexes;
use crate::pattern::unwound;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::explanation::Explained;
use crate::session::bucket::indexes;
use crate::session::bucket::upstream_query::complete;
use crate::session::error::RunError;
use crate::session::metrics::Strategy;

/// Costs one round trip, and one for the list of indexes if it is not cached.
pub(super) async fn run(
    run: &mut BucketCommand<'_>,
    find: &Find<'_>,
    filter: &NearFilter<'_>,
) -> Result<RawDocumentBuf, RunError> {
    let rest = rest_of(find, filter);
    if run.collection.is_none() && filter.near.is_some() {
        return by_pipeline(run, &rest).await;
    }
    let command = command(run, &rest, find, filter).await?;
    let command = complete(run, command);
    run.record_read(Strategy::Index);
    match run.context.link.run(&command).await {
        Ok(reply) => as_find_reply(run, &rest, reply).await,
        Err(error) => Err(in_application_terms(run, error)),
    }
}

pub(super) async fn explained(
    run: &mut BucketCommand<'_>,
    find: &Find<'_>,
    filter: &NearFilter<'_>,
) -> Result<Explained, RunError> {
    let rest = rest_of(find, filter);
    let command = command(run, &rest, find, filter).await?;
    let strategy = Strategy::Index;
    Ok(Explained { strategy, command })
}

/// The query with the other conditions alone.
fn rest_of<'a>(find: &Find<'a>, filter: &'a NearFilter<'_>) -> Find<'a> {
    let rest: &RawDocument = &filter.rest;
    Find {
        filter: Some(rest).filter(|rest| !rest.is_empty()),
        ..find.clone()
    }
}

/// The aggregation that returns the items. Before a refusal, mongod checks the query: its error comes first.
///
/// # Errors
/// mongod's error for the query.
async fn command(
    run: &mut BucketCommand<'_>,
    rest: &Find<'_>,
    find: &Find<'_>,
    filter: &NearFilter<'_>,
) -> Result<RawDocumentBuf, RunError> {
    match planned(run, rest, find, filter).await {
        Err(RunError::Command(error @ CommandError::Own { .. })) => {
            check_by_mongod(run, query(run, find)).await?;
            Err(error.into())
        }
        planned => planned,
    }
}

async fn planned(
    run: &mut BucketCommand<'_>,
    rest: &Find<'_>,
    find: &Find<'_>,
    filter: &NearFilter<'_>,
) -> Result<RawDocumentBuf, RunError> {
    let Some(near) = &filter.near else {
        return Err(run.unsupported("this form of $near in a filter").into());
    };
    let indexes = answering(run, near, rest.filter).await?;
    if find.hint.is_some() {
        return Err(run.unsupported("a hint beside $near").into());
    }
    let stages = near::of_find(run.shape, near, rest, &indexes).map_err(|what| run.unsupported(&what))?;
    validate(run, rest).await?;
    Ok(aggregation_of(run, rest, &stages))
}

/// The client's own query, without options that a `find` on pages cannot have. mongod has an error of its own
/// for a hint of `$natural`.
fn query(run: &BucketCommand<'_>, find: &Find<'_>) -> RawDocumentBuf {
    let mut query = unwound::single_batch(run.namespace.collection, find);
    let hint = find.hint.and_then(RawBsonRef::as_document);
    if let Some(natural) = hint.filter(|hint| get(hint, "$natural").is_some()) {
        put(&mut query, "hint", natural);
    }
    put(&mut query, "limit", 1);
    query
}

/// Has mongod check a query by distance. A well-formed one reaches the planner, which finds no index for it.
async fn check_by_mongod(run: &mut BucketCommand<'_>, query: RawDocumentBuf) -> Result<(), RunError> {
    let query = complete(run, query);
    match run.context.link.validate(&query).await {
        Err(RunError::Command(error)) if has_no_index(&error) => Ok(()),
        checked => checked,
    }
}

/// The indexes of the collection. None in a dry run, which sends nothing.
async fn indexes(run: &mut BucketCommand<'_>) -> Result<Arc<ReadableIndexes>, RunError> {
    if run.context.link.is_dry_run() {
        return Ok(Arc::default());
    }
    indexes::stored(run).await
}

/// The collection's indexes, if one of them answers the query. `others`: the conditions that are not on the
/// distance.
///
/// # Errors
/// mongod's error if none of them answers it.
async fn answering(
    run: &mut BucketCommand<'_>,
    near: &Near<'_>,
    others: Option<&RawDocument>,
) -> Result<Arc<ReadableIndexes>, RunError> {
    let mut indexes = indexes(run).await?;
    if near.access(&indexes, others) == NearAccess::None {
        // Another proxy may have created an index.
        indexes::forget(run);
        indexes = self::indexes(run).await?;
    }
    match near.access(&indexes, others) {
        NearAccess::Index => Ok(indexes),
        NearAccess::None if run.context.link.is_dry_run() => Ok(indexes),
        NearAccess::None => Err(no_index(run).into()),
        NearAccess::Undecided => {
            let what = "a query by distance without equalities on the fields before the location in the index";
            Err(run.unsupported(what).into())
        }
    }
}

/// mongod's error for a query that no index answers, except for the query that it contains.
fn no_index(run: &BucketCommand<'_>) -> CommandError {
    let message = format!(
        "error processing query: ns={}: planner returned error :: caused by :: unable to find index for $geoNear query",
        run.namespace
    );
    CommandError::new(ErrorCode::NoQueryExecutionPlans, message)
}

/// The stages that answer a pipeline that begins with `$geoNear`. Before a refusal, mongod checks the stage.
///
/// # Errors
/// mongod's error for the stage.
pub(in crate::session::bucket) async fn of_aggregate(
    run: &mut BucketCommand<'_>,
    stages: &[impl AsRef<RawDocument>],
    hint: Option<RawBsonRef<'_>>,
) -> Result<Vec<RawDocumentBuf>, RunError> {
    if hint.is_some() {
        return Err(run.unsupported("a hint beside $geoNear").into());
    }
    let empty = RawDocumentBuf::new();
    let (stage, behind) = stages.split_first().unzip();
    let stage = stage.map_or(&*empty, AsRef::as_ref);
    match planned_pipeline(run, stage, behind.unwrap_or_default()).await {
        Err(RunError::Command(error @ CommandError::Own { .. })) => {
            let stages = [stage.to_owned(), single("$limit", 1)];
            check_by_mongod(run, unwound::aggregate(run.namespace.collection, &stages, None)).await?;
            Err(error.into())
        }
        planned => planned,
    }
}

async fn planned_pipeline(
    run: &mut BucketCommand<'_>,
    stage: &RawDocument,
    behind: &[impl AsRef<RawDocument>],
) -> Result<Vec<RawDocumentBuf>, RunError> {
    near::check_behind(behind).map_err(|what| run.unsupported(&what))?;
    let argument = first_field(stage).and_then(|(_, argument)| argument.as_document());
    let parsed = argument.filter(|_| stage.iter().count() == 1).and_then(GeoNear::parse);
    // On a missing collection mongod reports an error, too.
    let Some(geo_near) = parsed.filter(|_| run.collection.is_some()) else {
        return Err(run.unsupported("this form of $geoNear").into());
    };
    if let Some(operator) = geo_near.query.and_then(unwound::unsupported_operator) {
        return Err(run.unsupported(&format!("{operator} in the query of $geoNear")).into());
    }
    let path = if let Some(key) = geo_near.key {
        key.to_owned()
    } else {
        let mut indexes = indexes(run).await?;
        if near::only_location(&indexes, run.namespace).is_err() {
            // Another proxy may have created or dropped an index.
            indexes::forget(run);
            indexes = self::indexes(run).await?;
        }
        near::only_location(&indexes, run.namespace)?.to_owned()
    };
    let indexes = answering(run, &geo_near.near(&path), geo_near.query).await?;
    Ok(near::of_aggregate(run.shape, &geo_near, &path, behind, &indexes))
}

fn has_no_index(error: &CommandError) -> bool {
    error.is(ErrorCode::NoQueryExecutionPlans) || error.is(ErrorCode::IndexNotFound)
}

/// The error of a plain collection for one on pages.
pub(in crate::session::bucket) fn in_application_terms(run: &BucketCommand<'_>, error: RunError) -> RunError {
    let RunError::Command(error) = error else {
        return error;
    };
    if let Some(what) = near::uncomputed(error.message()) {
        return run.unsupported(what).into();
    }
    if has_no_index(&error) {
        return no_index(run).into();
    }
    error.into()
}
