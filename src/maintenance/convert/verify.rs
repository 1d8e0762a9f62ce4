//! Compares the collection with its copy, document by document, while both change.
//!
//! Both collections are read once, in their natural order, and compared by hashes. The comparison holds no
//! snapshot. A document that differs may have changed after it was read. Then it is among the changes that
//! are applied meanwhile, and is compared again before the swap.

pub(super) mod checksum;
mod fingerprints;
mod key_ranges;

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
use super::verify::fingerprints::Fingerprints;
use super::verify::key_ranges::{KeyRanges, SAMPLE};
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
    /// The same by ranges of the key, if requested.
    ranges: Option<KeyRanges>,
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

    /// Findings with the checksum of each range of the key.
    pub(super) fn ranges(&self, namespace: &str) -> Vec<Finding> {
        let texts = self.ranges.iter().flat_map(KeyRanges::texts);
        texts.map(|text| Finding::note(namespace, text)).collect()
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

/// Consecutive documents of a scan.
struct ReadBatch {
    documents: usize,
    begun: Instant,
}

impl Conversion<'_> {
    /// Compares all documents. Applies changes meanwhile. `ranges`: of which checksums are requested.
    pub(super) async fn compare(&mut self, mut ranges: Option<KeyRanges>) -> Result<Comparison, Halt> {
        self.begin(Stage::Comparing).await;
        let mut suspects = Ids::default();
        let checksum = self.compare_documents(&mut suspects, ranges.as_mut()).await?;
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
            ranges,
            differing: suspects,
        };
        self.note_comparison(comparison.counts());
        Ok(comparison)
    }

    /// Compares each document of the collection with its copy. `suspects` gets the documents that differ.
    async fn compare_documents(
        &mut self,
        suspects: &mut Ids,
        mut ranges: Option<&mut KeyRanges>,
    ) -> Result<Checksum, Halt> {
        let mut checksum = Checksum::default();
        let mut fingerprints = Fingerprints::new();
        loop {
            // All documents are read in each pass.
            let of_pass = self.add_source(&mut fingerprints, ranges.take()).await?;
            self.take_copy(&mut fingerprints, suspects).await?;
            self.converge().await?;
            fingerprints.remove(self.touched.iter().map(|(identity, _)| identity));
            self.find_missing(&fingerprints, suspects).await?;
            if checksum.documents == 0 {
                checksum = of_pass;
            }
            if fingerprints.is_last_pass() {
                self.observer.progress.complete(checksum.documents, Instant::now());
                return Ok(checksum);
            }
            fingerprints.next_pass();
        }
    }

    /// The ranges of the key, by a sample. A sample of pages reads all of them.
    pub(super) async fn key_ranges(&self) -> Result<KeyRanges, Halt> {
        let shape = self.target.bucket();
        let field = shape
            .and_then(|shape| shape.key().first())
            .map_or("_id", String::as_str);
        let is_of_copy = self.mirror.copy.is_plain && !self.mirror.source.is_plain;
        let sampled = if is_of_copy {
            &self.mirror.copy
        } else {
            &self.mirror.source
        };
        let sample = sampled.sample(field, SAMPLE).await?;
        Ok(KeyRanges::of(field, sample))
    }

    /// Reads the collection.
    async fn add_source(
        &mut self,
        fingerprints: &mut Fingerprints,
        mut ranges: Option<&mut KeyRanges>,
    ) -> Result<Checksum, Halt> {
        let mut documents = self.mirror.source.scan(RawDocumentBuf::new(), self.since()).await?;
        let mut checksum = Checksum::default();
        let mut batch = self.begin_batch();
        while let Some(document) = documents.try_next().await? {
            let hash = fingerprints.add(&document);
            checksum.add(hash);
            if let Some(ranges) = &mut ranges {
                ranges.add(&document, hash);
            }
            self.end_batch_if_full(&mut batch, fingerprints.compared()).await?;
        }
        Ok(checksum)
    }

    /// Reads the copy.
    async fn take_copy(&mut self, fingerprints: &mut Fingerprints, suspects: &mut Ids) -> Result<(), Halt> {
        let mut documents = self.mirror.copy.scan(RawDocumentBuf::new(), None).await?;
        let mut batch = self.begin_batch();
        while let Some(document) = documents.try_next().await? {
            if !fingerprints.take(&document) {
                suspects.add_of(&document);
            }
            self.end_batch_if_full(&mut batch, fingerprints.compared()).await?;
        }
        Ok(())
    }

    /// Adds the documents that the copy does not have.
    async fn find_missing(&mut self, fingerprints: &Fingerprints, missing: &mut Ids) -> Result<(), Halt> {
        if fingerprints.is_empty() {
            return Ok(());
        }
        let mut documents = self.mirror.source.scan_ids().await?;
        let mut batch = self.begin_batch();
        while let Some(document) = documents.try_next().await? {
            if fingerprints.contains(&document) {
                missing.add_of(&document);
            }
            self.end_batch_if_full(&mut batch, fingerprints.compared()).await?;
        }
        Ok(())
    }

    fn begin_batch(&mut self) -> ReadBatch {
        self.throttle.begin();
        ReadBatch {
            documents: 0,
            begun: Instant::now(),
        }
    }

    /// After a batch of documents: applies changes, and keeps the limits of the operator. `compared`: the
    /// documents since the beginning.
    async fn end_batch_if_full(&mut self, batch: &mut ReadBatch, compared: u64) -> Result<(), Halt> {
        batch.documents += 1;
        if batch.documents < self.throttle.limits.batch(AT_ONCE) {
            return Ok(());
        }
        self.leave_time(batch.begun.elapsed()).await?;
        self.follow_if_due().await?;
        self.advance(compared).await;
        // A document is compared by two reads.
        self.keep_rate(batch.documents.div_ceil(2)).await?;
        *batch = self.begin_batch();
        Ok(())
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
