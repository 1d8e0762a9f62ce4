//! A connection that sends one query repeatedly. Requests are built before the clock starts. Replies are
//! parsed only to count documents and to find the cursor.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use bson::{Document, doc};
use proto_tests::raw;

use crate::bench::client::Client;
use crate::bench::place::Place;

/// Where a `getMore`'s cursor is in its frame: behind the header, the flags, the section's kind, the
/// document's length, the field's type and its name.
const CURSOR_AT: usize = 16 + 4 + 1 + 4 + 1 + "getMore\0".len();

/// How a read ends.
#[derive(Debug)]
pub(super) enum End {
    /// All documents were read.
    Exhausted,
    /// There were none, but a number.
    Number(i64),
    /// An error, with its message.
    Refused(String),
}

/// A connection and its request.
#[derive(Debug)]
pub(super) struct Reader {
    client: Client,
    first: Vec<u8>,
    more: Vec<u8>,
    reply: Vec<u8>,
}

impl Reader {
    /// Connects.
    pub(super) fn open(place: &Place, command: Document) -> Result<Self> {
        let client = place.client()?;
        Ok(Self {
            first: client.frame(command)?,
            more: client.frame(doc! { "getMore": 0_i64, "collection": place.variant.collection })?,
            client,
            reply: Vec::new(),
        })
    }

    /// Reads once, to the end, and gives every batch.
    pub(super) fn read(&mut self, mut batch: impl FnMut(&RawArray) -> Result<()>) -> Result<End> {
        self.client.exchange_frames(&self.first, &mut self.reply)?;
        loop {
            let cursor = match Reply::parse(&self.reply)? {
                Reply::Batch { documents, cursor } => {
                    batch(documents)?;
                    cursor
                }
                Reply::End(end) => return Ok(end),
            };
            if cursor == 0 {
                return Ok(End::Exhausted);
            }
            self.more(cursor)?;
        }
    }

    /// Sends the first command and gives the cursor and how many documents there were.
    pub(super) fn begin(&mut self) -> Result<(i64, usize)> {
        self.client.exchange_frames(&self.first, &mut self.reply)?;
        self.batch()
    }

    /// Fetches the next batch, and gives the cursor and how many documents there were. Forgets the reply
    /// then, whose room is not little.
    pub(super) fn next(&mut self, cursor: i64) -> Result<(i64, usize)> {
        self.more(cursor)?;
        let batch = self.batch();
        self.reply = Vec::new();
        batch
    }

    /// How long reading once takes, to the end. Fails unless there are so many documents.
    pub(super) fn time(&mut self, expected: usize) -> Result<Duration> {
        let mut documents = 0;
        let started = Instant::now();
        let end = self.read(|batch| {
            documents += count(batch)?;
            Ok(())
        })?;
        let taken = started.elapsed();
        ensure!(!matches!(end, End::Refused(_)), "{end:?}");
        ensure!(documents == expected, "{documents} documents, not {expected}");
        Ok(taken)
    }

    fn more(&mut self, cursor: i64) -> Result<()> {
        self.more[CURSOR_AT..CURSOR_AT + size_of::<i64>()].copy_from_slice(&cursor.to_le_bytes());
        self.client.exchange_frames(&self.more, &mut self.reply)
    }

    fn batch(&self) -> Result<(i64, usize)> {
        match Reply::parse(&self.reply)? {
            Reply::Batch { documents, cursor } => Ok((cursor, count(documents)?)),
            Reply::End(end) => Err(anyhow::anyhow!("no cursor: {end:?}")),
        }
    }
}

fn count(batch: &RawArray) -> Result<usize> {
    let mut documents = 0;
    for document in batch {
        document?;
        documents += 1;
    }
    Ok(documents)
}

/// The fields of a reply.
enum Reply<'a> {
    Batch { documents: &'a RawArray, cursor: i64 },
    End(End),
}

impl<'a> Reply<'a> {
    fn parse(frame: &'a [u8]) -> Result<Self> {
        let reply = RawDocument::from_bytes(raw::body(frame)?)?;
        // A count of a time-series collection has it as an int32.
        let ok = reply
            .get("ok")?
            .and_then(|ok| ok.as_f64().or_else(|| ok.as_i32().map(f64::from)));
        if ok.is_none_or(|ok| ok <= 0.0) {
            let message = reply.get_str("errmsg").unwrap_or("without a message");
            return Ok(Self::End(End::Refused(message.to_owned())));
        }
        if let Some(number) = reply.get("n")? {
            let long = number.as_i32().map(i64::from).or_else(|| number.as_i64());
            return Ok(Self::End(End::Number(long.context("n is no number")?)));
        }
        let cursor = reply.get_document("cursor")?;
        let documents = cursor.get("firstBatch")?.or(cursor.get("nextBatch")?);
        Ok(Self::Batch {
            documents: documents.and_then(RawBsonRef::as_array).context("no batch")?,
            cursor: cursor.get_i64("id")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_id_is_found_at_its_position() -> Result<()> {
        let mut frame = raw::request(1, &doc! { "getMore": 0_i64, "collection": "c", "$db": "d" })?;
        frame[CURSOR_AT..CURSOR_AT + 8].copy_from_slice(&42_i64.to_le_bytes());
        assert_eq!(raw::document(&frame)?.get_i64("getMore")?, 42);
        Ok(())
    }

    #[test]
    fn replies_are_batches_numbers_and_errors() -> Result<()> {
        let batch = doc! { "cursor": { "nextBatch": [{ "a": 1 }, { "a": 2 }], "id": 7_i64, "ns": "d.c" }, "ok": 1.0 };
        let frame = raw::request(1, &batch)?;
        let Reply::Batch { documents, cursor } = Reply::parse(&frame)? else {
            panic!("no batch");
        };
        assert_eq!((count(documents)?, cursor), (2, 7));
        let frame = raw::request(1, &doc! { "n": 3, "ok": 1.0 })?;
        assert!(matches!(Reply::parse(&frame)?, Reply::End(End::Number(3))));
        let frame = raw::request(1, &doc! { "ok": 0.0, "errmsg": "no" })?;
        assert!(matches!(Reply::parse(&frame)?, Reply::End(End::Refused(message)) if message == "no"));
        Ok(())
    }
}
