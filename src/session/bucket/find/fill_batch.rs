//! Fills batches from an item cursor: asks mongod for pages, and decodes their items.

use bson::raw::{RawDocument, RawDocumentBuf, cstr};

use super::item_cursor::{
    BatchLimit, BatchRequest, BatchStatus, FIRST_GUESS_BYTES, ItemCursor, PIECE_BYTES, TARGET_BYTES, UpstreamCursor,
};
use crate::command::batch::{BatchKind, ReplyBatch};
use crate::command::reply::{CursorReply, copy_cluster_time, succeeded};
use crate::pattern::bucket::read::page_scan::ScanStep;
use crate::pattern::shapes::BucketShape;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::upstream_query::{complete, get_more, kill};
use crate::session::error::RunError;
use crate::session::upstream_connection::{PendingReply, UpstreamRequest};

impl ItemCursor {
    /// The query for the next buckets, where no cursor is open.
    pub(super) fn query(&self, run: &BucketCommand<'_>, measure: BatchLimit) -> RawDocumentBuf {
        let buckets =
            i64::try_from(self.buckets(run.shape, measure, &ReplyBatch::new(BatchKind::First))).unwrap_or(i64::MAX);
        let mut find = self.walk.query(run.source());
        find.append(cstr!("batchSize"), buckets);
        if self.closes {
            // A cursor is left open where these are more bytes than a reply holds, and only then.
            find.append(cstr!("limit"), buckets);
        }
        find
    }

    /// Fills a batch. `first` is the answer to the first query, where that was sent already.
    pub(in crate::session::bucket) async fn fill(
        &mut self,
        run: &mut BucketCommand<'_>,
        shape: &BucketShape,
        BatchRequest { kind, limit: measure }: BatchRequest,
        mut first: Option<RawDocumentBuf>,
    ) -> Result<(ReplyBatch, BatchStatus), RunError> {
        let mut batch = ReplyBatch::new(kind);
        let mut sent: Option<PendingReply> = None;
        loop {
            // Something is read first, even for a batch of none: it may tell that buckets do not answer this.
            if self.upstream != UpstreamCursor::None && sent.is_none() {
                if self.move_into(&mut batch, measure) {
                    return Ok((batch, BatchStatus::More));
                }
                if self.done {
                    let filled = if measure.is_nothing() {
                        BatchStatus::More
                    } else {
                        BatchStatus::All
                    };
                    return Ok((batch, filled));
                }
            }
            let first_asked = self.first_asked.take();
            let limit = first_asked.or_else(|| self.closes.then(|| self.buckets(shape, measure, &batch)));
            let answer = match (first.take(), sent.take()) {
                (Some(answer), _) => answer,
                (None, Some(sent)) => succeeded(run.context.link.answer_to(sent).await?)?,
                (None, None) => {
                    let command = self.command(run, shape, measure, &batch);
                    succeeded(run.context.link.call(UpstreamRequest::plain(&command)).await?)?
                }
            };
            // mongod reads on while these are unpacked.
            if self.needs_more_than(&answer, measure, &batch) {
                let command = self.command(run, shape, measure, &batch);
                sent = Some(run.context.link.send(UpstreamRequest::plain(&command)).await?);
            }
            let step = self.unpack(shape, &answer, limit);
            if !matches!(step, ScanStep::Done | ScanStep::More) || self.done {
                // What was asked for in vain.
                if let Some(sent) = sent.take() {
                    self.see(&succeeded(run.context.link.answer_to(sent).await?)?);
                }
            }
            match step {
                ScanStep::OutOfOrder => return Ok((batch, BatchStatus::OutOfOrder)),
                ScanStep::Stray => {
                    self.close(run).await?;
                    return Err(run.corrupt_bucket_error().into());
                }
                ScanStep::Done | ScanStep::More => {}
            }
            self.gossip = RawDocumentBuf::new();
            copy_cluster_time(&mut self.gossip, &answer);
            if self.done || limit.is_some() {
                self.close(run).await?;
            } else if sent.is_some() {
                self.move_into(&mut batch, measure);
            }
        }
    }

