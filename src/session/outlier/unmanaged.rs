//! Hand-split documents. They are read as they are, and adopted by the first write.
//!
//! Hand-written documents of extras stay until `mongoshape setup` removes them, because a client may be
//! reading them.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::base_document::MOST_BYTES;
use super::command::OutlierCommand;
use crate::command::document::{get, single};
use crate::pattern::outlier::layout::DocumentState;
use crate::pattern::outlier::reassemble::merged_by_hand;
use crate::pattern::outlier::resplit;
use crate::session::error::RunError;

impl OutlierCommand<'_> {
    /// The document as the application sees it. `None`: it was adopted after it was read.
    pub(super) async fn whole_by_hand(&mut self, stored: &RawDocument) -> Result<Option<RawDocumentBuf>, RunError> {
        let Some(id) = get(stored, "_id") else {
            return Err(self.misfit().into());
        };
        let extras = self.extras_by_hand(id).await?;
        let mut find = single("find", self.namespace.collection);
        find.append(cstr!("filter"), resplit::still_by_hand(self.shape, id));
        find.append(cstr!("projection"), single("_id", 1));
        find.append(cstr!("collation"), single("locale", "simple"));
        if self.ask(find).await?.is_empty() {
            return Ok(None);
        }
        let extras: Vec<&RawDocument> = extras.iter().map(RawDocumentBuf::as_ref).collect();
        Ok(Some(merged_by_hand(self.shape, stored, &extras)))
    }

    async fn extras_by_hand(&mut self, id: RawBsonRef<'_>) -> Result<Vec<RawDocumentBuf>, RunError> {
        let mut find = single("find", self.shape.extras_collection());
        find.append(cstr!("filter"), resplit::by_hand(self.shape, id));
        match self.ask_within(find, MOST_BYTES).await? {
            Some(extras) => Ok(extras),
            None => Err(self.too_large().into()),
        }
    }

    /// Converts it to an outlier of the current layout, unless another writer does.
    pub(super) async fn adopt(&mut self, stored: &RawDocument) -> Result<(), RunError> {
        let Some(id) = get(stored, "_id") else {
            return Err(self.misfit().into());
        };
        let extras = self.extras_by_hand(id).await?;
        let extras: Vec<&RawDocument> = extras.iter().map(RawDocumentBuf::as_ref).collect();
        let state = DocumentState::Unmanaged;
        let Some(elements) = resplit::elements(self.shape, stored, &state, &extras) else {
            return Err(self.misfit().into());
        };
        self.regroup(stored, &state, &elements).await.map(|_| ())
    }
}
