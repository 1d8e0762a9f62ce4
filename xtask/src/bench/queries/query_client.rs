//! A connection that sends queries and reads their replies to the end. Requests are made before the clock
//! starts. While it runs, a reply is read as far as it takes to find the cursor and to count documents.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use bson::{Bson, Document, doc};
use proto_tests::raw;

use super::servers::DATABASE;
use crate::bench::client::{Client, Retries};

/// The offset of the cursor in the frame of a `getMore`: behind the header, the flags, the section's kind, the
/// document's length, the field's type and its name.
const CURSOR_AT: usize = 16 + 4 + 1 + 4 + 1 + "getMore\0".len();

/// The frames of a query.
#[derive(Debug, Clone)]
pub(super) struct Request {
    first: Vec<u8>,
    /// The `getMore`, without its cursor.
    more: Vec<u8>,
    /// The filter of a `find`, empty for any other command.
    pub(super) filter: Document,
}

/// What a query took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Exchange {
    pub(super) taken: Duration,
    /// Documents, or distinct values, in all replies.
    pub(super) documents: usize,
    /// Of all requests and replies.
    pub(super) bytes: usize,
}

/// A connection for queries.
#[derive(Debug)]
pub(super) struct QueryClient {
    client: Client,
    reply: Vec<u8>,
}

impl QueryClient {
    /// Connects.
    pub(super) fn open(address: SocketAddr) -> Result<Self> {
        Ok(Self {
            client: Client::open(address, DATABASE, Retries::None)?,
            reply: Vec::new(),
        })
    }

    /// The frames of a command.
    pub(super) fn request(&self, command: &Document) -> Result<Request> {
        let collection = command.values().next().and_then(Bson::as_str);
        let mut more = doc! { "getMore": 0_i64, "collection": collection.context("no collection")? };
        if let Some(batch_size) = command.get("batchSize") {
            more.insert("batchSize", batch_size);
        }
        let filter = command.get_document("filter").cloned();
        Ok(Request {
            filter: filter.unwrap_or_default(),
            first: self.client.frame(command.clone())?,
            more: self.client.frame(more)?,
        })
    }

    /// Sends a query, fetches all batches of its answer and measures that.
    pub(super) fn time(&mut self, request: &Request) -> Result<Exchange> {
        let mut exchange = Exchange::default();
        let mut documents = 0;
        let started = Instant::now();
        exchange.bytes = self.read(request, |part| {
            if let Part::Batch(batch) = part {
                for document in batch {
                    document?;
                    documents += 1;
                }
            }
            Ok(())
        })?;
        exchange.taken = started.elapsed();
        exchange.documents = documents;
        Ok(exchange)
    }

    /// All documents of the answer to a query, one after the other. Distinct values and counts are fields of
    /// documents.
    pub(super) fn documents(&mut self, request: &Request, mut each: impl FnMut(Document)) -> Result<()> {
        self.read(request, |part| {
            match part {
                Part::Count(n) => each(doc! { "n": n }),
                Part::Batch(batch) => {
                    for value in batch {
                        each(match Bson::try_from(value?)? {
                            Bson::Document(document) => document,
                            value => doc! { "value": value },
                        });
                    }
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Sends a query and fetches all batches: the bytes of all requests and replies.
    fn read(&mut self, request: &Request, mut each: impl FnMut(Part<'_>) -> Result<()>) -> Result<usize> {
        self.client.exchange_frames(&request.first, &mut self.reply)?;
        let mut bytes = request.first.len() + self.reply.len();
        loop {
            let reply = RawDocument::from_bytes(raw::body(&self.reply)?)?;
            let Reply { part, cursor } = Reply::parse(reply)?;
            each(part)?;
            if cursor == 0 {
                return Ok(bytes);
            }
            let mut more = request.more.clone();
            more[CURSOR_AT..CURSOR_AT + size_of::<i64>()].copy_from_slice(&cursor.to_le_bytes());
            self.client.exchange_frames(&more, &mut self.reply)?;
            bytes += more.len() + self.reply.len();
        }
    }
}

/// What one reply contains.
enum Part<'a> {
    Batch(&'a RawArray),
    Count(i64),
}

struct Reply<'a> {
    part: Part<'a>,
    /// 0: there are no more batches.
    cursor: i64,
}

impl<'a> Reply<'a> {
    fn parse(reply: &'a RawDocument) -> Result<Self> {
        let ok = reply.get("ok")?;
        let ok = ok.and_then(|ok| ok.as_f64().or_else(|| ok.as_i32().map(f64::from)));
        if ok.is_none_or(|ok| ok <= 0.0) {
            bail!("{}", reply.get_str("errmsg").unwrap_or("an error without a message"));
        }
        if let Some(n) = reply.get("n")? {
            let n = n.as_i32().map(i64::from).or_else(|| n.as_i64());
            let part = Part::Count(n.context("n is no number")?);
            return Ok(Self { part, cursor: 0 });
        }
        if let Some(values) = reply.get("values")?.and_then(RawBsonRef::as_array) {
            let part = Part::Batch(values);
            return Ok(Self { part, cursor: 0 });
        }
        let cursor = reply.get_document("cursor")?;
        let batch = cursor.get("firstBatch")?.or(cursor.get("nextBatch")?);
        let batch = batch.and_then(RawBsonRef::as_array).context("no batch")?;
        Ok(Self {
            part: Part::Batch(batch),
            cursor: cursor.get_i64("id")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(reply: &Document) -> Result<String> {
        let bytes = reply.to_vec()?;
        let Reply { part, cursor } = Reply::parse(RawDocument::from_bytes(&bytes)?)?;
        Ok(match part {
            Part::Batch(batch) => format!("{} cursor {cursor}", batch.into_iter().count()),
            Part::Count(n) => format!("n {n}"),
        })
    }

    #[test]
    fn replies_are_batches_counts_and_errors() -> Result<()> {
        let batch = doc! { "cursor": { "nextBatch": [{}, {}], "id": 7_i64, "ns": "d.c" }, "ok": 1.0 };
        assert_eq!(shown(&batch)?, "2 cursor 7");
        assert_eq!(shown(&doc! { "values": [1, 2, 3], "ok": 1.0 })?, "3 cursor 0");
        assert_eq!(shown(&doc! { "n": 5, "ok": 1.0 })?, "n 5");
        let error = shown(&doc! { "ok": 0.0, "errmsg": "no" }).expect_err("an error");
        assert_eq!(error.to_string(), "no");
        Ok(())
    }
}
