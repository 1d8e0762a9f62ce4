//! Reads the stream of one side.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document, Timestamp, doc};

use super::{Step, Stream};
use crate::differential::grammar::{StreamResume, StreamScope};
use crate::differential::sides::{COLLECTION, Side, show};
use crate::resume_token::time_of;

/// The longest time in which a stream reaches the last write.
const LIMIT: Duration = Duration::from_secs(20);

/// The stream of one side.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) cursor: i64,
    /// Events that the opening reply had.
    first: Vec<RawDocumentBuf>,
    /// The positions of the opening and behind each step.
    past: Vec<Position>,
    /// The greatest token since the opening.
    reached: String,
}

#[derive(Debug, Clone)]
pub(super) struct Position {
    token: Document,
    /// The time behind it.
    time: Timestamp,
}

impl Reader {
    pub(super) fn open(stream: &Stream, side: &mut Side) -> Result<Self> {
        let mut reader = Self::default();
        let opened = reader.open_at(stream, side, None)?;
        reader.past.push(opened);
        Ok(reader)
    }

    /// Opens the stream. Returns the position of the reply.
    pub(super) fn open_at(
        &mut self,
        stream: &Stream,
        side: &mut Side,
        position: Option<(&str, Bson)>,
    ) -> Result<Position> {
        let command = stream.aggregate(side, position);
        let reply = side.routes.command_raw(&command)?;
        self.reached.clear();
        let token = self.take(&reply).with_context(|| format!("{command}"))?;
        let time = reply.get_timestamp("operationTime")?;
        let after = Timestamp {
            increment: time.increment + 1,
            ..time
        };
        Ok(Position { token, time: after })
    }

    /// The token of an empty first batch of a stream that begins behind another token.
    pub(super) fn token_of_empty_batch(stream: &Stream, side: &mut Side, behind: Document) -> Result<Document> {
        let mut reader = Self::default();
        let mut command = stream.aggregate(side, Some(("resumeAfter", behind.into())));
        command.insert("cursor", doc! { "batchSize": 0 });
        let reply = side.routes.command_raw(&command)?;
        let token = reader.take(&reply).with_context(|| format!("{command}"))?;
        ensure!(reader.first.is_empty(), "an empty batch has events");
        reader.kill(stream, side)?;
        Ok(token)
    }

    /// Takes a reply's cursor, events and token. Tokens ascend, or a stream that begins at one would return
    /// events again.
    fn take(&mut self, reply: &RawDocument) -> Result<Document> {
        let cursor = reply.get_document("cursor").with_context(|| show(reply))?;
        self.cursor = cursor.get_i64("id")?;
        let batch = cursor
            .get_array("firstBatch")
            .or_else(|_| cursor.get_array("nextBatch"))?;
        for event in batch.into_iter().flatten().filter_map(RawBsonRef::as_document) {
            self.first.push(event.to_owned());
            self.reach(event.get_document("_id")?)?;
        }
        let token = cursor.get_document("postBatchResumeToken")?;
        self.reach(token)?;
        Ok(Document::try_from(token)?)
    }

    fn reach(&mut self, token: &RawDocument) -> Result<()> {
        let data = token.get_str("_data")?;
        ensure!(
            self.reached.as_str() <= data,
            "the token {data} is before {}",
            self.reached
        );
        data.clone_into(&mut self.reached);
        Ok(())
    }

    /// Opens the stream again behind an earlier event, if the step says so.
    pub(super) fn resume(&mut self, stream: &Stream, side: &mut Side, step: &Step) -> Result<()> {
        let mut kept = self.past.len().saturating_sub(step.back).max(1);
        let last = self.past[kept - 1].clone();
        let position = match step.resume {
            StreamResume::Continue => return Ok(()),
            StreamResume::ResumeAfter => ("resumeAfter", last.token.into()),
            StreamResume::StartAfter => ("startAfter", last.token.into()),
            StreamResume::StartAtTime => {
                // All events come again: on the shaped side several may have one time.
                kept = 1;
                ("startAtOperationTime", self.past[0].time.into())
            }
        };
        self.kill(stream, side)?;
        self.past.truncate(kept);
        self.open_at(stream, side, Some(position)).map(drop)
    }

    /// All events up to the present: until mongod has read the last write.
    pub(super) fn drain(&mut self, stream: &Stream, side: &mut Side) -> Result<Vec<RawDocumentBuf>> {
        let ping = side.run(&doc! { "ping": 1 })?;
        let last_write = ping.get_timestamp("operationTime")?;
        let mut events = std::mem::take(&mut self.first);
        let mut reached = Timestamp { time: 0, increment: 0 };
        let deadline = Instant::now() + LIMIT;
        while self.cursor != 0 && (reached < last_write || !self.first.is_empty()) {
            ensure!(Instant::now() < deadline, "the stream does not reach {last_write}");
            events.append(&mut self.first);
            let collection = match stream.scope {
                StreamScope::Collection => COLLECTION,
                StreamScope::Database | StreamScope::Cluster => "$cmd.aggregate",
            };
            let mut more = doc! { "getMore": self.cursor, "collection": collection, "maxTimeMS": 20, "$db": stream.database(side) };
            more.extend(stream.batch_size.map(|size| ("batchSize".to_owned(), Bson::from(size))));
            let reply = side.routes.command_raw(&more)?;
            reached = time_in(&self.take(&reply)?)?;
        }
        events.append(&mut self.first);
        Ok(events)
    }

    /// Records the position behind the events of a step.
    pub(super) fn remember(&mut self, events: &[RawDocumentBuf]) -> Result<()> {
        let last = self.past.last().cloned().context("a position")?;
        self.past.push(match events.last() {
            Some(event) => Position {
                token: Document::try_from(event.get_document("_id")?)?,
                time: event.get_timestamp("clusterTime")?,
            },
            None => last,
        });
        Ok(())
    }

    pub(super) fn kill(&mut self, stream: &Stream, side: &mut Side) -> Result<()> {
        if self.cursor != 0 {
            let kill = doc! { "killCursors": COLLECTION, "cursors": [self.cursor], "$db": stream.database(side) };
            let reply = side.routes.command_raw(&kill)?;
            ensure!(show(&reply).contains("cursorsKilled"), "{}", show(&reply));
            self.cursor = 0;
        }
        Ok(())
    }
}

/// The time in a token of mongod, or in one of the proxy, which contains a token of mongod.
fn time_in(token: &Document) -> Result<Timestamp> {
    let data = token.get_str("_data")?.trim_start_matches("mongoshape:");
    time_of(data).with_context(|| format!("no time in {token}"))
}
