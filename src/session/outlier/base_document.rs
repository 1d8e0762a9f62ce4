//! Base documents and their extras.

use std::collections::HashMap;

use bson::oid::ObjectId;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::OutlierCommand;
use crate::command::document::{get, put, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::pattern::outlier::layout::{DocumentState, Extras, field, path};
use crate::pattern::outlier::reassemble::merged;
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::error::RunError;
use crate::session::memory::{LARGEST_REPLY, REPLY_COPIES};

/// Maximum size of all pages of one document in bytes: a document's maximum size, and the pages'
/// own fields.
pub(super) const MOST_BYTES: usize = 17 * 1024 * 1024;

/// Pages of extras by generation.
#[derive(Debug, Default)]
pub(super) struct PagesByGeneration(HashMap<ObjectId, Vec<RawDocumentBuf>>);

impl PagesByGeneration {
    /// The pages of a generation, in order.
    pub(super) fn of(&self, generation: ObjectId) -> Vec<&RawDocument> {
        let pages = self.0.get(&generation);
        pages.into_iter().flatten().map(RawDocumentBuf::as_ref).collect()
    }
}

impl OutlierCommand<'_> {
    /// Reads the stored document with that `_id` before a change. A hand-split document is adopted
    /// first.
    pub(super) async fn base(&mut self, id: RawBsonRef<'_>) -> Result<Option<RawDocumentBuf>, RunError> {
        self.check_collation().await?;
        for attempt in 0..MAX_ATTEMPTS {
            pause(attempt).await;
            let stored = self.stored(id).await?;
            match stored {
                Some(stored) if DocumentState::of(self.shape, &stored) == DocumentState::Unmanaged => {
                    self.adopt(&stored).await?;
                }
                stored => return Ok(stored),
            }
        }
        Err(self.lost_too_often().into())
    }

    async fn stored(&mut self, id: RawBsonRef<'_>) -> Result<Option<RawDocumentBuf>, RunError> {
        let mut find = single("find", self.namespace.collection);
        find.append(cstr!("filter"), single("_id", single("$eq", id)));
        find.append(cstr!("limit"), 1);
        find.append(cstr!("collation"), single("locale", "simple"));
        Ok(self.ask(find).await?.into_iter().next())
    }

    /// The extras that a stored document records. `None` for an inline document.
    pub(super) fn extras_of(&self, stored: &RawDocument) -> Result<Option<Extras>, RunError> {
        match DocumentState::of(self.shape, stored) {
            DocumentState::Inline => Ok(None),
            DocumentState::Outlier(extras) => Ok(Some(extras)),
            DocumentState::Unmanaged | DocumentState::Invalid => Err(self.misfit().into()),
        }
    }

    /// Reads the pages of a document. Reserves memory for the merged document before.
    pub(super) async fn pages(&mut self, stored: &RawDocument, extras: &Extras) -> Result<PagesByGeneration, RunError> {
        let Some(id) = get(stored, "_id") else {
            return Err(self.misfit().into());
        };
        let of = [(id, extras.generation)];
        let expected = extras.expected_bytes(self.shape, stored);
        if expected < MOST_BYTES {
            self.reply_memory.reserve(expected.saturating_mul(REPLY_COPIES)).await?;
            if let Some(pages) = self.pages_within(&of, expected).await? {
                return Ok(pages);
            }
        }
        self.reply_memory.reserve(LARGEST_REPLY).await?;
        match self.pages_within(&of, MOST_BYTES).await? {
            Some(pages) => Ok(pages),
            None => Err(self.too_large().into()),
        }
    }

    /// Reads the pages of documents with these `_id`s and generations. `None`: the pages exceed
    /// `most_bytes`.
    pub(super) async fn pages_within(
        &mut self,
        of: &[(RawBsonRef<'_>, ObjectId)],
        most_bytes: usize,
    ) -> Result<Option<PagesByGeneration>, RunError> {
        if of.is_empty() {
            return Ok(Some(PagesByGeneration::default()));
        }
        let ids: RawArrayBuf = of.iter().map(|(id, _)| *id).collect();
        let generations: RawArrayBuf = of.iter().map(|(_, generation)| *generation).collect();
        let mut filter = single(self.shape.reference(), single("$in", &ids));
        put(&mut filter, path::GENERATION, single("$in", &generations));
        let mut find = single("find", self.shape.extras_collection());
        find.append(cstr!("filter"), &filter);
        find.append(cstr!("sort"), single(path::FROM, 1));
        let mut pages = PagesByGeneration::default();
        let Some(read) = self.ask_within(find, most_bytes).await? else {
            return Ok(None);
        };
        for page in read {
            let control = get(&page, field::CONTROL).and_then(RawBsonRef::as_document);
            let generation = control.and_then(|control| get(control, field::GENERATION)?.as_object_id());
            if let Some(generation) = generation {
                pages.0.entry(generation).or_default().push(page);
            }
        }
        Ok(Some(pages))
    }

    /// The error for a document that exceeds the maximum size with its extras.
    pub(super) fn too_large(&self) -> CommandError {
        let message = format!(
            "a document of {} exceeds 16 MiB with its extras: exclude {} by a projection, or read it by a pipeline",
            self.namespace,
            self.shape.array()
        );
        CommandError::new(ErrorCode::BsonObjectTooLarge, message)
    }

    /// The document with its extras, as the application sees it. `None`: its pages were replaced
    /// after `stored` was read.
    pub(super) async fn whole(&mut self, stored: &RawDocument) -> Result<Option<RawDocumentBuf>, RunError> {
        if DocumentState::of(self.shape, stored) == DocumentState::Unmanaged {
            return self.whole_by_hand(stored).await;
        }
        let Some(extras) = self.extras_of(stored)? else {
            return Ok(Some(stored.to_owned()));
        };
        let pages = self.pages(stored, &extras).await?;
        Ok(merged(self.shape, stored, &extras, &pages.of(extras.generation)))
    }
}
