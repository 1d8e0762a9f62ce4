//! What a cursor kept by the proxy reads from.

use std::collections::VecDeque;

use bson::raw::{RawDocument, RawDocumentBuf};

use super::find::item_cursor::{BatchRequest, BatchStatus, ItemCursor};
use crate::command::batch::ReplyBatch;

/// Either of what there is to read from.
#[derive(Debug)]
pub(in crate::session) enum CursorSource {
    /// Buckets, of which more are read as they are needed.
    Buckets(Box<ItemCursor>),
    /// A list that was read whole.
    Listed(MaterializedList),
}

/// What is left of a list, in order.
#[derive(Debug)]
pub(in crate::session) struct MaterializedList {
    documents: VecDeque<RawDocumentBuf>,
    /// What the upstream told with the list.
    gossip: RawDocumentBuf,
}

impl MaterializedList {
    pub(super) fn new(documents: Vec<RawDocumentBuf>, gossip: RawDocumentBuf) -> Self {
        let documents = documents.into();
        Self { documents, gossip }
    }

    pub(super) fn fill(&mut self, BatchRequest { kind, limit: measure }: BatchRequest) -> (ReplyBatch, BatchStatus) {
        let mut batch = ReplyBatch::new(kind);
        while !measure.is_full(&batch)
            && let Some(document) = self.documents.pop_front()
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
    /// The id of the upstream's cursor, while it is open.
    pub(in crate::session) fn upstream_id(&self) -> Option<i64> {
        match self {
            Self::Buckets(stream) => stream.upstream_id(),
            Self::Listed(_) => None,
        }
    }

    /// Makes itself small, before it waits for a client.
    pub(in crate::session) fn rest(&mut self) {
        if let Self::Buckets(stream) = self {
            stream.rest();
        }
    }

    /// What it keeps, in bytes.
    pub(in crate::session) fn weight(&self) -> usize {
        match self {
            Self::Buckets(stream) => stream.weight(),
            Self::Listed(listed) => listed.documents.iter().map(|document| document.as_bytes().len()).sum(),
        }
    }

    /// The reply's fields that are the upstream's to tell.
    pub(super) fn gossip(&self) -> &RawDocument {
        match self {
            Self::Buckets(stream) => stream.gossip(),
            Self::Listed(listed) => &listed.gossip,
        }
    }
}
