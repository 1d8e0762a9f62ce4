//! `findAndModify`. An item named by `_id` is changed by one statement on its page, and returned
//! from the page's image. Any other item is located first.

mod errors;
mod item_projection;
mod located;

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use self::item_projection::ItemProjection;
pub(super) use self::item_projection::projection_of;
use super::command::BucketCommand;
use super::duplicate_key::needs_item;
use super::failed_update::FailedUpdate;
use super::item_update::{ItemUpdate, Memory};
use super::update::{may_be_tried, may_match};
use super::write_statement::of_write;
use super::{find_and_delete, indexes, item_lookup, room};
use crate::command::arguments::with_replaced;
use crate::command::document::{get, single};
use crate::command::error::CommandError;
use crate::command::find_and_modify::FindAndModify;
use crate::command::reply::succeeded;
use crate::pattern::bucket::item_decoder::ItemDecoder;
use crate::pattern::bucket::projection::Projection;
use crate::pattern::bucket::update_by_id::{ItemUpdateById, UpdateRequest, element_of, in_terms_of_items, only_item};
use crate::pattern::bucket::upsert::check_filter;
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::error::RunError;
use crate::session::id_source::SystemIdSource;
use crate::session::upstream_connection::UpstreamRequest;

/// Maximum size of a command in bytes.
const MAX_COMMAND_BYTES: usize = 16 * 1024 * 1024;

pub(super) async fn run(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let is_retryable = run.context.head.is_retryable_write();
    let executed = execute(run).await;
    executed.map_err(|error| of_write(error, is_retryable))
}

async fn execute(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let command = FindAndModify::parse(run.context.head.body())?;
    let is_sorted = command.sort.is_some_and(|sort| !sort.is_empty());
    indexes::check_hinted_order(run, command.hint.filter(|_| !is_sorted))?;
    let projection = ItemProjection::of(run, &command).await?;
    let reply = match command.change.filter(|_| !command.remove) {
        Some(change) => update(run, &command, change, &projection).await?,
        None => find_and_delete::run(run, &command, projection.by_proxy()).await?,
    };
    projection.projected(run, &command, reply).await
}

/// Changes an item. The reply has the item after the proxy's part of the projection.
async fn update(
    run: &mut BucketCommand<'_>,
    command: &FindAndModify<'_>,
    change: RawBsonRef<'_>,
    projection: &ItemProjection,
) -> Result<RawDocumentBuf, RunError> {
    let asked = UpdateRequest {
        filter: command.filter,
        change,
        array_filters: command.array_filters,
        collation: command.collation,
    };
    let mut mint = SystemIdSource::new(&run.context.shared.timestamps);
    // Under `apiStrict`, sparse indexes cannot be used. Only a located item is changed by a validated
    // command, and in the order of the sort.
    let change = ItemUpdateById::of(run.shape, asked, &mut mint)
        .ok()
        .filter(|_| !run.is_strict() && !projection.is_by_mongod() && !command.sort_may_fail());
    let projection = projection.by_proxy();
    if change.is_none() {
        item_lookup::check(run, command.filter)?;
    }
    run.ensure_readable(command.hint).await?;
    run.set_target(command.filter, command.collation)?;
    let mut task = ItemUpdate::new(asked, command.let_variables, None);
    task.sort = command.sort;
    task.memory = Memory::Image;
    if run.context.head.is_retryable_write() {
        task.statement_id = Some(command.statement_id.unwrap_or(0));
    }
    if let Some(reply) = located::before(run, command, &task).await? {
        return Ok(reply);
    }
    let is_right = !command.upsert || command.filter.is_none_or(|filter| check_filter(filter).is_ok());
    let creates = command.upsert && run.collection.is_none();
    let may_match = is_right && !creates;
    let is_tried = |change: &ItemUpdateById| {
        may_match && !names_key_twice(run, &change.filter) && may_be_tried(run, change, command.upsert)
    };
    if let Some(change) = change.filter(is_tried)
        && !needs_item(run).await?
        && let Some(reply) = by_id(run, command, &task, &change, projection).await?
    {
        return Ok(reply);
    }
    located::run(run, command, &task, projection).await
}

/// Whether a statement on a sharded collection names a field of the key twice: with the client's filter, and with a
/// replacement or an operator that sets the field. A mongos finds no shard key in it.
fn names_key_twice(run: &BucketCommand<'_>, filter: &RawDocument) -> bool {
    let mut key = run.shape.key().iter().filter(|_| run.target.is_some());
    key.any(|field| conditions_on(field, filter) > 1)
}