    /// Whether another answer will be needed for the batch, as far as can be told before this one is
    /// unpacked.
    fn needs_more_than(&self, answer: &RawDocument, measure: BatchLimit, batch: &ReplyBatch) -> bool {
        let Some(cursor) = CursorReply::parse(answer).filter(|cursor| cursor.id != 0) else {
            return false;
        };
        // The first answer may tell that this is not the way, and a limit that it is the last.
        let is_long = matches!(self.upstream, UpstreamCursor::Open(_)) && !self.closes && self.walk.left().is_none();
        let bytes = cursor.batch.as_bytes().len().saturating_mul(2);
        let have = batch.document_bytes().saturating_add(self.waiting.weight());
        is_long && measure.documents.is_none() && have.saturating_add(bytes) < measure.bytes
    }

    /// Moves what waits into the batch; whether that is full.
    fn move_into(&mut self, batch: &mut ReplyBatch, measure: BatchLimit) -> bool {
        loop {
            if measure.is_full(batch) {
                return !(self.done && self.waiting.is_empty());
            }
            let Some(document) = self.waiting.first() else {
                return false;
            };
            if !batch.has_space_for(document.len()) || batch.document_bytes() >= measure.bytes {
                return true;
            }
            batch.push(document);
            self.waiting.advance();
        }
    }

    /// How many buckets to ask for, to fill the batch.
    fn buckets(&self, shape: &BucketShape, measure: BatchLimit, batch: &ReplyBatch) -> u64 {
        let (bytes, seen) = self.seen;
        let weight = bytes.checked_div(seen).unwrap_or(FIRST_GUESS_BYTES).max(1);
        let room = TARGET_BYTES
            .saturating_sub(batch.document_bytes())
            .min(PIECE_BYTES)
            .div_ceil(weight)
            .max(1);
        let room = u64::try_from(room).unwrap_or(u64::MAX);
        let have = u64::try_from(batch.count()).unwrap_or(u64::MAX);
        let wanted = [
            measure.documents.map(|most| most.saturating_sub(have)),
            self.walk.left(),
        ];
        match wanted.into_iter().flatten().min() {
            Some(items) => self.walk.buckets_for(shape, items).min(room.max(1)),
            None => room,
        }
    }

    /// The command for the next buckets.
    fn command(
        &self,
        run: &BucketCommand<'_>,
        shape: &BucketShape,
        measure: BatchLimit,
        batch: &ReplyBatch,
    ) -> RawDocumentBuf {
        match self.upstream {
            UpstreamCursor::Open(id) => get_more(run, id, Some(self.buckets(shape, measure, batch))),
            UpstreamCursor::None | UpstreamCursor::Exhausted => complete(run, self.query(run, measure)),
        }
    }

    /// Takes note of whether the upstream's cursor is open behind an answer.
    fn see<'a>(&mut self, answer: &'a RawDocument) -> Option<CursorReply<'a>> {
        let cursor = CursorReply::parse(answer)?;
        self.upstream = match cursor.id {
            0 => UpstreamCursor::Exhausted,
            id => UpstreamCursor::Open(id),
        };
        Some(cursor)
    }

    /// Takes the items out of an answer, to a query for so many buckets, or for all.
    fn unpack(&mut self, shape: &BucketShape, answer: &RawDocument, limit: Option<u64>) -> ScanStep {
        let Some(cursor) = self.see(answer) else {
            return ScanStep::Stray;
        };
        let mut read = 0_u64;
        for bucket in cursor.documents() {
            read += 1;
            self.seen = (self.seen.0 + bucket.as_bytes().len(), self.seen.1 + 1);
            if std::mem::take(&mut self.captures_first_page) {
                self.first = Some(bucket.to_owned());
            }
            match self.walk.take(shape, bucket, &mut self.waiting) {
                ScanStep::More => {}
                ScanStep::Done => {
                    self.done = true;
                    return ScanStep::Done;
                }
                step => return step,
            }
        }
        let ended = cursor.id == 0 && limit.is_none_or(|limit| read < limit);
        self.done = ended || self.walk.is_at_the_end();
        ScanStep::More
    }

    /// Ends the upstream's cursor, if one is left open.
    pub(in crate::session::bucket) async fn close(&mut self, run: &mut BucketCommand<'_>) -> Result<(), RunError> {
        if let UpstreamCursor::Open(id) = std::mem::replace(&mut self.upstream, UpstreamCursor::Exhausted) {
            kill(run, id).await?;
        }
        Ok(())
    }
}
