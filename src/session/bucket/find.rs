//! `find`: from pages if they answer the query, otherwise by a pipeline.

mod access_path;
mod fill_batch;
mod first_page;
pub(super) mod index_scan;
pub(in crate::session) mod item_cursor;
mod merge;
pub(super) mod near;
mod numbered_pages;

use bson::raw::{RawDocument, RawDocumentBuf, cstr};
use bson::rawdoc;

use self::access_path::{AccessPath, BatchTerms};
use self::item_cursor::{BatchLimit, BatchRequest, BatchStatus, ItemCursor};
use super::command::BucketCommand;
use super::cursor_source::CursorSource;
use super::explanation::Explained;
use super::indexes;
use super::page_pruning::{self, FilterAndCollation};
use super::retry_on_swap::{MAX_RUNS, is_swap_error};
use super::upstream_query::{complete, kill};
use crate::command::batch::{BatchKind, ReplyBatch};
use crate::command::document::{as_whole_number, get};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::find::Find;
use crate::command::reply::{CursorReply, copy_cluster_time, with_closed_cursor};
use crate::pattern::bucket::near::NearFilter;
use crate::pattern::bucket::read::bucket_query::BucketQuery;
use crate::pattern::bucket::read::page_scan::{PageScan, ScanDirection};
use crate::pattern::bucket::unwind;
use crate::pattern::unwound;
use crate::session::backoff::pause;
use crate::session::error::RunError;
use crate::session::metrics::Strategy;

/// Documents in a first batch when the client names no size (`query.h`, `kDefaultBatchSize`).
const DEFAULT_BATCH_SIZE: u64 = 101;

pub(super) async fn run(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let find = Find::parse(run.context.head.body())?;
    check(run, &find)?;
    run.ensure_readable(find.hint).await?;
    check_tailable(run, &find)?;
    if let Some(filter) = find.filter.and_then(NearFilter::of) {
        return near::run(run, &find, &filter).await;
    }
    check_order(run, &find)?;
    let by_id = rawdoc! { "_id": 1 };
    let find = in_plain_order(find, &by_id);
    if let Some(reply) = without_pipeline(run, &find).await? {
        return Ok(reply);
    }
    run.record_read(Strategy::Pipeline);
    by_pipeline(run, &find).await
}

/// Executes a `find` that is a part of another command. Executes it again if the collection was swapped in
/// the meantime.
pub(in crate::session) async fn internal(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    for failures in 1..MAX_RUNS {
        match self::run(run).await {
            Err(RunError::Command(error)) if is_swap_error(&error) => {
                run.context.settings.catalog.forget(run.namespace);
                pause(failures).await;
            }
            found => return found,
        }
    }
    self::run(run).await
}

/// The query with a sort by `_id` if a plain collection returns its documents in that order anyway.
fn in_plain_order<'a>(mut find: Find<'a>, by_id: &'a RawDocument) -> Find<'a> {
    if find.is_by_listed_ids() {
        find.sort = Some(by_id);
    }
    find
}

/// The reply that the proxy makes from buckets. `None` if the query needs a pipeline.
pub(super) async fn without_pipeline(
    run: &mut BucketCommand<'_>,
    find: &Find<'_>,
) -> Result<Option<RawDocumentBuf>, RunError> {
    if let Some(query) = BucketQuery::of(run.shape, find) {
        return from_buckets(run, find, &query).await;
    }
    index_scan::run(run, find).await
}

/// The access path and the internal command of a `find`, for `explain`.
pub(super) async fn explained(run: &mut BucketCommand<'_>, find: &Find<'_>) -> Result<Explained, RunError> {
    check(run, find)?;
    run.ensure_readable(find.hint).await?;
    check_tailable(run, find)?;
    if let Some(filter) = find.filter.and_then(NearFilter::of) {
        return near::explained(run, find, &filter).await;
    }
    check_order(run, find)?;
    let by_id = rawdoc! { "_id": 1 };
    let find = &in_plain_order(find.clone(), &by_id);
    if let Some(explained) = explained_without_pipeline(run, find).await? {
        return Ok(explained);
    }
    validate(run, find).await?;
    let command = pipeline_of(run, find)?;
    let command = page_pruning::pruned(run, command, query_of(find)).await?;
    let strategy = Strategy::Pipeline;
    Ok(Explained { strategy, command })
}

