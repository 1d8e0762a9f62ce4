//! Returns items in batches: a page scan, the upstream cursor on its pages, and the items that were decoded
//! and not returned yet.

use bson::raw::{RawDocument, RawDocumentBuf};

use crate::command::batch::{BatchKind, ReplyBatch};
use crate::command::reply::copy_cluster_time;
use crate::pattern::bucket::read::bucket::PageBounds;
use crate::pattern::bucket::read::documents::DocumentBuffer;
use crate::pattern::bucket::read::page_scan::PageScan;

/// What a batch weighs where the client names no size: of a plain collection it is up to 16 MiB, which would
/// be kept for each of many clients that are slow to read.
pub(super) const TARGET_BYTES: usize = 2 << 20;
/// What is asked of the upstream at once, so that it reads on while this is unpacked.
pub(super) const PIECE_BYTES: usize = 192 << 10;
/// What a bucket is taken to weigh before one was seen.
pub(super) const FIRST_GUESS_BYTES: usize = 4096;

/// How much goes in a batch.
#[derive(Clone, Copy, Debug)]
pub(in crate::session::bucket) struct BatchLimit {
    /// Documents at most.
    pub(super) documents: Option<u64>,
    /// Bytes after which nothing more is read for it.
    pub(super) bytes: usize,
}

/// A batch that is to be filled.
#[derive(Clone, Copy, Debug)]
pub(in crate::session::bucket) struct BatchRequest {
    pub(in crate::session::bucket) kind: BatchKind,
    pub(in crate::session::bucket) limit: BatchLimit,
}

impl BatchRequest {
    /// The batch that opens a cursor.
    pub(super) fn first(limit: BatchLimit) -> Self {
        let kind = BatchKind::First;
        Self { kind, limit }
    }
}

impl BatchLimit {
    /// So many documents, or as many as fit.
    pub(in crate::session::bucket) fn of(documents: Option<u64>) -> Self {
        let bytes = if documents.is_some() { usize::MAX } else { TARGET_BYTES };
        Self { documents, bytes }
    }

    /// Whether nothing goes in a batch: it opens a cursor, whatever there is to read.
    pub(in crate::session::bucket) fn is_nothing(self) -> bool {
        self.documents == Some(0)
    }

    /// Whether a batch has all documents that go in it.
    pub(in crate::session::bucket) fn is_full(self, batch: &ReplyBatch) -> bool {
        let count = u64::try_from(batch.count()).unwrap_or(u64::MAX);
        self.documents.is_some_and(|most| count >= most)
    }
}

/// The upstream's cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpstreamCursor {
    /// Not asked yet, or asked for a few buckets at a time without one.
    None,
    /// Open.
    Open(i64),
    /// Has come to its end.
    Exhausted,
}

/// What a batch came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session::bucket) enum BatchStatus {
    /// There may be more.
    More,
    /// That was all.
    All,
    /// A page scan does not answer the query.
    NotAnswered,
}

/// A page scan and the items that it has returned.
#[derive(Debug)]
pub(in crate::session) struct ItemCursor {
    pub(super) scan: PageScan,
    pub(super) waiting: DocumentBuffer,
    pub(super) upstream: UpstreamCursor,
    /// Whether buckets are read a few at a time, each time anew: nothing is left open upstream.
    pub(super) closes: bool,
    pub(super) done: bool,
    /// What the buckets seen weigh, and how many they are.
    pub(super) seen: (usize, usize),
    /// What the upstream tells with an answer, of the last one.
    pub(super) cluster_time: RawDocumentBuf,
    /// The number of buckets that the first query was limited to. `None` if it was the cursor's own query.
    pub(super) first_asked: Option<u64>,
    /// Whether the first bucket is kept.
    pub(super) captures_first_page: bool,
    pub(super) first: Option<RawDocumentBuf>,
}

impl ItemCursor {
    /// One that has not begun. `closes`: its first batch is its only one.
    pub(super) fn new(scan: PageScan, closes: bool) -> Self {
        Self {
            // A scan of several keys cannot be continued by a second query.
            closes: closes && (scan.can_go_on() || scan.is_of_first_item()),
            scan,
            waiting: DocumentBuffer::default(),
            upstream: UpstreamCursor::None,
            done: false,
            seen: (0, 0),
            cluster_time: RawDocumentBuf::new(),
            first_asked: None,
            captures_first_page: false,
            first: None,
        }
    }

    /// One that has come to its end without a document; mongod's answer that said so.
    pub(super) fn ended(scan: PageScan, answer: &RawDocument) -> Self {
        let mut stream = Self::new(scan, false);
        copy_cluster_time(&mut stream.cluster_time, answer);
        Self {
            upstream: UpstreamCursor::Exhausted,
            done: true,
            ..stream
        }
    }

    /// The same, which keeps the first bucket that it reads.
    pub(super) fn watching_for_the_first_page(self) -> Self {
        let watches = true;
        Self {
            captures_first_page: watches,
            ..self
        }
    }

    /// The same cursor, whose first reply is that of another query, limited to so many buckets.
    pub(super) fn having_asked(self, buckets: u64) -> Self {
        Self {
            first_asked: Some(buckets),
            ..self
        }
    }

    /// The first bucket that it read, if it was to be kept.
    pub(super) fn first_page(&mut self) -> Option<RawDocumentBuf> {
        self.first.take()
    }

    /// The first and the last page that were read, with their time bounds.
    pub(super) fn read_bounds(&self) -> impl Iterator<Item = PageBounds> {
        self.scan.read_bounds()
    }

    /// Whether what it looks for is there, and it has not found it: mongod may take other values for equal.
    pub(super) fn missed_its_item(&self) -> bool {
        self.scan.missed_its_item()
    }

    /// The id of the upstream's cursor, while it is open.
    pub(in crate::session) fn upstream_id(&self) -> Option<i64> {
        match self.upstream {
            UpstreamCursor::Open(id) => Some(id),
            UpstreamCursor::None | UpstreamCursor::Exhausted => None,
        }
    }

    /// Makes itself small, before it waits for a client.
    pub(in crate::session) fn rest(&mut self) {
        self.waiting.compact();
    }

    /// What it keeps, in bytes.
    pub(in crate::session) fn weight(&self) -> usize {
        self.waiting.weight()
    }

    /// The reply's fields that are the upstream's to tell.
    pub(in crate::session::bucket) fn cluster_time(&self) -> &RawDocument {
        &self.cluster_time
    }
}
