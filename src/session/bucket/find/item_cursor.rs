//! Returns items in batches: a page scan, the upstream cursor on its pages, and the items that were decoded
//! and not returned yet.

use bson::raw::{RawDocument, RawDocumentBuf};

use crate::command::batch::{BatchKind, ReplyBatch};
use crate::command::reply::copy_cluster_time;
use crate::pattern::bucket::read::bucket::PageTimes;
use crate::pattern::bucket::read::documents::DocumentBuffer;
use crate::pattern::bucket::read::page_scan::PageScan;

/// The bytes of a batch if the client sets no batch size. A batch of a plain collection has up to 16 MiB,
/// which the proxy would keep for each of many slow clients.
pub(super) const TARGET_BYTES: usize = 2 << 20;
/// The bytes that one query requests. mongod reads the next pages while these are decoded.
pub(super) const PIECE_BYTES: usize = 192 << 10;
/// The assumed bytes of a bucket before one was read.
pub(super) const FIRST_GUESS_BYTES: usize = 4096;

/// The limit of a batch.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct BatchLimit {
    /// The most documents. `None`: as many as fit.
    pub(super) documents: Option<u64>,
    /// The bytes from which on no more pages are read for the batch.
    pub(super) bytes: usize,
}

/// A batch to fill.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct BatchRequest {
    pub(in crate::session) kind: BatchKind,
    pub(in crate::session) limit: BatchLimit,
}

impl BatchRequest {
    /// The batch that opens a cursor.
    pub(in crate::session) fn first(limit: BatchLimit) -> Self {
        let kind = BatchKind::First;
        Self { kind, limit }
    }
}

impl BatchLimit {
    /// At most `documents` documents. `None`: as many as fit.
    pub(in crate::session) fn of(documents: Option<u64>) -> Self {
        let bytes = if documents.is_some() { usize::MAX } else { TARGET_BYTES };
        Self { documents, bytes }
    }

    /// Whether the batch is empty by request. It opens a cursor even if no item matches.
    pub(in crate::session) fn is_nothing(self) -> bool {
        self.documents == Some(0)
    }

    /// Whether a batch has reached the number of documents.
    pub(in crate::session) fn is_full(self, batch: &ReplyBatch) -> bool {
        let count = u64::try_from(batch.count()).unwrap_or(u64::MAX);
        self.documents.is_some_and(|most| count >= most)
    }
}

/// The upstream cursor of a page scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpstreamCursor {
    /// No query was sent yet, or each query closes its cursor.
    None,
    /// Open.
    Open(i64),
    /// At its end.
    Exhausted,
}

/// The result of filling a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum BatchStatus {
    /// More items may match.
    More,
    /// No more items match.
    All,
    /// A page scan does not answer the query.
    NotAnswered,
}

/// The buckets that a cursor has read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SeenBuckets {
    pub(super) bytes: usize,
    pub(super) count: usize,
}

impl SeenBuckets {
    /// The average bytes of a bucket, at least 1.
    pub(super) fn bytes_each(self) -> usize {
        self.bytes.checked_div(self.count).unwrap_or(FIRST_GUESS_BYTES).max(1)
    }
}

/// A page scan, its upstream cursor, and decoded items.
#[derive(Debug)]
pub(in crate::session) struct ItemCursor {
    pub(super) scan: PageScan,
    /// Decoded items that were not returned yet.
    pub(super) waiting: DocumentBuffer,
    pub(super) upstream: UpstreamCursor,
    /// Whether each query has a limit and leaves no upstream cursor open.
    pub(super) closes: bool,
    /// Whether all pages of the scan were read.
    pub(super) done: bool,
    /// The buckets that were read.
    pub(super) seen: SeenBuckets,
    /// The cluster time of the last reply.
    pub(super) cluster_time: RawDocumentBuf,
    /// The limit of the first query, in buckets. `None` if it was the cursor's own query.
    pub(super) first_limit: Option<u64>,
    /// Whether the first bucket is kept.
    pub(super) captures_first_page: bool,
    pub(super) first: Option<RawDocumentBuf>,
}

impl ItemCursor {
    /// A cursor at the start of its scan. `closes`: each query has a limit and leaves no upstream cursor
    /// open.
    pub(super) fn new(scan: PageScan, closes: bool) -> Self {
        Self {
            // A scan of several keys cannot be continued by a second query.
            closes: closes && (scan.can_go_on() || scan.is_of_first_item()),
            scan,
            waiting: DocumentBuffer::default(),
            upstream: UpstreamCursor::None,
            done: false,
            seen: SeenBuckets::default(),
            cluster_time: RawDocumentBuf::new(),
            first_limit: None,
            captures_first_page: false,
            first: None,
        }
    }

    /// A cursor at the end of a scan without items. `reply` is the reply that shows it.
    pub(super) fn ended(scan: PageScan, reply: &RawDocument) -> Self {
        let mut stream = Self::new(scan, false);
        copy_cluster_time(&mut stream.cluster_time, reply);
        Self {
            upstream: UpstreamCursor::Exhausted,
            done: true,
            ..stream
        }
    }

    /// This cursor, but it keeps the first bucket that it reads.
    pub(super) fn keeping_first_page(self) -> Self {
        Self {
            captures_first_page: true,
            ..self
        }
    }

    /// This cursor, but its first reply is that of another query, which was limited to `buckets` buckets.
    pub(super) fn after_query_of(self, buckets: u64) -> Self {
        Self {
            first_limit: Some(buckets),
            ..self
        }
    }

    /// The first bucket that was read, if it is kept.
    pub(super) fn first_page(&mut self) -> Option<RawDocumentBuf> {
        self.first.take()
    }

    /// The first and the last page that were read, with their time bounds.
    pub(super) fn read_times(&self) -> impl Iterator<Item = PageTimes> {
        self.scan.read_times()
    }

    /// Whether mongod returned a bucket for an `_id` and no item of it has that `_id`: mongod may compare
    /// other values as equal.
    pub(super) fn missed_its_item(&self) -> bool {
        self.scan.missed_its_item()
    }

    /// The id of the upstream cursor, if one is open.
    pub(in crate::session) fn upstream_id(&self) -> Option<i64> {
        match self.upstream {
            UpstreamCursor::Open(id) => Some(id),
            UpstreamCursor::None | UpstreamCursor::Exhausted => None,
        }
    }

    /// Releases unused memory, before the cursor waits for a client.
    pub(in crate::session) fn rest(&mut self) {
        self.waiting.compact();
    }

    /// The bytes of the decoded items.
    pub(in crate::session) fn weight(&self) -> usize {
        self.waiting.weight()
    }

    /// The cluster time of the last reply from mongod.
    pub(in crate::session::bucket) fn cluster_time(&self) -> &RawDocument {
        &self.cluster_time
    }
}
