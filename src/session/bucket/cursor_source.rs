//! The source of a cursor that the proxy keeps.

use std::collections::VecDeque;

use bson::raw::{RawDocument, RawDocumentBuf};

use super::find::item_cursor::{BatchRequest, BatchStatus, ItemCursor};
use crate::command::batch::ReplyBatch;

/// The source of a cursor's documents.
#[derive(Debug)]
pub(in crate::session) enum CursorSource {
    /// Items of buckets. Buckets are read on demand.
    Buckets(Box<ItemCursor>),
    /// A list that is completely in memory.
    Listed(MaterializedList),
}

/// The remaining documents of a list, in order.
#[derive(Debug)]
pub(in crate::session) struct MaterializedList {
    documents: VecDeque<RawDocumentBuf>,
    /// Fields of the upstream reply that every reply repeats, for example the cluster time.
    cluster_time: RawDocumentBuf,
}

impl MaterializedList {
    pub(super) fn new(documents: Vec<RawDocumentBuf>, cluster_time: RawDocumentBuf) -> Self {
        let documents = documents.into();
        Self {
            documents,
            cluster_time,
        }
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
    /// The id of the upstream cursor while it is open.
    pub(in crate::session) fn upstream_id(&self) -> Option<i64> {
        match self {
            Self::Buckets(stream) => stream.upstream_id(),
            Self::Listed(_) => None,
        }
    }

    /// Frees memory before the cursor waits for its next `getMore`.
    pub(in crate::session) fn rest(&mut self) {
        if let Self::Buckets(stream) = self {
            stream.rest();
        }
    }

    /// Bytes of the documents in memory.
    pub(in crate::session) fn weight(&self) -> usize {
        match self {
            Self::Buckets(stream) => stream.weight(),
            Self::Listed(listed) => listed.documents.iter().map(|document| document.as_bytes().len()).sum(),
        }
    }

    /// Fields of the upstream reply that every reply repeats, for example the cluster time.
    pub(super) fn cluster_time(&self) -> &RawDocument {
        match self {
            Self::Buckets(stream) => stream.cluster_time(),
            Self::Listed(listed) => &listed.cluster_time,
        }
    }
}