/// The explanation of a reply that the proxy makes from buckets. `None` if the query needs a pipeline.
pub(super) async fn explained_without_pipeline(
    run: &mut BucketCommand<'_>,
    find: &Find<'_>,
) -> Result<Option<Explained>, RunError> {
    if let Some(query) = BucketQuery::of(run.shape, find)
        && let Some(explained) = buckets_explained(run, find, &query).await?
    {
        return Ok(Some(explained));
    }
    index_scan::explained(run, find).await
}

async fn buckets_explained(
    run: &mut BucketCommand<'_>,
    find: &Find<'_>,
    query: &BucketQuery,
) -> Result<Option<Explained>, RunError> {
    let terms = BatchTerms::of(find, query);
    let (mut stream, first) = match access_path::plan(run, query, terms).await? {
        AccessPath::PageScan(stream, first) => (stream, first),
        AccessPath::Nothing(_) => return Ok(merge::explained(run, query).filter(|_| terms.single_batch)),
        AccessPath::Merge => return Ok(merge::explained(run, query).filter(|_| terms.may_merge_sort)),
        AccessPath::Pipeline => return Ok(None),
    };
    let command = stream.query(run, terms.measure);
    // The first bucket shows whether a page scan answers the query.
    let wanted = BatchRequest::first(BatchLimit::of(Some(0)));
    let (_, filled) = stream.fill(run, run.shape, wanted, first).await?;
    stream.close(run).await?;
    if filled == BatchStatus::NotAnswered {
        return Ok(merge::explained(run, query).filter(|_| terms.may_merge_sort));
    }
    let strategy = terms.strategy();
    Ok(Some(Explained { strategy, command }))
}

