//! Change streams. Each shard has a stream of its own, and the router merges the events by their tokens,
//! which begin with the time. It returns an event when every shard has passed the event's time.
//!
//! The mongods do not know the shard key, so the router adds it to `documentKey`. It takes the values from
//! the images of the document, and leaves out those of a deleted document without a pre-image.

mod source;

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bson::{Bson, Document, Timestamp, doc};

use self::source::{Source, Token};
use super::cursors::{BATCH_BYTES, first_batch_size, next_batch_size};
use super::moves;
use super::routing::{FIRST_SHARD, Routing, Sharded};
use super::shard_connections::ShardConnections;
use super::statements::{database, document, documents, is_set, name, namespace, number, without};

/// Ids of streams begin here. Those of the router's other cursors are greater.
const FIRST_ID: i64 = 1 << 60;
/// The wait of a `getMore` without `maxTimeMS`.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);
/// Between two reads of all shards.
const PAUSE: Duration = Duration::from_millis(5);
/// The options that name a position.
const POSITIONS: [&str; 3] = ["resumeAfter", "startAfter", "startAtOperationTime"];
const PRE_IMAGE: &str = "fullDocumentBeforeChange";
/// The events of one document. Of any other one, only the first shard's is returned.
const OF_DOCUMENTS: [&str; 4] = ["insert", "update", "replace", "delete"];

/// All open streams of all routers.
#[derive(Debug, Default)]
pub(super) struct Streams {
    open: Mutex<HashMap<i64, Stream>>,
    opened: AtomicI64,
}

#[derive(Debug)]
struct Stream {
    database: String,
    /// The collection of a `getMore`.
    collection: String,
    sources: Vec<Source>,
    /// The client's position.
    reached: Token,
}

