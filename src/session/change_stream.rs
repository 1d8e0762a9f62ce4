//! Change streams that contain changes of bucket collections: of one such collection, of a database, or of
//! the cluster.
//!
//! mongod's change stream returns events of pages, with the page before and after the change. They
//! [become events of items](crate::pattern::bucket::change_stream). mongod then applies the client's own
//! stages to those events. See `docs/decisions/0035-change-streams-compare-images-of-pages.md`.

mod client_stages;
mod current_versions;
pub(super) mod cursor;
mod layout;
mod read;
mod start;
mod watched;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use tokio::time::Instant;

use self::cursor::ChangeStreamCursor;
use self::start::Start;
pub(super) use self::watched::{Watched, without_maintenance};
use super::aggregate_validation::explain_of;
use super::bucket::cursor_source::CursorSource;
use super::bucket::find::item_cursor::{BatchLimit, BatchRequest, BatchStatus};
use super::command_context::CommandContext;
use super::cursor::{CursorLookup, OpenCursor};
use super::error::RunError;
use super::upstream::UpstreamKind;
use super::upstream_connection::UpstreamRequest;
use crate::command::aggregate::Aggregate;
use crate::command::arguments::with_replaced;
use crate::command::batch::BatchKind;
use crate::command::cursor::{GetMore, in_use, not_found};
use crate::command::document::{array_of, as_flag, as_whole_number, first_field, get};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::namespace::Namespace;
use crate::command::reply::{CursorReply, copy_cluster_time, succeeded};
use crate::pattern::bucket::change_stream::{Images, TokenError};

/// The collection of cursors of commands on a database.
pub(super) const OF_DATABASE: &str = "$cmd.aggregate";

/// The options of the `$changeStream` that a pipeline begins with.
pub(super) fn options<'a>(aggregate: &Aggregate<'a>) -> Option<RawBsonRef<'a>> {
    let (name, options) = first_field(aggregate.pipeline.first()?)?;
    (name == "$changeStream").then_some(options)
}

/// Opens a change stream on a database or a cluster. The route has checked that all shaped collections in it
/// have change streams.
pub(super) async fn open_on_database(
    context: &mut CommandContext<'_>,
    aggregate: &Aggregate<'_>,
) -> Result<RawDocumentBuf, RunError> {
    if let Some(what) = unsupported(aggregate) {
        let message = format!("{what} is not supported where mongoshape stores a collection in the bucket pattern");
        return Err(CommandError::new(ErrorCode::CommandNotSupported, message).into());
    }
    let namespace = Namespace::new(context.head.database, OF_DATABASE);
    let watched = Watched::database(context.settings.shapes.clone());
    open(context, namespace, aggregate, watched).await
}

