//! The cursor of a change stream of items.

use std::collections::VecDeque;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use tokio::time::{Duration, Instant};

use super::client_stages::ClientStages;
use super::start::{EventPosition, Start};
use super::watched::{EventSource, Watched};
use crate::command::aggregate::Aggregate;
use crate::command::arguments::with_replaced;
use crate::command::document::get;
use crate::command::error::{CommandError, ErrorCode};
use crate::pattern::bucket::change_stream::{EventError, Images, ItemEvent, ItemEvents, ResumeToken};

/// The longest wait for events in one `getMore`, so that a draining proxy does not wait for it.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// The wait of a `getMore` without `maxTimeMS`, as in mongod.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

/// A change stream of items between two batches.
#[derive(Debug)]
pub(in crate::session) struct ChangeStreamCursor {
    pub(super) watched: Watched,
    /// The id of the upstream cursor. `None`: mongod has closed it after an `invalidate`.
    pub(super) upstream: Option<i64>,
    pub(super) events: ItemEvents,
    /// The options about images with which mongod's stream is opened.
    pub(super) upstream_images: RawDocumentBuf,
    pub(super) stages: Option<ClientStages>,
    /// The position that the client has reached within an event that mongod returns again.
    resumed: Option<EventPosition>,
    /// Events that were not returned yet.
    pub(super) waiting: VecDeque<RawDocumentBuf>,
    /// The position that the client has reached: that of the last returned event, or at first the one that it
    /// has named. `None`: it has named none.
    pub(super) position: Option<RawDocumentBuf>,
    /// The token behind the events that mongod has returned. `None`: a stream that begins there would return
    /// events again, or lack a part of one.
    behind: Option<RawDocumentBuf>,
    pub(super) swap: Swap,
    /// The cluster time of the last reply.
    pub(super) cluster_time: RawDocumentBuf,
}

/// The replacement of a watched collection by its copy (`mongoshape compact`). mongod's stream ends, and the
/// client's continues with the copy.
#[derive(Debug)]
pub(super) enum Swap {
    None,
    /// The copy has got the name. An `invalidate` follows.
    Renamed,
    /// The stream has ended with this token.
    Invalidated(RawDocumentBuf),
    /// The stream of the copy was opened behind this token.
    Reopened(RawDocumentBuf),
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
            position: None,
            behind: None,
            swap: Swap::None,
            cluster_time: RawDocumentBuf::new(),
        }
    }

    /// Begins at the client's position: skips the events before it.
    pub(super) fn resume(&mut self, start: Start) {
        self.position = start.token().map(RawDocument::to_owned);
        self.resumed = start.within();
    }

    /// The latest time at which a `getMore` returns without an event.
    pub(in crate::session) fn deadline(requested: Option<Duration>) -> Instant {
        Instant::now() + requested.unwrap_or(DEFAULT_WAIT).min(MAX_WAIT)
    }

    /// Appends the client's events for an event of mongod.
    pub(super) fn convert(&mut self, event: &RawDocument, events: &mut Vec<ItemEvent>) -> Result<(), CommandError> {
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

    /// Must be called before the events of a reply are converted. If the client has all earlier events, its
    /// position is behind them.
    pub(super) fn pass_behind(&mut self) {
        let behind = self.behind.take();
        if self.waiting.is_empty() && behind.is_some() {
            self.position = behind;
        }
    }

    /// Sets the position behind the events of a reply. mongod's `token` is before the client's position while
    /// that was not reached, and within an event while an item moves.
    pub(super) fn set_behind(&mut self, token: Option<&RawDocument>) {
        let is_between = self.resumed.is_some() || self.events.is_within_move();
        let token = token.filter(|token| !is_between && !self.is_of_swap(token));
        self.behind = token.and_then(ResumeToken::behind).map(|token| token.document());
    }

    /// Whether the token is a position within a swap. mongod does not accept that of the `invalidate` as
    /// `resumeAfter`. It is also the token of the copy's stream until something else is in the oplog.
    fn is_of_swap(&self, token: &RawDocument) -> bool {
        match &self.swap {
            Swap::None => false,
            // The next event is the `invalidate`. A stream from here would end with it.
            Swap::Renamed => true,
            Swap::Invalidated(invalidate) | Swap::Reopened(invalidate) => *token == **invalidate,
        }
    }

    /// The token behind the last batch. Empty if there is [none](Self::has_token).
    pub(in crate::session) fn resume_token(&self) -> RawDocumentBuf {
        self.token().cloned().unwrap_or_default()
    }

    /// Whether the position behind the last batch is known.
    pub(super) fn has_token(&self) -> bool {
        self.token().is_some()
    }

    fn token(&self) -> Option<&RawDocumentBuf> {
        let behind = self.behind.as_ref().filter(|_| !self.has_events());
        behind.or(self.position.as_ref())
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
pub(super) fn token_of(event: &RawDocument) -> Option<&RawDocument> {
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

pub(super) fn malformed(what: &str) -> CommandError {
    fatal(&format!("mongod returned {what} for a change stream"))
}

/// The error of a stream that cannot be resumed.
pub(super) fn fatal(message: &str) -> CommandError {
    CommandError::new(ErrorCode::ChangeStreamFatalError, message).not_resumable()
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::pattern::shapes::Shapes;

    fn cursor() -> ChangeStreamCursor {
        let body = rawdoc! { "pipeline": [{ "$changeStream": {} }] };
        let aggregate = Aggregate::parse_explained(&body).unwrap();
        let watched = Watched::collection(Shapes::new(Vec::new()).unwrap());
        ChangeStreamCursor::new(&body, &aggregate, &rawdoc! {}, watched)
    }

    #[test]
    fn the_end_of_a_replaced_collection_is_no_position() {
        let invalidate = rawdoc! { "_data": "8201" };
        let mut cursor = cursor();
        for swap in [Swap::Invalidated, Swap::Reopened] {
            cursor.swap = swap(invalidate.clone());
            cursor.set_behind(Some(&invalidate));
            assert!(!cursor.has_token());
            cursor.set_behind(Some(&rawdoc! { "_data": "8202" }));
            assert!(cursor.has_token());
        }
    }

    #[test]
    fn the_renaming_of_the_copy_is_no_position() {
        let mut cursor = cursor();
        cursor.swap = Swap::Renamed;
        cursor.set_behind(Some(&rawdoc! { "_data": "8201" }));
        assert!(!cursor.has_token());
    }
}