impl Streams {
    fn lock(&self) -> MutexGuard<'_, HashMap<i64, Stream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a command opens a change stream.
pub(super) fn opens_stream(command: &Document) -> bool {
    let first = documents(command, "pipeline").into_iter().next();
    let is_stream = first.is_some_and(|stage| stage.contains_key("$changeStream"));
    name(command) == "aggregate" && is_stream && !is_set(command, "explain")
}

/// Opens a change stream on all shards.
pub(super) fn open(connections: &mut ShardConnections, routing: &Routing, command: &Document) -> Result<Document> {
    let stages = documents(command, "pipeline");
    let (first, rest) = stages.split_first().context("no stage")?;
    let options = document(first, "$changeStream");
    let Some(start) = Start::of(connections, &options)? else {
        // The shard refuses the malformed token.
        return connections.send(FIRST_SHARD, command);
    };
    let mut sources = Vec::new();
    for shard in connections.all() {
        let mut stages = stages_on_shard(routing, command, &options, &start, shard);
        stages.extend_from_slice(rest);
        let mut on_shard = command.clone();
        on_shard.insert("pipeline", stages);
        // The token of the reply is then the position at which the stream begins.
        on_shard.insert("cursor", doc! { "batchSize": 0 });
        sources.push(Source::of(shard, connections.send_ok(shard, &on_shard)?));
    }
    let collection = command.get_str("aggregate").unwrap_or("$cmd.aggregate");
    let mut stream = Stream {
        database: database(command).to_owned(),
        collection: collection.to_owned(),
        sources,
        reached: start.behind,
    };
    let size = first_batch_size(&document(command, "cursor"))?;
    let batch = stream.next_batch(connections, command, size, Duration::ZERO)?;
    Ok(stream.keep(connections, "firstBatch", batch, None))
}

/// `getMore`. `None`: the cursor is not one of a stream.
pub(super) fn get_more(connections: &mut ShardConnections, command: &Document) -> Result<Option<Document>> {
    let id = number(command, "getMore");
    let Some(mut stream) = connections.state().streams.lock().remove(&id) else {
        return Ok(None);
    };
    let size = next_batch_size(command)?;
    let wait = match command.get("maxTimeMS") {
        Some(_) => Duration::from_millis(u64::try_from(number(command, "maxTimeMS"))?),
        None => DEFAULT_WAIT,
    };
    let batch = stream.next_batch(connections, command, size, wait)?;
    Ok(Some(stream.keep(connections, "nextBatch", batch, Some(id))))
}

/// Closes a stream. Returns whether there was one.
pub(super) fn kill(connections: &mut ShardConnections, command: &Document, id: i64) -> Result<bool> {
    let Some(stream) = connections.state().streams.lock().remove(&id) else {
        return Ok(false);
    };
    for source in stream.sources {
        source.kill(connections, command, &stream.collection)?;
    }
    Ok(true)
}

/// The position at which a stream begins.
struct Start {
    time: Timestamp,
    /// The client has the events up to this token.
    behind: Token,
}

impl Start {
    /// `None`: the token is malformed.
    fn of(connections: &mut ShardConnections, options: &Document) -> Result<Option<Self>> {
        let mut tokens = POSITIONS.iter().filter_map(|name| options.get_document(name).ok());
        if let Some(token) = tokens.next() {
            let behind = Token::of(token.clone());
            return Ok(behind.time().map(|time| Self { time, behind }));
        }
        let time = match options.get("startAtOperationTime") {
            Some(Bson::Timestamp(time)) => *time,
            _ => present(connections)?,
        };
        Ok(Some(Self {
            time,
            behind: Token::default(),
        }))
    }
}

/// The first time that no write has.
fn present(connections: &mut ShardConnections) -> Result<Timestamp> {
    for shard in connections.all() {
        connections.append_note(shard)?;
    }
    let Timestamp { time, increment } = connections.state().cluster_time().context("no cluster time")?;
    let increment = increment + 1;
    Ok(Timestamp { time, increment })
}

/// The stages before the client's own ones.
fn stages_on_shard(
    routing: &Routing,
    command: &Document,
    options: &Document,
    start: &Start,
    shard: usize,
) -> Vec<Document> {
    let mut own = without(options, &POSITIONS);
    own.insert("startAtOperationTime", start.time);
    let mut visible = doc! { "lsid.id": { "$ne": moves::session_id() } };
    if shard != FIRST_SHARD {
        visible.insert("operationType", doc! { "$in": OF_DOCUMENTS.to_vec() });
    }
    let of_database = format!("{}.", database(command));
    let watched = |sharded: &&Sharded| match namespace(command) {
        Some(namespace) => sharded.namespace == namespace,
        None => is_set(options, "allChangesForCluster") || sharded.namespace.starts_with(&of_database),
    };
    let keys: Vec<Document> = routing.collections.values().filter(watched).map(with_key).collect();
    if keys.is_empty() {
        return vec![doc! { "$changeStream": own }, doc! { "$match": visible }];
    }
    let document_key = doc! { "$switch": { "branches": keys, "default": "$documentKey" } };
    let has_pre_images = options.get_str(PRE_IMAGE).is_ok_and(|requested| requested != "off");
    if !has_pre_images {
        own.insert(PRE_IMAGE, "whenAvailable");
    }
    let mut stages = vec![
        doc! { "$changeStream": own },
        doc! { "$match": visible },
        doc! { "$set": { "documentKey": document_key } },
    ];
    if !has_pre_images {
        stages.push(doc! { "$unset": PRE_IMAGE });
    }
    stages
}

/// The branch that returns the document key of a document in this collection.
fn with_key(sharded: &Sharded) -> Document {
    let (database, collection) = sharded.namespace.split_once('.').unwrap_or_default();
    let equals = |path: &str, value: &str| doc! { "$eq": [path, { "$literal": value }] };
    let is_document = doc! { "$eq": [{ "$type": "$documentKey" }, "object"] };
    let values = sharded.pattern.keys().map(|field| {
        let images = [PRE_IMAGE, "fullDocument"].map(|image| format!("${image}.{field}"));
        (field.clone(), Bson::from(doc! { "$ifNull": images.to_vec() }))
    });
    let values: Document = values.collect();
    doc! {
        "case": { "$and": [equals("$ns.db", database), equals("$ns.coll", collection), is_document] },
        "then": { "$mergeObjects": [values, "$documentKey"] },
    }
}

impl Stream {
    /// Events in the order of their tokens. Waits for the first one.
    fn next_batch(
        &mut self,
        connections: &mut ShardConnections,
        command: &Document,
        size: usize,
        wait: Duration,
    ) -> Result<Vec<Bson>> {
        let deadline = Instant::now() + wait;
        let now = connections.state().cluster_time();
        let mut batch = self.take(size)?;
        let mut is_late = size == 0;
        while batch.is_empty() && !is_late && !self.has_ended() {
            is_late = Instant::now() >= deadline;
            self.read(connections, command)?;
            let needed = self.first().and_then(|first| first.time()).or(now);
            let lagging = self.sources.iter().filter(|source| source.is_before(needed));
            let lagging: Vec<usize> = lagging.map(Source::shard).collect();
            if !lagging.is_empty() {
                for shard in lagging {
                    connections.append_note(shard)?;
                }
                self.read(connections, command)?;
            }
            batch = self.take(size)?;
            if batch.is_empty() && !is_late {
                thread::sleep(PAUSE);
            }
        }
        if let Some(last) = batch.last().and_then(Bson::as_document) {
            self.reached = Token::of(document(last, "_id"));
        }
        if let Some(passed) = self.passed().filter(|passed| !self.has_event_up_to(passed)) {
            self.reached = passed.max(self.reached.clone());
        }
        Ok(batch)
    }

