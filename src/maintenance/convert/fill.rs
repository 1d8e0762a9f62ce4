//! Fills the copy with the documents that exist.

use std::time::{Duration, Instant};

use bson::raw::{RawDocument, RawDocumentBuf};
use futures_util::TryStreamExt;

use super::Conversion;
use super::ids::Ids;
use super::mirror::side::MAX_DOCUMENTS;
use super::progress::Stage;
use crate::maintenance::swap::Halt;

/// The most bytes of documents that are copied at once. The last document may exceed it.
const MAX_BYTES: usize = 8 << 20;

impl Conversion<'_> {
    /// Copies all documents. Those that the copy has already are compared, and corrected.
    pub(super) async fn fill(&mut self) -> Result<(), Halt> {
        self.begin(Stage::Copying).await;
        let is_empty = self.mirror.copy.scan_ids().await?.try_next().await?.is_none();
        let mut documents = self.mirror.source.scan(self.record.to.order(), self.since()).await?;
        let most = self.throttle.limits.batch(MAX_DOCUMENTS);
        let mut read = 0_u64;
        let mut batch: Vec<RawDocumentBuf> = Vec::new();
        let mut bytes = 0;
        self.throttle.begin();
        loop {
            let document = documents.try_next().await?;
            let is_last = document.is_none();
            if let Some(document) = document {
                bytes += document.as_bytes().len();
                read += 1;
                batch.push(document);
            }
            if is_last || batch.len() >= most || bytes >= MAX_BYTES {
                let begun = Instant::now();
                self.fill_batch(&batch, is_empty).await?;
                let took = begun.elapsed();
                self.advance(read).await;
                if is_last {
                    break;
                }
                // The changes are applied after the copy: a document that was read for it may be deleted
                // before it is written.
                self.collect_if_due().await?;
                // All documents are compared after the copy.
                self.touched = Ids::default();
                self.pace(batch.len(), took).await?;
                batch.clear();
                bytes = 0;
            }
        }
        if !is_empty {
            let mut surplus = Ids::default();
            self.find_surplus(&mut surplus).await?;
            self.apply(surplus).await?;
        }
        self.observer.progress.complete(read, Instant::now());
        self.say(format!("copied {read} documents"));
        Ok(())
    }

    async fn fill_batch(&mut self, batch: &[RawDocumentBuf], is_empty: bool) -> Result<(), Halt> {
        if self.stop.is_cancelled() {
            return Err(Halt::Stopped);
        }
        if is_empty {
            let documents: Vec<&RawDocument> = batch.iter().map(|document| &**document).collect();
            // A document that another one blocks has been changed, so its change is applied later.
            let refused = self.mirror.copy.insert(&documents).await?;
            self.pending.extend(refused);
            return Ok(());
        }
        let mut ids = Ids::default();
        for document in batch {
            ids.add_of(document);
        }
        self.apply(ids).await
    }

    async fn apply(&mut self, ids: Ids) -> Result<(), Halt> {
        let refused = self.mirror.apply(ids, self.since()).await?;
        self.pending.extend(refused);
        Ok(())
    }

    /// Leaves time to the applications, and keeps the limits of the operator. `took`: the time of the batch.
    async fn pace(&mut self, documents: usize, took: Duration) -> Result<(), Halt> {
        self.leave_time(took).await?;
        self.keep_rate(documents).await?;
        self.wait_for_server().await
    }
}
