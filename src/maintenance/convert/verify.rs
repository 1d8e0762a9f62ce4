//! Compares the collection with its copy, document by document, while both change.
//!
//! The comparison holds no snapshot. A document that differs may have changed after it was read. Then it is
//! among the changes that are applied meanwhile, and is compared again before the swap.

pub(super) mod checksum;

use std::time::{Duration, Instant};

use bson::raw::RawDocumentBuf;
use futures_util::TryStreamExt;
use tokio::time::sleep;

use super::Conversion;
use super::ids::Ids;
use super::mirror::AT_ONCE;
use super::mirror::side::id_of;
use super::progress::{LastComparison, Stage};
use super::verify::checksum::Checksum;
use crate::maintenance::finding::Finding;
use crate::maintenance::swap::Halt;

/// Comparisons of a document that differs, and the pause between them.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(500);
/// Documents named in a report. Further ones are counted.
const MAX_EXAMPLES: usize = 5;

/// The result of a comparison.
pub(super) struct Comparison {
    /// The documents of the collection.
    checksum: Checksum,
    /// The documents that differ.
    pub(super) differing: Ids,
}

impl Comparison {
    /// The number of documents of the collection.
    pub(super) fn documents(&self) -> u64 {
        self.checksum.documents
    }

    fn counts(&self) -> LastComparison {
        LastComparison {
            compared: self.documents(),
            differing: u64::try_from(self.differing.len()).unwrap_or(u64::MAX),
        }
    }

    /// The findings for a report.
    pub(super) fn findings(&self, namespace: &str) -> Vec<Finding> {
        let Checksum { documents, sum } = self.checksum;
        if self.differing.is_empty() {
            let text = format!("compared {documents} documents, checksum {sum:016x}: the copy is equal");
            return vec![Finding::fine(namespace, text)];
        }
        let examples = self.differing.values().take(MAX_EXAMPLES);
        let mut findings: Vec<Finding> = examples
            .map(|id| {
                Finding::error(
                    namespace,
                    format!("the document with _id {} differs from its copy", id_of(id)),
                )
            })
            .collect();
        let text = format!(
            "{} of {documents} documents differ from their copies",
            self.differing.len()
        );
        findings.push(Finding::error(namespace, text));
        findings
    }
}

impl Conversion<'_> {
    /// Compares all documents. Applies changes meanwhile.
    pub(super) async fn compare(&mut self) -> Result<Comparison, Halt> {
        self.begin(Stage::Comparing).await;
        let mut suspects = Ids::default();
        let checksum = self.compare_documents(&mut suspects).await?;
        self.find_surplus(&mut suspects).await?;
        for attempt in 1.. {
            self.converge().await?;
            // These changed after they were read, and are compared again before the swap.
            suspects.remove(&self.touched);
            suspects = self.mirror.differing(&suspects, self.since()).await?;
            if suspects.is_empty() || attempt == ATTEMPTS {
                break;
            }
            sleep(PAUSE).await;
        }
        let comparison = Comparison {
            checksum,
            differing: suspects,
        };
        self.note_comparison(comparison.counts());
        Ok(comparison)
    }

    /// Compares each document of the collection with its copy.
    async fn compare_documents(&mut self, suspects: &mut Ids) -> Result<Checksum, Halt> {
        let mut checksum = Checksum::default();
        let mut documents = self.mirror.source.scan(RawDocumentBuf::new(), self.since()).await?;
        let at_once = self.throttle.limits.batch(AT_ONCE);
        let mut batch = Ids::default();
        self.throttle.begin();
        let mut begun = Instant::now();
        loop {
            let document = documents.try_next().await?;
            if let Some(document) = &document {
                checksum.add(document);
                batch.add_of(document);
            }
            if batch.len() >= at_once || (document.is_none() && !batch.is_empty()) {
                let ids = std::mem::take(&mut batch);
                suspects.extend(self.mirror.differing(&ids, self.since()).await?);
                self.leave_time(begun.elapsed()).await?;
                self.follow_if_due().await?;
                self.advance(checksum.documents).await;
                if document.is_some() {
                    self.keep_rate(ids.len()).await?;
                }
                begun = Instant::now();
            }
            if document.is_none() {
                self.observer.progress.complete(checksum.documents, Instant::now());
                return Ok(checksum);
            }
        }
    }

    /// Adds the documents of the copy that the collection does not have.
    pub(super) async fn find_surplus(&mut self, surplus: &mut Ids) -> Result<(), Halt> {
        let mut documents = self.mirror.copy.scan_ids().await?;
        let mut batch = Ids::default();
        let mut begun = Instant::now();
        loop {
            let document = documents.try_next().await?;
            if let Some(document) = &document {
                batch.add_of(document);
            }
            if batch.len() >= AT_ONCE || document.is_none() {
                let ids = std::mem::take(&mut batch);
                let there = self.mirror.source.by_ids(&ids, self.since()).await?;
                for (identity, id) in ids.iter() {
                    if !there.contains_key(identity) {
                        surplus.add(id.as_raw_bson_ref());
                    }
                }
                self.leave_time(begun.elapsed()).await?;
                self.follow_if_due().await?;
                begun = Instant::now();
            }
            if document.is_none() {
                return Ok(());
            }
        }
    }
}
