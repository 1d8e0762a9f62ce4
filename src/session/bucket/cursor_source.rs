//! The source of a cursor that the proxy keeps.

use std::collections::VecDeque;

use bson::Binary;
use bson::raw::{RawDocument, RawDocumentBuf};

use super::bucket_cursor::BucketCursor;
use super::command::BucketCommand;
use super::find::item_cursor::{BatchRequest, BatchStatus, ItemCursor};
use crate::command::batch::ReplyBatch;
use crate::session::change_stream::cursor::ChangeStreamCursor;

/// The source of a cursor's documents.
#[derive(Debug)]
pub(in crate::session) enum CursorSource {
    /// Items of buckets. Buckets are read on demand.
    Buckets(Box<BucketCursor>),
    /// A list that is completely in memory.
    Listed(MaterializedList),
    /// Events of a change stream.
    Changes(Box<ChangeStreamCursor>),
}

/// The remaining documents of a list, in order.
#[derive(Debug)]
pub(in crate::session) struct MaterializedList {
    documents: VecDeque<RawDocumentBuf>,
    /// The collection with which the cursor ends. `None`: it does not end with a collection.
    pub(in crate::session::bucket) collection: Option<Binary>,
    /// Fields of the upstream reply that every reply repeats, for example the cluster time.
    cluster_time: RawDocumentBuf,
}

impl MaterializedList {
    pub(in crate::session) fn new(documents: Vec<RawDocumentBuf>, cluster_time: RawDocumentBuf) -> Self {
        let documents = documents.into();
        Self {
            documents,
            collection: None,
            cluster_time,
        }
    }

    pub(super) fn fill(&mut self, BatchRequest { kind, limit: measure }: BatchRequest) -> (ReplyBatch, BatchStatus) {
        let mut batch = ReplyBatch::new(kind);
        while !measure.is_full(&batch)
            && let Some(document) = self
                .documents
                .pop_front_if(|document| batch.has_space_for(document.as_bytes().len()))
        {
            batch.push(document.as_bytes());
        }
        let left = if self.documents.is_empty() {
            BatchStatus::All
        } else {
            BatchStatus::More
        };
        (batch, left)
    }
}

impl CursorSource {
    /// The cursor of items that the command opens.
    pub(super) fn items(items: Box<ItemCursor>, run: &BucketCommand<'_>) -> Self {
        Self::Buckets(Box::new(BucketCursor::new(items, run)))
    }

    /// Whether a server of this term can continue the cursor. mongod's own cursors end with their server.
    pub(super) fn is_of_term(&self, term: u64) -> bool {
        match self {
            Self::Buckets(cursor) => cursor.is_of_term(term),
            // The first reads its upstream cursor alone, the second nothing.
            Self::Changes(_) | Self::Listed(_) => true,
        }
    }

    /// The id of the upstream cursor while it is open.
    pub(in crate::session) fn upstream_id(&self) -> Option<i64> {
        match self {
            Self::Buckets(cursor) => cursor.items.upstream_id(),
            Self::Listed(_) => None,
            Self::Changes(changes) => changes.upstream_id(),
        }
    }

    /// Frees memory before the cursor waits for its next `getMore`.
    pub(in crate::session) fn rest(&mut self) {
        if let Self::Buckets(cursor) = self {
            cursor.items.rest();
        }
    }

    /// Bytes in memory: those of documents, and of what the client sent.
    pub(in crate::session) fn weight(&self) -> usize {
        match self {
            Self::Buckets(cursor) => cursor.weight(),
            Self::Listed(listed) => listed.documents.iter().map(|document| document.as_bytes().len()).sum(),
            Self::Changes(changes) => changes.weight(),
        }
    }

    /// The token behind the last batch of a change stream.
    pub(super) fn resume_token(&self) -> Option<RawDocumentBuf> {
        match self {
            Self::Changes(changes) => Some(changes.resume_token()),
            Self::Buckets(_) | Self::Listed(_) => None,
        }
    }

    /// Fields of the upstream reply that every reply repeats, for example the cluster time.
    pub(super) fn cluster_time(&self) -> &RawDocument {
        match self {
            Self::Buckets(cursor) => cursor.items.cluster_time(),
            Self::Listed(listed) => &listed.cluster_time,
            Self::Changes(changes) => changes.cluster_time(),
        }
    }
}
