//! The cursor of a change stream of items.

use std::collections::VecDeque;

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use tokio::time::{Duration, Instant};

use super::client_stages::ClientStages;
use super::current_versions::add_current_versions;
use super::start::{EventPosition, Start};
use super::watched::{EventSource, Watched};
use crate::command::aggregate::Aggregate;
use crate::command::arguments::with_replaced;
use crate::command::batch::ReplyBatch;
use crate::command::document::{array_of, get, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::namespace::Namespace;
use crate::command::reply::{CursorReply, copy_cluster_time};
use crate::pattern::bucket::change_stream::{EventError, Images, ItemEvent, ItemEvents, ResumeToken};
use crate::session::bucket::find::item_cursor::{BatchRequest, BatchStatus};
use crate::session::command_context::CommandContext;
use crate::session::error::RunError;

/// The most events of pages in one reply of mongod: bounds the memory of a cursor.
const PAGE_EVENTS: i64 = 100;
/// The longest wait for events in one `getMore`, so that a draining proxy does not wait for it.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// The wait of a `getMore` without `maxTimeMS`, as in mongod.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

/// A change stream of items between two batches.
#[derive(Debug)]
pub(in crate::session) struct ChangeStreamCursor {
    watched: Watched,
    /// The id of the upstream cursor. `None`: mongod has closed it after an `invalidate`.
    upstream: Option<i64>,
    events: ItemEvents,
    /// The options about images with which mongod's stream is opened.
    upstream_images: RawDocumentBuf,
    stages: Option<ClientStages>,
    /// The position that the client has reached within an event that mongod returns again.
    resumed: Option<EventPosition>,
    /// Events that were not returned yet.
    waiting: VecDeque<RawDocumentBuf>,
    /// The token of the last returned event.
    returned: Option<RawDocumentBuf>,
    /// The token behind the events that mongod has returned.
    token: RawDocumentBuf,
    swap: Swap,
    /// The cluster time of the last reply.
    cluster_time: RawDocumentBuf,
}

/// The replacement of a watched collection by its copy (`mongoshape compact`). mongod's stream ends, and the
/// client's continues with the copy.
#[derive(Debug)]
enum Swap {
    None,
    /// The copy has got the name. An `invalidate` follows.
    Renamed,
    /// The stream has ended with this token.
    Invalidated(RawDocumentBuf),
}

impl ChangeStreamCursor {
    /// The cursor of an `aggregate` whose `$changeStream` has these options.
    pub(super) fn new(body: &RawDocument, aggregate: &Aggregate<'_>, options: &RawDocument, watched: Watched) -> Self {
        Self {
            upstream_images: watched.images(options),
            watched,
            upstream: None,
            events: ItemEvents::new(Images::of(options)),
            stages: ClientStages::of(body, aggregate),
            resumed: None,
            waiting: VecDeque::new(),
            returned: None,
            token: RawDocumentBuf::new(),
            swap: Swap::None,
            cluster_time: RawDocumentBuf::new(),
        }
    }

    /// Skips the events before the client's position.
    pub(super) fn resume(&mut self, start: Start) {
        self.resumed = start.within();
    }

    /// The latest time at which a `getMore` returns without an event.
    pub(in crate::session) fn deadline(requested: Option<Duration>) -> Instant {
        Instant::now() + requested.unwrap_or(DEFAULT_WAIT).min(MAX_WAIT)
    }

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
                self.returned = token_of(&event).map(RawDocument::to_owned);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let is_answered = batch.count() > 0 || limit.is_nothing() || left.is_zero();
            let Some(upstream) = self.upstream.filter(|_| !is_answered) else {
                break;
            };
            let mut command = single("getMore", upstream);
            command.append(cstr!("collection"), namespace.collection);
            command.append(cstr!("batchSize"), PAGE_EVENTS);
            let millis = i64::try_from(left.as_millis()).unwrap_or(i64::MAX).max(1);
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
        if let (Ok(()), Swap::Invalidated(token)) = (&received, &self.swap) {
            let reply = self.open_copy(context, namespace, &token.clone()).await?;
            self.swap = Swap::None;
            received = self.receive_events(context, &reply).await;
        }
        if received.is_err() {
            self.close(context, namespace).await?;
        }
        received
    }

    async fn receive_events(&mut self, context: &mut CommandContext<'_>, reply: &RawDocument) -> Result<(), RunError> {
        let Some(cursor) = CursorReply::parse(reply) else {
            return Err(malformed("a reply without a cursor").into());
        };
        self.upstream = Some(cursor.id).filter(|id| *id != 0);
        self.cluster_time = RawDocumentBuf::new();
        copy_cluster_time(&mut self.cluster_time, reply);
        let mut events = Vec::new();
        for event in cursor.documents() {
            self.convert(event, &mut events)?;
        }
        let token = reply.get_document("cursor").ok();
        let token = token.and_then(|cursor| get(cursor, "postBatchResumeToken")?.as_document());
        if let Some(token) = token.and_then(ResumeToken::behind)
            && !self.events.is_within_move()
        {
            self.token = token.document();
        }
        let events = add_current_versions(context, events).await?;
        let events = match &self.stages {
            Some(stages) => stages.apply(context, events).await?,
            None => events,
        };
        self.waiting.extend(events);
        Ok(())
    }

    /// Appends the client's events for an event of mongod.
    fn convert(&mut self, event: &RawDocument, events: &mut Vec<ItemEvent>) -> Result<(), CommandError> {
        let operation = get(event, "operationType").and_then(RawBsonRef::as_str);
        let is_of_document = matches!(operation, Some("insert" | "update" | "replace" | "delete"));
        let skipped = skipped(&mut self.resumed, event)?;
        match self.watched.source(event) {
            EventSource::Bucket(shape) if is_of_document => {
                // All events are converted, because a skipped one may be the first of a move.
                let items = self.events.of_page(shape, event, skipped.unwrap_or(u32::MAX));
                events.extend(items.map_err(|error| unreadable(error, event))?);
            }
            _ if skipped.is_none() => {}
            EventSource::Hidden if operation == Some("rename") && self.watched.is_collection() => {
                self.swap = Swap::Renamed;
            }
            EventSource::Hidden => {}
            EventSource::Plain if is_of_document => events.push(self.events.of_document(&with_own_token(event))),
            EventSource::Plain if operation == Some("invalidate") && matches!(self.swap, Swap::Renamed) => {
                self.swap = Swap::Invalidated(token_of(event).map(RawDocument::to_owned).unwrap_or_default());
            }
            EventSource::Bucket(_) | EventSource::Plain => events.push(ItemEvent::complete(with_own_token(event))),
        }
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

    /// The token behind the last batch.
    pub(in crate::session) fn resume_token(&self) -> RawDocumentBuf {
        let within = self.returned.as_ref().filter(|_| self.has_events());
        within.unwrap_or(&self.token).clone()
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

    /// The id of the upstream cursor while it is open.
    pub(in crate::session) fn upstream_id(&self) -> Option<i64> {
        self.upstream
    }

    /// Whether events wait for a batch.
    pub(super) fn has_events(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Bytes of the events in memory.
    pub(in crate::session) fn weight(&self) -> usize {
        self.waiting.iter().map(|event| event.as_bytes().len()).sum()
    }

    /// The cluster time of mongod's last reply.
    pub(in crate::session) fn cluster_time(&self) -> &RawDocument {
        &self.cluster_time
    }
}

/// Closes an upstream cursor.
pub(super) async fn kill(context: &mut CommandContext<'_>, namespace: Namespace<'_>, id: i64) -> Result<(), RunError> {
    let mut command = single("killCursors", namespace.collection);
    let ids: RawArrayBuf = [RawBsonRef::Int64(id)].into_iter().collect();
    command.append(cstr!("cursors"), &ids);
    context.inherited().append_to_get_more(&mut command);
    context.link.run(&command).await.map(|_| ())
}

/// The number of item events of an event of mongod that the client has received. `None`: all of them.
fn skipped(resumed: &mut Option<EventPosition>, event: &RawDocument) -> Result<Option<u32>, CommandError> {
    let Some(EventPosition { upstream, item }) = &*resumed else {
        return Ok(Some(0));
    };
    let data = token_of(event).and_then(|token| get(token, "_data")?.as_str());
    if data == Some(&upstream.data) {
        let skipped = item.number.saturating_add(1);
        *resumed = None;
        return Ok(Some(skipped));
    }
    match get(event, "clusterTime") {
        Some(RawBsonRef::Timestamp(time)) if time <= item.cluster_time => Ok(None),
        _ => Err(fatal("cannot resume stream; the resume token was not found")),
    }
}

/// The token of an event.
fn token_of(event: &RawDocument) -> Option<&RawDocument> {
    get(event, "_id")?.as_document()
}

fn with_own_token(event: &RawDocument) -> RawDocumentBuf {
    match token_of(event)
        .and_then(ResumeToken::behind)
        .map(|token| token.document())
    {
        Some(token) => with_replaced(event, &[("_id", Some(RawBsonRef::Document(&token)))]),
        None => event.to_owned(),
    }
}

fn unreadable(error: EventError, event: &RawDocument) -> CommandError {
    match error {
        EventError::NoImages => {
            let time = get(event, "clusterTime");
            fatal(&format!(
                "a page was changed while its collection stored no pre- and post-images, or they have expired (clusterTime {time:?}): \
                 open a new change stream"
            ))
        }
        EventError::Malformed => malformed("an event without a token or a time"),
    }
}

fn malformed(what: &str) -> CommandError {
    fatal(&format!("mongod returned {what} for a change stream"))
}

/// The error of a stream that cannot be resumed.
pub(super) fn fatal(message: &str) -> CommandError {
    CommandError::new(ErrorCode::ChangeStreamFatalError, message).not_resumable()
}
