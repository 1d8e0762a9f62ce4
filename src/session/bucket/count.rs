//! `count`: sums the counts of page headers if that is exact, otherwise counts items by a pipeline.

use bson::raw::{RawDocument, RawDocumentBuf, cstr};

use super::command::BucketCommand;
use super::explanation::Explained;
use super::find::validate_code;
use super::page_pruning::{self, FilterAndCollation};
use super::upstream_query::{ask, complete, documents, first_bucket};
use crate::command::count::{Count, all_of};
use crate::command::document::single;
use crate::command::error::{CommandError, ErrorCode};
use crate::pattern::bucket::page_locator::PageExceptions;
use crate::pattern::bucket::predicate_pushdown::BucketPredicate;
use crate::pattern::bucket::read::Queries;
use crate::pattern::bucket::unwind;
use crate::pattern::unwound;
use crate::session::error::RunError;
use crate::session::metrics::Strategy;

pub(super) async fn run(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    if run.context.head.in_transaction() {
        let message = "Cannot run 'count' in a multi-document transaction.";
        return Err(CommandError::new(ErrorCode::OperationNotSupportedInTransaction, message).into());
    }
    let count = Count::parse(run.context.head.body())?;
    check(run, &count).await?;
    if let Some((all, answer)) = of_one_key(run, &count).await? {
        return Ok(count.reply(all, &answer));
    }
    let mut command = by_pipeline(run, &count);
    run.context.inherited().append_to_read(&mut command);
    let answer = page_pruning::run(run, &command, query_of(&count)).await?;
    Ok(count.reply(all_of(&answer), &answer))
}

/// The access path and the internal command of a `count`, for `explain`.
pub(super) async fn explained(run: &mut BucketCommand<'_>, count: &Count<'_>) -> Result<Explained, RunError> {
    check(run, count).await?;
    Ok(match only_key(run, count) {
        Some(key) => Explained {
            strategy: Strategy::Page,
            command: queries(run, &key).highest(run.shape),
        },
        None => Explained {
            strategy: Strategy::Pipeline,
            command: page_pruning::pruned(run, by_pipeline(run, count), query_of(count)).await?,
        },
    })
}

async fn check(run: &mut BucketCommand<'_>, count: &Count<'_>) -> Result<(), RunError> {
    if let Some(operator) = count.query.and_then(unwound::unsupported_operator) {
        return Err(run.unsupported(&format!("{operator} in a filter")).into());
    }
    run.ensure_readable(count.hint).await?;
    let mut command = single("count", run.namespace.collection);
    command.append(cstr!("limit"), 1);
    validate_variable(run, command, count.query).await?;
    validate_code(run, count.query, None).await
}

/// Has mongod validate its own variables (`$$NAME`) in the query of a `count` or `distinct`.
///
/// Costs one round trip if the query has such a variable.
///
/// # Errors
/// mongod's error for the variable.
pub(super) async fn validate_variable(
    run: &mut BucketCommand<'_>,
    command: RawDocumentBuf,
    query: Option<&RawDocument>,
) -> Result<(), RunError> {
    let narrowing = BucketPredicate::of(run.shape, query);
    if let Some(mut command) = unwound::variable_validation(command, narrowing.clauses(), query) {
        run.context.inherited().append_to_read(&mut command);
        run.context.link.validate(&command).await?;
    }
    Ok(())
}

/// The key that the query selects, if its page headers answer the count.
fn only_key(run: &BucketCommand<'_>, count: &Count<'_>) -> Option<RawDocumentBuf> {
    let key = BucketPredicate::of(run.shape, count.query).only_one_key();
    // With a collation several keys may be equal. Two queries do not read the same snapshot.
    key.filter(|_| count.collation.is_none() && !run.context.head.wants_snapshot())
}

fn queries<'q>(run: &'q BucketCommand<'_>, key: &'q RawDocument) -> Queries<'q> {
    Queries {
        source: run.source(),
        key,
    }
}

/// The number of items of one key, from its highest page and its exceptions, and the reply with the latter.
/// `None` if these do not suffice. Costs one round trip.
async fn of_one_key(run: &mut BucketCommand<'_>, count: &Count<'_>) -> Result<Option<(u64, RawDocumentBuf)>, RunError> {
    let Some(key) = only_key(run, count) else {
        return Ok(None);
    };
    let queries = queries(run, &key);
    // Exceptions that are read after the highest page include every short page before it.
    let queries = [queries.highest(run.shape), queries.exceptions(run.shape)].map(|query| complete(run, query));
    let Some([highest, answer]) = ask(run, queries).await? else {
        return Ok(None);
    };
    if run.is_strict() && !run.is_still_the_same().await? {
        return Ok(None);
    }
    let exceptions = PageExceptions::parse(run.shape, documents(&answer));
    let all = exceptions.total(run.shape, first_bucket(run, &highest)?.as_ref());
    Ok((!exceptions.too_many).then_some((all, answer)))
}

fn query_of<'a>(count: &Count<'a>) -> FilterAndCollation<'a> {
    FilterAndCollation {
        filter: count.query,
        collation: count.collation,
    }
}

fn by_pipeline(run: &BucketCommand<'_>, count: &Count<'_>) -> RawDocumentBuf {
    let mut command = unwound::aggregate(run.namespace.collection, &stages(run, count), None);
    if let Some(collation) = count.collation {
        command.append(cstr!("collation"), collation);
    }
    command
}

/// The stages that count the items that match.
fn stages(run: &BucketCommand<'_>, count: &Count<'_>) -> Vec<RawDocumentBuf> {
    let narrowing = BucketPredicate::of(run.shape, count.query);
    // With a collation the key condition also selects other keys. Their counts are exact as well.
    if narrowing.is_of_key_alone() {
        return unwind::sum_of_counts(run.shape, &narrowing);
    }
    // Items beyond `skip` and `limit` do not change the result.
    let limit = (count.limit > 0).then(|| count.limit.saturating_add(count.skip));
    unwind::of_count(run.shape, count.query, limit)
}
