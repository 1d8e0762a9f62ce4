//! Reads mongod's change stream, and fills batches of the client's.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use tokio::time::Instant;

use super::OF_DATABASE;
use super::client_stages::{ClientStages, check_tokens};
use super::current_versions::add_current_versions;
use super::cursor::{ChangeStreamCursor, Swap, malformed, token_of};
use super::layout::check_layout;
use super::start::Start;
use crate::command::batch::ReplyBatch;
use crate::command::document::{array_of, get, single};
use crate::command::error::CommandError;
use crate::command::namespace::Namespace;
use crate::command::reply::{CursorReply, copy_cluster_time};
use crate::session::bucket::find::item_cursor::{BatchRequest, BatchStatus};
use crate::session::command_context::CommandContext;
use crate::session::error::RunError;

/// The most events of pages in one reply of mongod: bounds the memory of a cursor.
const PAGE_EVENTS: i64 = 100;
/// The wait for the rest of a move, which is in the oplog already.
const REST_OF_MOVE_MS: i64 = 100;

impl ChangeStreamCursor {
    /// Fills one batch. Waits for an event until `deadline`.
    pub(in crate::session) async fn fill(
        &mut self,
        context: &mut CommandContext<'_>,
        namespace: Namespace<'_>,
        BatchRequest { kind, limit }: BatchRequest,
        deadline: Instant,
    ) -> Result<(ReplyBatch, BatchStatus), RunError> {
        let mut batch = ReplyBatch::new(kind);
        loop {
            while !limit.is_full(&batch)
                && let Some(event) = self
                    .waiting
                    .pop_front_if(|event| batch.has_space_for(event.as_bytes().len()))
            {
                batch.push(event.as_bytes());
                self.position = token_of(&event).map(RawDocument::to_owned);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            // A stream that begins at a time may begin with a part of a move. The rest is in the oplog.
            let has_token = self.has_token();
            let is_answered = has_token && (batch.count() > 0 || limit.is_nothing() || left.is_zero());
            let Some(upstream) = self.upstream.filter(|_| !is_answered) else {
                break;
            };
            let mut command = single("getMore", upstream);
            command.append(cstr!("collection"), namespace.collection);
            command.append(cstr!("batchSize"), PAGE_EVENTS);
            let least = if has_token { 1 } else { REST_OF_MOVE_MS };
            let millis = i64::try_from(left.as_millis()).unwrap_or(i64::MAX).max(least);
            command.append(cstr!("maxTimeMS"), millis);
            context.inherited().append_to_get_more(&mut command);
            let reply = context.link.run(&command).await?;
            self.receive(context, namespace, &reply).await?;
        }
        let is_exhausted = self.upstream.is_none() && self.waiting.is_empty();
        let status = if is_exhausted {
            BatchStatus::All
        } else {
            BatchStatus::More
        };
        Ok((batch, status))
    }

    /// Converts a reply of mongod: its events become events of items, which wait for a batch. Closes the
    /// upstream cursor after an error.
    pub(super) async fn receive(
        &mut self,
        context: &mut CommandContext<'_>,
        namespace: Namespace<'_>,
        reply: &RawDocument,
    ) -> Result<(), RunError> {
        let mut received = self.receive_events(context, reply).await;
        // The copy may have been replaced by another one.
        while let (Ok(()), Swap::Invalidated(token)) = (&received, &self.swap) {
            let token = token.clone();
            let reply = self.open_copy(context, namespace, &token).await?;
            self.swap = Swap::Reopened(token);
            received = self.receive_events(context, &reply).await;
        }
        let Err(error) = received else {
            return Ok(());
        };
        match self.close(context, namespace).await {
            Ok(()) | Err(RunError::Command(_)) => Err(error.map_command(CommandError::resumable)),
            Err(broken) => Err(broken),
        }
    }

    async fn receive_events(&mut self, context: &mut CommandContext<'_>, reply: &RawDocument) -> Result<(), RunError> {
        let Some(cursor) = CursorReply::parse(reply) else {
            return Err(malformed("a reply without a cursor").into());
        };
        self.upstream = Some(cursor.id).filter(|id| *id != 0);
        self.cluster_time = RawDocumentBuf::new();
        copy_cluster_time(&mut self.cluster_time, reply);
        self.pass_behind();
        let mut events = Vec::new();
        for event in cursor.documents() {
            check_layout(context, &self.watched, event).await?;
            self.convert(event, &mut events)?;
        }
        let token = reply.get_document("cursor").ok();
        let token = token.and_then(|cursor| get(cursor, "postBatchResumeToken")?.as_document());
        self.set_behind(token);
        let events = add_current_versions(context, events).await?;
        let events = match &self.stages {
            Some(stages) => apply(stages, context, &events).await?,
            None => events,
        };
        self.waiting.extend(events);
        Ok(())
    }

    /// Opens mongod's stream of the copy that has replaced the collection. Returns its reply.
    async fn open_copy(
        &self,
        context: &mut CommandContext<'_>,
        namespace: Namespace<'_>,
        invalidate: &RawDocument,
    ) -> Result<RawDocumentBuf, RunError> {
        let stage = Start::behind_invalidate(invalidate).stage(&self.upstream_images);
        let mut command = single("aggregate", namespace.collection);
        command.append(cstr!("pipeline"), array_of(&[stage]));
        command.append(cstr!("cursor"), RawDocumentBuf::new());
        context.inherited().append_to_get_more(&mut command);
        context.link.run(&command).await
    }

    /// Closes the upstream cursor if it is open.
    pub(in crate::session) async fn close(
        &mut self,
        context: &mut CommandContext<'_>,
        namespace: Namespace<'_>,
    ) -> Result<(), RunError> {
        match self.upstream.take() {
            Some(id) => kill(context, namespace, id).await,
            None => Ok(()),
        }
    }
}

/// Closes an upstream cursor on a namespace.
pub(super) async fn kill(context: &mut CommandContext<'_>, namespace: Namespace<'_>, id: i64) -> Result<(), RunError> {
    let mut command = single("killCursors", namespace.collection);
    let ids: RawArrayBuf = [RawBsonRef::Int64(id)].into_iter().collect();
    command.append(cstr!("cursors"), &ids);
    append_options(context, namespace, &mut command);
    context.link.run(&command).await.map(|_| ())
}

/// Appends the client's options to an internal command on a namespace, which may be of another database.
pub(super) fn append_options(context: &CommandContext<'_>, namespace: Namespace<'_>, command: &mut RawDocumentBuf) {
    let options = context.options().in_database(namespace.database);
    options.append_to_get_more(command);
}

/// The results of the client's stages for these events. mongod executes the stages.
async fn apply(
    stages: &ClientStages,
    context: &mut CommandContext<'_>,
    events: &[RawDocumentBuf],
) -> Result<Vec<RawDocumentBuf>, RunError> {
    let mut results = Vec::new();
    for chunk in ClientStages::chunks(events) {
        let mut command = stages.command(chunk);
        context.options().append_to_get_more(&mut command);
        let mut reply = context.link.run(&command).await?;
        while let Some(cursor) = CursorReply::parse(&reply) {
            results.extend(cursor.documents().map(RawDocument::to_owned));
            if cursor.id == 0 {
                break;
            }
            let mut more = single("getMore", cursor.id);
            more.append(cstr!("collection"), OF_DATABASE);
            context.options().append_to_get_more(&mut more);
            reply = context.link.run(&more).await?;
        }
    }
    check_tokens(events, &results)?;
    Ok(results)
}
