//! Moving a tail into pages. Whoever has pushed to one does it before the client is answered; where somebody died before, the next
//! does. Done twice it does nothing: pages only take what comes next, and the base document counts only what was not counted.

use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocumentBuf, cstr};

use super::send::Part;
use super::{MAX_ATTEMPTS, Outlier, pause};
use crate::command::document::{put, single};
use crate::command::error::ErrorCode;
use crate::pattern::outlier::layout::{Extras, path};
use crate::pattern::outlier::page::{PageFacts, moving, of_generation};
use crate::session::error::RunError;

impl Outlier<'_> {
    /// Moves the tail of a document, if it has one.
    pub(super) async fn spill(&mut self, id: RawBsonRef<'_>) -> Result<(), RunError> {
        match self.move_tail(id).await {
            // What the client asked for is done, and counts as it lies there; the next writer will move it.
            Err(RunError::Command(_)) if !self.head.in_transaction() => Ok(()),
            moved => moved,
        }
    }

    async fn move_tail(&mut self, id: RawBsonRef<'_>) -> Result<(), RunError> {
        let mut begun = None;
        for attempt in 0..MAX_ATTEMPTS {
            pause(attempt).await;
            let extras = self.extras_at(id).await?;
            let is_former = |begun: &mut ObjectId| extras.as_ref().is_none_or(|now| now.generation != *begun);
            if let Some(former) = begun.take_if(is_former) {
                // Whoever gave the document another generation may have removed the pages of this one before some were begun.
                self.remove_pages(id, former).await?;
            }
            let Some(extras) = extras else {
                return Ok(());
            };
            let last = self.last_page(id, &extras).await?;
            let Some(moving) = moving(self.shape, id, &extras, last) else {
                return Ok(());
            };
            let collection = self.shape.extras_collection();
            if let Some(append) = &moving.append {
                let told = self.write((collection, "update"), append, Part::Beside).await?;
                if told.succeeded()?.n == 0 {
                    continue;
                }
            }
            if !moving.pages.is_empty() {
                begun = Some(extras.generation);
            }
            match self.write_pages(&moving.pages).await {
                // Somebody else has begun one of them.
                Err(RunError::Command(error)) if error.is(ErrorCode::DuplicateKey) && !self.head.in_transaction() => {
                    continue;
                }
                written => written?,
            }
            let told = self
                .write((self.namespace.collection, "update"), &moving.count, Part::Beside)
                .await?;
            if told.succeeded()?.n > 0 {
                return Ok(());
            }
        }
        // It counts as it lies there, too; the next writer will move it.
        Ok(())
    }

    /// What the document of that `_id` says of its extras, where it says anything.
    async fn extras_at(&mut self, id: RawBsonRef<'_>) -> Result<Option<Extras>, RunError> {
        let mut projection = single(self.shape.flag(), 1);
        put(&mut projection, self.shape.control(), 1);
        let mut find = single("find", self.namespace.collection);
        find.append(cstr!("filter"), single("_id", single("$eq", id)));
        find.append(cstr!("projection"), &projection);
        find.append(cstr!("collation"), single("locale", "simple"));
        match self.ask(find).await?.first() {
            Some(stored) => self.extras_of(stored),
            None => Ok(None),
        }
    }

    async fn last_page(&mut self, id: RawBsonRef<'_>, extras: &Extras) -> Result<Option<PageFacts>, RunError> {
        let mut find: RawDocumentBuf = single("find", self.shape.extras_collection());
        find.append(cstr!("filter"), of_generation(self.shape, id, extras.generation));
        find.append(cstr!("sort"), single(path::FROM, -1));
        find.append(cstr!("limit"), 1);
        let last = self.ask(find).await?;
        Ok(last.first().and_then(|page| PageFacts::parse(self.shape, page)))
    }
}