/// The reply from a page scan or a merge. `None` if the query needs a pipeline.
async fn from_buckets(
    run: &mut BucketCommand<'_>,
    find: &Find<'_>,
    query: &BucketQuery,
) -> Result<Option<RawDocumentBuf>, RunError> {
    let terms = BatchTerms::of(find, query);
    let (measure, closes) = (terms.measure, terms.single_batch);
    // A cursor of the proxy would outlive the transaction. Several queries do not read the same snapshot.
    if (!closes && run.context.head.in_transaction()) || run.context.head.wants_snapshot() {
        return Ok(None);
    }
    if run.context.link.is_dry_run() {
        run.record_read(terms.strategy());
    }
    let (mut stream, first) = match access_path::plan(run, query, terms).await? {
        AccessPath::PageScan(stream, first) => (stream, first),
        AccessPath::Nothing(answer) => {
            let opens = measure.is_nothing() && leaves_open(run, find);
            return without_items(run, query, opens, &answer).await.map(Some);
        }
        AccessPath::Merge => return merged(run, query, terms).await,
        AccessPath::Pipeline => return Ok(None),
    };
    let wanted = BatchRequest::first(measure);
    let (batch, filled) = match stream.fill(run, run.shape, wanted, first).await {
        Ok(filled) => filled,
        // It has ended the transaction.
        Err(error) if run.context.head.in_transaction() => return Err(error),
        // For example, the hinted index does not exist. A pipeline needs no index.
        Err(RunError::Command(error)) if error.is(ErrorCode::BadValue) => return Ok(None),
        // The collection was replaced after an earlier query.
        Err(RunError::Command(error)) if error.is(ErrorCode::CollectionUuidMismatch) => {
            run.context.settings.catalog.forget(run.namespace);
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    if run.is_strict() && !run.is_still_the_same().await? {
        stream.close(run).await?;
        return Ok(None);
    }
    cache_pages(run, query, &mut stream);
    if filled == BatchStatus::NotAnswered {
        stream.close(run).await?;
        return merged(run, query, terms).await;
    }
    if stream.missed_its_item() {
        return Ok(None);
    }
    let leaves_open = filled == BatchStatus::More && leaves_open(run, find);
    if closes && leaves_open {
        // The result exceeds the size of one reply.
        stream.close(run).await?;
        return Ok(None);
    }
    run.record_read(terms.strategy());
    let cluster_time = stream.cluster_time().to_owned();
    let id = if leaves_open {
        let source = CursorSource::items(stream, run);
        run.keep(source).await?
    } else {
        stream.close(run).await?;
        0
    };
    let mut reply = batch.into_reply(run.namespace, id);
    copy_cluster_time(&mut reply, &cluster_time);
    Ok(Some(reply))
}

/// The reply of a query without a matching item. `opens`: a cursor stays open at its end. `answer` is the
/// reply of mongod that shows it.
async fn without_items(
    run: &mut BucketCommand<'_>,
    query: &BucketQuery,
    opens: bool,
    answer: &RawDocument,
) -> Result<RawDocumentBuf, RunError> {
    run.record_read(Strategy::Page);
    let id = if opens {
        let ended = ItemCursor::ended(PageScan::of(query, ScanDirection::Forward), answer);
        let source = CursorSource::items(Box::new(ended), run);
        run.keep(source).await?
    } else {
        0
    };
    let mut reply = ReplyBatch::new(BatchKind::First).into_reply(run.namespace, id);
    copy_cluster_time(&mut reply, answer);
    Ok(reply)
}

/// Caches which pages the query has read.
fn cache_pages(run: &BucketCommand<'_>, query: &BucketQuery, stream: &mut ItemCursor) {
    if let Some(bucket) = stream.first_page() {
        first_page::learn(run, query, &bucket);
    }
    if query.is_by_time() {
        numbered_pages::learn(run, query, stream.read_times());
    }
}

/// Whether a cursor may stay open after the first batch. On a missing collection mongod opens none.
fn leaves_open(run: &BucketCommand<'_>, find: &Find<'_>) -> bool {
    run.collection.is_some() && !find.single_batch
}

/// The reply from a merge of pages by time. `None` if the result exceeds one reply: then mongod sorts.
async fn merged(
    run: &mut BucketCommand<'_>,
    query: &BucketQuery,
    terms: BatchTerms,
) -> Result<Option<RawDocumentBuf>, RunError> {
    if !terms.may_merge_sort {
        return Ok(None);
    }
    let Some((mut items, cluster_time)) = merge::run(run, query).await? else {
        return Ok(None);
    };
    if run.is_strict() && !run.is_still_the_same().await? {
        return Ok(None);
    }
    let mut batch = ReplyBatch::new(BatchKind::First);
    while let Some(item) = items.first().filter(|_| !terms.measure.is_full(&batch)) {
        if !batch.has_space_for(item.len()) {
            return Ok(None);
        }
        batch.push(item);
        items.advance();
    }
    run.record_read(Strategy::Page);
    let mut reply = batch.into_reply(run.namespace, 0);
    copy_cluster_time(&mut reply, &cluster_time);
    Ok(Some(reply))
}

fn check(run: &BucketCommand<'_>, find: &Find<'_>) -> Result<(), CommandError> {
    let has = |option| find.beyond_aggregation.contains(&option);
    if has("awaitData") && !has("tailable") {
        let message = "Cannot set 'awaitData' without also setting 'tailable'";
        return Err(CommandError::new(ErrorCode::FailedToParse, message));
    }
    let is_natural = |sort: &RawDocument| get(sort, "$natural").and_then(as_whole_number) == Some(1);
    if has("tailable") && find.sort.is_some_and(|sort| !sort.is_empty() && !is_natural(sort)) {
        let message = "cannot use tailable option with a sort other than {$natural: 1}";
        return Err(CommandError::new(ErrorCode::BadValue, message));
    }
    let mut options = find.beyond_aggregation.iter();
    if let Some(option) = options.find(|option| !matches!(**option, "tailable" | "awaitData")) {
        return Err(run.unsupported(&format!("find with '{option}'")));
    }
    if find.filter.is_some_and(unwound::has_text) {
        return Err(run.unsupported("$text in a filter"));
    }
    if find.sort.is_some_and(|sort| get(sort, "$natural").is_some()) {
        return Err(run.unsupported("a sort by $natural"));
    }
    Ok(())
}

/// Refuses a hint of an order, unless the query is sorted.
fn check_order(run: &BucketCommand<'_>, find: &Find<'_>) -> Result<(), CommandError> {
    indexes::check_hinted_order(run, find.hint.filter(|_| find.sort.is_none()))
}

/// Refuses a tailable cursor as mongod does on a collection that is not capped. A missing collection has no
/// documents.
fn check_tailable(run: &BucketCommand<'_>, find: &Find<'_>) -> Result<(), CommandError> {
    if run.collection.is_some() && find.beyond_aggregation.contains(&"tailable") {
        let message = "error processing query: tailable cursor requested on non capped collection";
        return Err(CommandError::new(ErrorCode::BadValue, message));
    }
    Ok(())
}

async fn by_pipeline(run: &mut BucketCommand<'_>, find: &Find<'_>) -> Result<RawDocumentBuf, RunError> {
    validate(run, find).await?;
    let command = pipeline_of(run, find)?;
    let command = complete(run, command);
    let reply = page_pruning::run(run, &command, query_of(find)).await?;
    as_find_reply(run, find, reply).await
}

/// Converts the reply to an aggregation to that of a `find`.
async fn as_find_reply(
    run: &mut BucketCommand<'_>,
    find: &Find<'_>,
    reply: RawDocumentBuf,
) -> Result<RawDocumentBuf, RunError> {
    let Some(cursor) = CursorReply::parse(&reply) else {
        return Ok(reply);
    };
    let returned = u64::try_from(cursor.documents().count()).unwrap_or(u64::MAX);
    // Unlike an aggregation, `find` closes its cursor with the last document of the limit, and opens none on
    // a missing collection.
    let is_at_the_end = find.limit > 0 && returned >= find.limit;
    if cursor.id != 0 && (is_at_the_end || !leaves_open(run, find)) {
        kill(run, cursor.id).await?;
        return Ok(with_closed_cursor(&reply));
    }
    run.context.shared.cursors.opened(cursor.id);
    Ok(reply)
}

/// Has mongod validate a projection that only `find` accepts. Costs one round trip for such a projection.
///
/// # Errors
/// mongod's error for the projection.
async fn validate(run: &mut BucketCommand<'_>, find: &Find<'_>) -> Result<(), RunError> {
    validate_code(run, find.filter, find.let_variables).await?;
    let command = unwound::validation(run.namespace.collection, find).map_err(|what| not_in_projection(run, what))?;
    match command {
        Some(command) => {
            let command = complete(run, command);
            run.context.link.validate(&command).await
        }
        None => Ok(()),
    }
}

/// Has mongod compile the code of `$where` conditions, also if no item is read. Costs one round trip if there
/// are any.
///
/// # Errors
/// mongod's error for the code.
pub(super) async fn validate_code(
    run: &mut BucketCommand<'_>,
    filter: Option<&RawDocument>,
    let_variables: Option<&RawDocument>,
) -> Result<(), RunError> {
    let validation = code_validation(run, filter, let_variables);
    send_validation(run, validation).await
}

/// Has mongod validate the code of the filter and the variables of a removal, whose own statements name neither.
///
/// # Errors
/// mongod's error for them.
pub(super) async fn validate_code_and_variables(
    run: &mut BucketCommand<'_>,
    filter: Option<&RawDocument>,
    let_variables: Option<&RawDocument>,
) -> Result<(), RunError> {
    let of_code = code_validation(run, filter, let_variables);
    let validation = of_code.or_else(|| unwound::let_validation(run.namespace.collection, let_variables));
    send_validation(run, validation).await
}

fn code_validation(
    run: &BucketCommand<'_>,
    filter: Option<&RawDocument>,
    let_variables: Option<&RawDocument>,
) -> Option<RawDocumentBuf> {
    unwound::code_validation(run.namespace.collection, filter?, let_variables)
}

async fn send_validation(run: &mut BucketCommand<'_>, validation: Option<RawDocumentBuf>) -> Result<(), RunError> {
    match validation {
        Some(command) => {
            let command = page_pruning::completed(run, command);
            run.context.link.validate(&command).await
        }
        None => Ok(()),
    }
}

fn query_of<'a>(find: &Find<'a>) -> FilterAndCollation<'a> {
    FilterAndCollation {
        filter: find.filter,
        collation: find.collation,
    }
}

/// The aggregation that returns the same items.
fn pipeline_of(run: &BucketCommand<'_>, find: &Find<'_>) -> Result<RawDocumentBuf, CommandError> {
    let stages = unwind::of_find(run.shape, find).map_err(|form| not_in_projection(run, form))?;
    Ok(aggregation_of(run, find, &stages))
}

/// The aggregation of these stages with the options of a `find`.
fn aggregation_of(run: &BucketCommand<'_>, find: &Find<'_>, stages: &[RawDocumentBuf]) -> RawDocumentBuf {
    let mut command = unwound::aggregate(run.namespace.collection, stages, find.batch_size);
    if let Some(collation) = find.collation {
        command.append(cstr!("collation"), collation);
    }
    if let Some(variables) = find.let_variables {
        command.append(cstr!("let"), variables);
    }
    if let Some(allowed) = find.allow_disk_use {
        command.append(cstr!("allowDiskUse"), allowed);
    }
    command
}

fn not_in_projection(run: &BucketCommand<'_>, form: &str) -> CommandError {
    run.unsupported(&format!("{form} in a projection"))
}
