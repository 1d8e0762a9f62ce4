//! The source of a cursor that the proxy keeps.

use std::collections::VecDeque;

use bson::raw::{RawDocument, RawDocumentBuf};

use super::find::item_cursor::{BatchRequest, BatchStatus, ItemCursor};
use crate::command::batch::ReplyBatch;
use crate::pattern::shapes::BucketShape;
use crate::session::change_stream::cursor::ChangeStreamCursor;

/// The source of a cursor's documents.
#[derive(Debug)]
pub(in crate::session) enum CursorSource {
    /// Items of buckets. Buckets are read on demand, with the shape when the cursor was opened.
    Buckets {
        items: Box<ItemCursor>,
        shape: Box<BucketShape>,
    },
    /// A list that is completely in memory.
    Listed(MaterializedList),
    /// Events of a change stream.
    Changes(Box<ChangeStreamCursor>),
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
    /// A cursor of items.
    pub(super) fn items(items: Box<ItemCursor>, shape: &BucketShape) -> Self {
        let shape = Box::new(shape.clone());
        Self::Buckets { items, shape }
    }

    /// The id of the upstream cursor while it is open.
    pub(in crate::session) fn upstream_id(&self) -> Option<i64> {
        match self {
            Self::Buckets { items, .. } => items.upstream_id(),
            Self::Listed(_) => None,
            Self::Changes(changes) => changes.upstream_id(),
        }
    }

    /// Frees memory before the cursor waits for its next `getMore`.
    pub(in crate::session) fn rest(&mut self) {
        if let Self::Buckets { items, .. } = self {
            items.rest();
        }
    }

    /// Bytes of the documents in memory.
    pub(in crate::session) fn weight(&self) -> usize {
        match self {
            Self::Buckets { items, .. } => items.weight(),
            Self::Listed(listed) => listed.documents.iter().map(|document| document.as_bytes().len()).sum(),
            Self::Changes(changes) => changes.weight(),
        }
    }

    /// The token behind the last batch of a change stream.
    pub(super) fn resume_token(&self) -> Option<RawDocumentBuf> {
        match self {
            Self::Changes(changes) => Some(changes.resume_token()),
            Self::Buckets { .. } | Self::Listed(_) => None,
        }
    }

    /// Fields of the upstream reply that every reply repeats, for example the cluster time.
    pub(super) fn cluster_time(&self) -> &RawDocument {
        match self {
            Self::Buckets { items, .. } => items.cluster_time(),
            Self::Listed(listed) => &listed.cluster_time,
            Self::Changes(changes) => changes.cluster_time(),
        }
    }
}
