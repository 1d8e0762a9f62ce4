//! Documents that were not split although their array exceeds the threshold: they were stored before the
//! shape was configured, or a push made an outlier of such a document.
//!
//! Before one is replaced, it is split. The statement that replaces a document compares each element of its
//! base document, and so many comparisons would exceed mongod's limits.

use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::command::OutlierCommand;
use super::internal_write::WriteOrigin;
use super::page_store::Written;
use super::write::DocumentSelector;
use crate::command::document::get;
use crate::pattern::outlier::layout::{DocumentState, Extras};
use crate::pattern::outlier::resplit::{self, is_overlong};
use crate::pattern::outlier::statement::flagging;
use crate::pattern::unwound::has_nearness;
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::error::RunError;

/// A document that a command may replace.
pub(super) enum Replaceable {
    /// The stored document. It has at most as many elements as the threshold, and its extras.
    Split(RawDocumentBuf),
    /// An inline document that matches, and whose array exceeds the threshold. The split fence is there, so
    /// mongod changes it itself.
    Whole,
}

impl OutlierCommand<'_> {
    /// Reads the stored document with that `_id` before it is replaced. If its array exceeds the threshold
    /// and the document matches, it is split first. `None`: it does not exist, or does not match although it
    /// is too long or the filter demands a distance, which cannot be evaluated on a copy.
    pub(super) async fn replaceable(
        &mut self,
        selector: DocumentSelector<'_>,
        id: RawBsonRef<'_>,
    ) -> Result<Option<Replaceable>, RunError> {
        for attempt in 0..MAX_ATTEMPTS {
            pause(attempt).await;
            let stored = if selector.filter.is_some_and(has_nearness) {
                self.matching_base(selector, id).await?
            } else {
                self.base(id).await?
            };
            let Some(stored) = stored else {
                return Ok(None);
            };
            if !is_overlong(self.shape, &stored) {
                return Ok(Some(Replaceable::Split(stored)));
            }
            if self.first_id(selector).await?.is_none() {
                return Ok(None);
            }
            match self.extras_of(&stored)? {
                Some(extras) => self.shorten(&stored, extras).await?,
                None if self.may_split().await? => {
                    self.check_array(&stored)?;
                    self.flag(id).await?;
                }
                None => return Ok(Some(Replaceable::Whole)),
            }
        }
        Err(self.lost_too_often().into())
    }

    /// Makes an outlier of an inline document whose array exceeds the threshold, unless another writer has
    /// changed it.
    async fn flag(&mut self, id: RawBsonRef<'_>) -> Result<(), RunError> {
        let Some(statement) = flagging(self.shape, id, 1, ObjectId::new()) else {
            return Ok(());
        };
        let collection = self.namespace.collection;
        let result = self
            .write(collection, "update", &statement, WriteOrigin::Internal)
            .await?;
        result.succeeded().map(|_| ())
    }

    /// Moves the elements beyond the threshold from a base document to pages, unless another writer has
    /// changed the document.
    pub(super) async fn shorten(&mut self, stored: &RawDocument, extras: Extras) -> Result<(), RunError> {
        let Some(id) = get(stored, "_id") else {
            return Err(self.misfit().into());
        };
        let former = extras.generation;
        let read = self.pages(stored, &extras).await?;
        let state = DocumentState::Outlier(extras);
        let Some(elements) = resplit::elements(self.shape, stored, &state, &read.of(former)) else {
            // Another writer has replaced the pages.
            return Ok(());
        };
        if self.regroup(stored, &state, &elements).await? {
            self.remove_pages(id, former).await?;
        }
        Ok(())
    }

    /// Stores the elements beyond the threshold in pages of a new generation, and references them. Returns
    /// false if another writer has changed the document.
    ///
    /// # Errors
    /// If the document has the array's field more than once: the statement would change all of them.
    pub(super) async fn regroup(
        &mut self,
        stored: &RawDocument,
        state: &DocumentState,
        elements: &[RawBsonRef<'_>],
    ) -> Result<bool, RunError> {
        self.check_array(stored)?;
        let generation = ObjectId::new();
        let statement = resplit::counting(self.shape, stored, state, generation, elements.len());
        let (Some(id), Some(statement)) = (get(stored, "_id"), statement) else {
            return Err(self.misfit().into());
        };
        let pages = resplit::pages(self.shape, id, generation, 0, elements);
        let written = Written::of(stored, generation, &pages);
        self.write_pages(&pages, &written).await?;
        let result = self
            .write(self.namespace.collection, "update", &statement, WriteOrigin::Internal)
            .await;
        Ok(self.settled(result, &written).await?.succeeded()?.n > 0)
    }
}
