//! Fills batches from an item cursor: queries mongod for pages, and decodes their items.

use bson::raw::{RawDocument, RawDocumentBuf, cstr};

use super::item_cursor::{
    BatchLimit, BatchRequest, BatchStatus, ItemCursor, PIECE_BYTES, TARGET_BYTES, UpstreamCursor,
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
    /// The `find` for the next buckets, if no upstream cursor is open.
    pub(super) fn query(&self, run: &BucketCommand<'_>, measure: BatchLimit) -> RawDocumentBuf {
        let buckets =
            i64::try_from(self.buckets(run.shape, measure, &ReplyBatch::new(BatchKind::First))).unwrap_or(i64::MAX);
        let mut find = self.scan.query(run.source());
        find.append(cstr!("batchSize"), buckets);
        if self.closes {
            // With this limit mongod leaves a cursor open only if the buckets exceed one reply.
            find.append(cstr!("limit"), buckets);
        }
        find
    }

    /// Fills a batch. `first` is the reply to the first query, if that was sent already.
    ///
    /// Sends the next query before it decodes a reply, if the batch needs more.
    ///
    /// # Errors
    /// mongod's error, or a document that is not a bucket.
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
            // One reply is read even for an empty batch: it shows whether a page scan answers the query.
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
            let first_limit = self.first_limit.take();
            let limit = first_limit.or_else(|| self.closes.then(|| self.buckets(shape, measure, &batch)));
            let answer = match (first.take(), sent.take()) {
                (Some(answer), _) => answer,
                (None, Some(sent)) => succeeded(run.context.link.answer_to(sent).await?)?,
                (None, None) => {
                    let command = self.command(run, shape, measure, &batch);
                    succeeded(run.context.link.call(UpstreamRequest::plain(&command)).await?)?
                }
            };
            // mongod reads the next pages while these are decoded.
            if self.needs_more_than(&answer, measure, &batch) {
                let command = self.command(run, shape, measure, &batch);
                sent = Some(run.context.link.send(UpstreamRequest::plain(&command)).await?);
            }
            let step = self.unpack(shape, &answer, limit);
            if !matches!(step, ScanStep::Done | ScanStep::More) || self.done {
                // The reply to a query that is not needed any more.
                if let Some(sent) = sent.take() {
                    self.see(&succeeded(run.context.link.answer_to(sent).await?)?);
                }
            }
            match step {
                ScanStep::OutOfOrder => return Ok((batch, BatchStatus::NotAnswered)),
                ScanStep::NotABucket => {
                    self.close(run).await?;
                    return Err(run.corrupt_bucket_error().into());
                }
                ScanStep::Done | ScanStep::More => {}
            }
            self.cluster_time = RawDocumentBuf::new();
            copy_cluster_time(&mut self.cluster_time, &answer);
            if self.done || limit.is_some() {
                self.close(run).await?;
                if !self.done && !self.scan.can_go_on() {
                    return Ok((batch, BatchStatus::NotAnswered));
                }
            } else if sent.is_some() {
                self.move_into(&mut batch, measure);
            }
        }
    }

    /// Whether the batch needs another reply, estimated before this one is decoded.
    fn needs_more_than(&self, answer: &RawDocument, measure: BatchLimit, batch: &ReplyBatch) -> bool {
        let Some(cursor) = CursorReply::parse(answer).filter(|cursor| cursor.id != 0) else {
            return false;
        };
        // The first reply may show that a page scan does not answer the query. With a limit, a reply may be
        // the last one.
        let is_long = matches!(self.upstream, UpstreamCursor::Open(_)) && !self.closes && self.scan.left().is_none();
        let bytes = cursor.batch.as_bytes().len().saturating_mul(2);
        let have = batch.document_bytes().saturating_add(self.waiting.weight());
        is_long && measure.documents.is_none() && have.saturating_add(bytes) < measure.bytes
    }

    /// Moves decoded items into the batch. `true` if the batch is full and items may be left.
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

    /// The number of buckets to query for, to fill the batch.
    fn buckets(&self, shape: &BucketShape, measure: BatchLimit, batch: &ReplyBatch) -> u64 {
        let weight = self.seen.bytes_each();
        let room = TARGET_BYTES
            .saturating_sub(batch.document_bytes())
            .min(PIECE_BYTES)
            .div_ceil(weight)
            .max(1);
        let room = u64::try_from(room).unwrap_or(u64::MAX);
        let have = u64::try_from(batch.count()).unwrap_or(u64::MAX);
        let wanted = [
            measure.documents.map(|most| most.saturating_sub(have)),
            self.scan.left(),
        ];
        let room = self.scan.pages_to_end_of_range().map_or(room, |pages| pages.min(room));
        match wanted.into_iter().flatten().min() {
            // The first one may be a page without items.
            Some(_) if self.scan.is_of_first_item() => 2,
            Some(items) => self.scan.buckets_for(shape, items).min(room),
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

    /// Records whether the upstream cursor is still open after a reply.
    fn see<'a>(&mut self, answer: &'a RawDocument) -> Option<CursorReply<'a>> {
        let cursor = CursorReply::parse(answer)?;
        self.upstream = match cursor.id {
            0 => UpstreamCursor::Exhausted,
            id => UpstreamCursor::Open(id),
        };
        Some(cursor)
    }

    /// Decodes the items of a reply. `limit` is the number of buckets that the query was limited to.
    fn unpack(&mut self, shape: &BucketShape, answer: &RawDocument, limit: Option<u64>) -> ScanStep {
        let Some(cursor) = self.see(answer) else {
            return ScanStep::NotABucket;
        };
        let mut read = 0_u64;
        for bucket in cursor.documents() {
            read += 1;
            self.seen.bytes += bucket.as_bytes().len();
            self.seen.count += 1;
            if std::mem::take(&mut self.captures_first_page) {
                self.first = Some(bucket.to_owned());
            }
            match self.scan.take(shape, bucket, &mut self.waiting) {
                ScanStep::More => {}
                ScanStep::Done => {
                    self.done = true;
                    return ScanStep::Done;
                }
                step => return step,
            }
        }
        let ended = cursor.id == 0 && limit.is_none_or(|limit| read < limit);
        self.done = ended || self.scan.is_at_the_end();
        ScanStep::More
    }

    /// Closes the upstream cursor, if one is open. Costs one round trip then.
    pub(in crate::session::bucket) async fn close(&mut self, run: &mut BucketCommand<'_>) -> Result<(), RunError> {
        if let UpstreamCursor::Open(id) = std::mem::replace(&mut self.upstream, UpstreamCursor::Exhausted) {
            kill(run, id).await?;
        }
        Ok(())
    }
}