/// The number of conditions on a field, also in `$and`.
fn conditions_on(field: &str, filter: &RawDocument) -> usize {
    let of_each = filter.iter().flatten().map(|(name, value)| match value {
        RawBsonRef::Array(parts) if name.as_str() == "$and" => {
            let parts = parts.into_iter().flatten().filter_map(RawBsonRef::as_document);
            parts.map(|part| conditions_on(field, part)).sum()
        }
        _ => usize::from(name.as_str() == field),
    });
    of_each.sum()
}

/// `None`: nothing was changed, and the item must be located first.
async fn by_id(
    run: &mut BucketCommand<'_>,
    command: &FindAndModify<'_>,
    task: &ItemUpdate<'_>,
    change: &ItemUpdateById,
    projection: &Projection,
) -> Result<Option<RawDocumentBuf>, RunError> {
    let body = body(run, command, change);
    let update = FailedUpdate::new(task, None);
    let answer = match send(run, &body, update).await {
        Err(RunError::Command(CommandError::Upstream(reply))) => {
            let reply = match errors::duplicate(run, update, &reply).await? {
                Some(refused) => refused,
                None => in_words_of_the_application(run, &reply, &change.id),
            };
            return Err(CommandError::Upstream(reply).into());
        }
        answer => answer?,
    };
    run.record_executed(&answer);
    let Some(bucket) = get(&answer, "value").and_then(RawBsonRef::as_document) else {
        let is_all = !command.upsert && !may_match(run, change).await?;
        return Ok(is_all.then_some(answer));
    };
    let projection = projection_of(&answer, projection);
    let item = item(run, bucket, &change.id, projection).ok_or_else(|| run.corrupt_bucket_error())?;
    let value = [("value", Some(RawBsonRef::Document(&item)))];
    Ok(Some(with_replaced(&answer, &value)))
}

/// Refuses a command on a located item that is too long for mongod.
pub(super) fn check_size(run: &BucketCommand<'_>, body: &RawDocument) -> Result<(), CommandError> {
    if body.as_bytes().len() > MAX_COMMAND_BYTES {
        let what = "findAndModify, other than by its `_id`, of an item of this size or with a neighbor of this size";
        return Err(run.unsupported(what));
    }
    Ok(())
}

/// Sends the command until the item's page has room for the new item.
async fn send(
    run: &mut BucketCommand<'_>,
    body: &RawDocument,
    update: FailedUpdate<'_>,
) -> Result<RawDocumentBuf, RunError> {
    let mut round = 0;
    loop {
        let answer = succeeded(run.context.link.call(UpstreamRequest::plain(body)).await?);
        match answer {
            Err(error) if room::is_page_too_large(&error) && round < MAX_ATTEMPTS => {
                if !room::make(run, update).await? {
                    return Err(error.into());
                }
                pause(round).await;
                round = round.saturating_add(1);
            }
            answer => return Ok(answer?),
        }
    }
}

fn body(run: &BucketCommand<'_>, command: &FindAndModify<'_>, change: &ItemUpdateById) -> RawDocumentBuf {
    let mut body = single("findAndModify", run.namespace.collection);
    body.append(cstr!("query"), &change.filter);
    body.append(cstr!("update"), &change.update);
    body.append(cstr!("new"), command.new);
    body.append(cstr!("fields"), only_item(run.shape, &change.id));
    change.append_options(&mut body);
    if let Some(variables) = command.let_variables {
        body.append(cstr!("let"), variables);
    }
    if let Some(id) = command.statement_id.filter(|_| run.context.head.is_retryable_write()) {
        body.append(cstr!("stmtId"), id);
    }
    run.context.inherited().append_to_write(&mut body);
    body
}

/// The item from an image of its bucket. For a retried command, mongod returns the whole image.
fn item(
    run: &BucketCommand<'_>,
    bucket: &RawDocument,
    id: &RawBson,
    projection: &Projection,
) -> Option<RawDocumentBuf> {
    let stored = element_of(run.shape, bucket, id)?;
    let mut bytes = Vec::new();
    ItemDecoder::new(run.shape, projection, bucket).append(stored, &mut bytes);
    RawDocumentBuf::from_bytes(bytes).ok()
}

fn in_words_of_the_application(run: &BucketCommand<'_>, reply: &RawDocument, id: &RawBson) -> RawDocumentBuf {
    let Some(message) = get(reply, "errmsg").and_then(RawBsonRef::as_str) else {
        return reply.to_owned();
    };
    let message = in_terms_of_items(run.shape, message, id.as_raw_bson_ref());
    with_replaced(reply, &[("errmsg", Some(RawBsonRef::String(&message)))])
}
