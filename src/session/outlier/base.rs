//! Base documents, and what their extras are.

use std::collections::HashMap;

use bson::oid::ObjectId;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::{MAX_ATTEMPTS, Outlier, pause};
use crate::command::document::{get, put, single};
use crate::pattern::outlier::layout::{Extras, State, field, path};
use crate::pattern::outlier::merge::merged;
use crate::session::error::RunError;

/// Pages, by generation.
#[derive(Debug, Default)]
pub(super) struct Pages(HashMap<ObjectId, Vec<RawDocumentBuf>>);

impl Pages {
    /// Those of a generation, in order.
    pub(super) fn of(&self, generation: ObjectId) -> Vec<&RawDocument> {
        let pages = self.0.get(&generation);
        pages.into_iter().flatten().map(RawDocumentBuf::as_ref).collect()
    }
}

impl Outlier<'_> {
    /// The stored document of that `_id`, which is about to be changed: one that was split by hand is adopted first.
    pub(super) async fn base(&mut self, id: RawBsonRef<'_>) -> Result<Option<RawDocumentBuf>, RunError> {
        self.check_collation().await?;
        for attempt in 0..MAX_ATTEMPTS {
            pause(attempt).await;
            let stored = self.stored(id).await?;
            match stored {
                Some(stored) if State::of(self.shape, &stored) == State::Bare => self.adopt(&stored).await?,
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

    /// What a stored document says of its extras; `None` for a typical one.
    pub(super) fn extras_of(&self, stored: &RawDocument) -> Result<Option<Extras>, RunError> {
        match State::of(self.shape, stored) {
            State::Typical => Ok(None),
            State::Outlier(extras) => Ok(Some(extras)),
            State::Bare | State::Misfit => Err(self.misfit().into()),
        }
    }

    /// The pages of documents with these `_id`s and generations.
    pub(super) async fn pages(&mut self, of: &[(RawBsonRef<'_>, ObjectId)]) -> Result<Pages, RunError> {
        if of.is_empty() {
            return Ok(Pages::default());
        }
        let ids: RawArrayBuf = of.iter().map(|(id, _)| *id).collect();
        let generations: RawArrayBuf = of.iter().map(|(_, generation)| *generation).collect();
        let mut filter = single(self.shape.reference(), single("$in", &ids));
        put(&mut filter, path::GENERATION, single("$in", &generations));
        let mut find = single("find", self.shape.extras_collection());
        find.append(cstr!("filter"), &filter);
        find.append(cstr!("sort"), single(path::FROM, 1));
        let mut pages = Pages::default();
        for page in self.ask(find).await? {
            let control = get(&page, field::CONTROL).and_then(RawBsonRef::as_document);
            let generation = control.and_then(|control| get(control, field::GENERATION)?.as_object_id());
            if let Some(generation) = generation {
                pages.0.entry(generation).or_default().push(page);
            }
        }
        Ok(pages)
    }

    /// The document as the application has it. `None` where it has got other pages since it was read.
    pub(super) async fn whole(&mut self, stored: &RawDocument) -> Result<Option<RawDocumentBuf>, RunError> {
        if State::of(self.shape, stored) == State::Bare {
            return self.whole_by_hand(stored).await;
        }
        let Some(extras) = self.extras_of(stored)? else {
            return Ok(Some(stored.to_owned()));
        };
        let Some(id) = get(stored, "_id") else {
            return Err(self.misfit().into());
        };
        let pages = self.pages(&[(id, extras.generation)]).await?;
        Ok(merged(self.shape, stored, &extras, &pages.of(extras.generation)))
    }
}