    /// Reads the shards that have no event.
    fn read(&mut self, connections: &mut ShardConnections, command: &Document) -> Result<()> {
        for source in &mut self.sources {
            source.read(connections, command, &self.collection, &self.reached)?;
        }
        Ok(())
    }

    /// The token of the first event.
    fn first(&self) -> Option<Token> {
        self.sources.iter().filter_map(Source::first).min()
    }

    /// The position that all shards without an event have passed.
    fn passed(&self) -> Option<Token> {
        self.sources.iter().filter_map(Source::passed).min()
    }

    fn has_event_up_to(&self, token: &Token) -> bool {
        self.first().is_some_and(|first| first <= *token)
    }

    /// The events that no shard can precede. They end when they have half of [`BATCH_BYTES`].
    fn take(&mut self, size: usize) -> Result<Vec<Bson>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(first) = self.first().filter(|_| batch.len() < size) {
            if self.passed().is_some_and(|passed| passed < first) {
                break;
            }
            let source = self
                .sources
                .iter_mut()
                .find(|source| source.first().as_ref() == Some(&first));
            let event = source.and_then(Source::take).context("no event")?;
            bytes += event.to_vec()?.len();
            batch.push(Bson::Document(event));
            if bytes > BATCH_BYTES / 2 {
                break;
            }
        }
        Ok(batch)
    }

    /// Whether the first shard has closed its stream, after an `invalidate`, and all events were returned.
    fn has_ended(&self) -> bool {
        let of_first = self.sources.iter().find(|source| source.shard() == FIRST_SHARD);
        of_first.is_some_and(Source::is_closed) && self.first().is_none()
    }

    /// Keeps the stream, and returns the reply with a batch.
    fn keep(self, connections: &ShardConnections, field: &str, batch: Vec<Bson>, id: Option<i64>) -> Document {
        let state = connections.state();
        let namespace = format!("{}.{}", self.database, self.collection);
        let token = self.reached.document().clone();
        let id = match id {
            _ if self.has_ended() => 0,
            Some(id) => id,
            None => FIRST_ID + state.streams.opened.fetch_add(1, Ordering::Relaxed),
        };
        if id != 0 {
            state.streams.lock().insert(id, self);
        }
        let cursor = doc! { field: batch, "postBatchResumeToken": token, "id": id, "ns": namespace };
        doc! { "cursor": cursor, "ok": 1.0 }
    }
}