/// The part of the command that has no exact result.
pub(super) fn unsupported(aggregate: &Aggregate<'_>) -> Option<&'static str> {
    let options = options(aggregate).and_then(RawBsonRef::as_document);
    let has = |option: &str| options.and_then(|options| as_flag(get(options, option)?)) == Some(true);
    if has("showExpandedEvents") {
        Some("a change stream with showExpandedEvents")
    } else if has("showRawUpdateDescription") || has("showSystemEvents") {
        Some("a change stream with an internal option")
    } else if aggregate.explain {
        Some("explain of a change stream")
    } else {
        None
    }
}

/// Opens a change stream on a namespace. The collection of the namespace is readable, if it exists.
pub(super) async fn open(
    context: &mut CommandContext<'_>,
    namespace: Namespace<'_>,
    aggregate: &Aggregate<'_>,
    watched: Watched,
) -> Result<RawDocumentBuf, RunError> {
    let body = context.head.body();
    let options = options(aggregate).and_then(RawBsonRef::as_document);
    let is_refused_by_mongod = context.upstream == UpstreamKind::Standalone || context.head.in_transaction();
    let Some(options) = options.filter(|_| !is_refused_by_mongod) else {
        return context.link.run(body).await;
    };
    let start = Start::of(options).map_err(|TokenError| malformed_token())?;
    let without_unrequested = watched.without_unrequested(Images::of(options));
    let mut cursor = ChangeStreamCursor::new(body, aggregate, options, watched);
    let mut stages = vec![start.stage(&cursor.upstream_images)];
    stages.extend(without_unrequested);
    let request = OpenRequest {
        checked: explained(body, aggregate, &start.as_of_mongod(options)),
        opened: on_pages(body, &stages),
    };
    let reply = request.send(context, namespace).await?;
    cursor.resume(start);
    cursor.receive(context, namespace, &reply).await?;
    let request = BatchRequest::first(BatchLimit::of(first_batch_size(body)));
    let (batch, _) = cursor.fill(context, namespace, request, Instant::now()).await?;
    let token = cursor.resume_token();
    let id = keep(context, namespace, cursor).await?;
    let mut opened = batch.into_reply_with_token(namespace, id, &token);
    copy_cluster_time(&mut opened, &reply);
    Ok(opened)
}

/// Registers the cursor. Returns its id, or 0 if the stream has ended.
async fn keep(
    context: &mut CommandContext<'_>,
    namespace: Namespace<'_>,
    cursor: ChangeStreamCursor,
) -> Result<i64, RunError> {
    let Some(id) = cursor
        .upstream_id()
        .or_else(|| cursor.has_events().then(|| rand::random_range(1..i64::MAX)))
    else {
        return Ok(0);
    };
    let mut owner = context.cursor_owner(namespace).await?;
    owner.awaits_data = true;
    let source = CursorSource::Changes(Box::new(cursor));
    context.shared.cursors.keep(id, Box::new(OpenCursor { owner, source }));
    Ok(id)
}

/// Executes a `getMore` on a cursor of a command on a database. The cursor of any other command than a change
/// stream is mongod's.
///
/// # Errors
/// `CursorNotFound` for a change stream that this proxy does not have, because another proxy opened it, or the
/// cursor was evicted: mongod returns events of pages.
pub(super) async fn get_more_on_database(context: &mut CommandContext<'_>) -> Result<RawDocumentBuf, RunError> {
    let body = context.head.body();
    let namespace = Namespace::new(context.head.database, OF_DATABASE);
    let id = get(body, "getMore").and_then(RawBsonRef::as_i64).unwrap_or_default();
    let Some(owner) = context.shared.cursors.owner(id) else {
        return of_unknown_cursor(context, namespace, id).await;
    };
    let more = GetMore::parse(body)?;
    owner.check(&context.cursor_owner(namespace).await?, &more)?;
    let mut borrowed = match context.shared.cursors.take(id) {
        CursorLookup::Missing => return Err(not_found(id).into()),
        CursorLookup::InUse => return Err(in_use(id).into()),
        CursorLookup::Upstream => return context.link.run(body).await,
        CursorLookup::Stream(borrowed) => borrowed,
    };
    let Some(CursorSource::Changes(cursor)) = borrowed.kept().map(|kept| &mut kept.source) else {
        return Err(not_found(id).into());
    };
    let request = BatchRequest {
        kind: BatchKind::Next,
        limit: BatchLimit::of(more.batch_size),
    };
    let deadline = ChangeStreamCursor::deadline(more.time_limit);
    let (batch, status) = cursor.fill(context, namespace, request, deadline).await?;
    let (token, cluster_time) = (cursor.resume_token(), cursor.cluster_time().to_owned());
    let mut open_id = 0;
    if status == BatchStatus::More {
        open_id = id;
        if let Some(CursorSource::Changes(mut killed)) = borrowed.give_back().map(|kept| kept.source) {
            killed.close(context, namespace).await?;
        }
    }
    let mut reply = batch.into_reply_with_token(namespace, open_id, &token);
    copy_cluster_time(&mut reply, &cluster_time);
    Ok(reply)
}

async fn of_unknown_cursor(
    context: &mut CommandContext<'_>,
    namespace: Namespace<'_>,
    id: i64,
) -> Result<RawDocumentBuf, RunError> {
    let reply = context.link.run(context.head.body()).await?;
    let cursor = get(&reply, "cursor").and_then(RawBsonRef::as_document);
    let is_stream = cursor.is_some_and(|cursor| get(cursor, "postBatchResumeToken").is_some());
    let shapes = &context.settings.shapes;
    let has_pages = match namespace.database {
        "admin" => shapes.first_rewritten().is_some(),
        database => shapes.first_rewritten_in(database).is_some(),
    };
    if !is_stream || !has_pages {
        return Ok(reply);
    }
    read::kill(context, namespace, id).await?;
    Err(not_found(id).into())
}

fn malformed_token() -> CommandError {
    let message = "the resume token begins with `mongoshape:` and is malformed: it was not returned by mongoshape";
    CommandError::new(ErrorCode::FailedToParse, message)
}

/// The most documents of the first batch.
fn first_batch_size(body: &RawDocument) -> Option<u64> {
    let cursor = get(body, "cursor")?.as_document()?;
    as_whole_number(get(cursor, "batchSize")?).and_then(|size| u64::try_from(size).ok())
}

/// The commands that open a stream, sent back to back.
struct OpenRequest {
    /// An `explain` of the client's own pipeline, so that mongod checks its options and stages.
    checked: RawDocumentBuf,
    /// The change stream of pages.
    opened: RawDocumentBuf,
}

impl OpenRequest {
    async fn send(
        &self,
        context: &mut CommandContext<'_>,
        namespace: Namespace<'_>,
    ) -> Result<RawDocumentBuf, RunError> {
        let requests = [&self.checked, &self.opened].map(|command| UpstreamRequest::plain(command));
        let mut replies = context.link.call_all(&requests).await?.into_iter();
        let checked = replies.next().unwrap_or_default();
        let opened = replies.next().unwrap_or_default();
        if let Err(error) = succeeded(checked) {
            if let Some(cursor) = CursorReply::parse(&opened) {
                read::kill(context, namespace, cursor.id).await?;
            }
            return Err(error.resumable().into());
        }
        Ok(succeeded(opened)?)
    }
}

/// The client's command with these stages.
fn on_pages(body: &RawDocument, stages: &[RawDocumentBuf]) -> RawDocumentBuf {
    let stages = array_of(stages);
    let replaced = [
        ("pipeline", Some(RawBsonRef::Array(&stages))),
        ("collation", None),
        ("let", None),
        ("hint", None),
    ];
    with_replaced(body, &replaced)
}

/// The `explain` of the client's pipeline with these options of `$changeStream`.
fn explained(body: &RawDocument, aggregate: &Aggregate<'_>, options: &RawDocument) -> RawDocumentBuf {
    // mongod refuses further fields of the stage.
    let options = [("$changeStream", Some(RawBsonRef::Document(options)))];
    let first = aggregate.pipeline.first().map(|stage| with_replaced(stage, &options));
    let mut stages: Vec<RawDocumentBuf> = first.into_iter().collect();
    stages.extend(aggregate.pipeline.iter().skip(1).map(|stage| (*stage).to_owned()));
    explain_of(body, &stages)
}
