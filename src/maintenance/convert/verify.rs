//! Compares the collection with its copy, document by document, while both change.
//!
//! Both collections are read once, in their natural order, and compared by hashes. The comparison holds no
//! snapshot. A document that differs may have changed after it was read. Then it is among the changes that
//! are applied meanwhile, and is compared again before the swap. If many documents change or differ, they are
//! compared again earlier, so that they need little memory.

pub(super) mod checksum;
mod fingerprints;
mod key_ranges;

use std::time::{Duration, Instant};

use bson::raw::RawDocumentBuf;
use futures_util::TryStreamExt;
use tokio::time::sleep;

use super::Conversion;
use super::follow::Deadline;
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
/// The number of changed documents, and of differing ones, that are compared again: about 15 MiB each.
const MAX_SUSPECTS: usize = 100_000;
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

/// A comparison of all documents in progress.
struct Comparing<'a> {
    fingerprints: Fingerprints,
    /// The documents that differ.
    suspects: Ids,
    ranges: Option<&'a mut KeyRanges>,
    /// The number of changed documents, and of suspects, at which they are compared again.
    touched_at: usize,
    suspects_at: usize,
}

impl<'a> Comparing<'a> {
    fn new(ranges: Option<&'a mut KeyRanges>) -> Self {
        Self {
            fingerprints: Fingerprints::new(),
            suspects: Ids::default(),
            ranges,
            touched_at: MAX_SUSPECTS,
            suspects_at: MAX_SUSPECTS,
        }
    }
}

/// The number of documents at which they are compared again, if so many are left of the last time.
fn next_at(left: usize) -> usize {
    MAX_SUSPECTS.max(left.saturating_mul(2))
}

impl Conversion<'_> {
    /// Compares all documents. Applies changes meanwhile. `ranges`: of which checksums are requested.
    pub(super) async fn compare(&mut self, mut ranges: Option<KeyRanges>) -> Result<Comparison, Halt> {
        self.begin(Stage::Comparing).await;
        let mut comparing = Comparing::new(ranges.as_mut());
        let checksum = self.compare_documents(&mut comparing).await?;
        let mut suspects = comparing.suspects;
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

    /// Compares each document of the collection with its copy.
    async fn compare_documents(&mut self, comparing: &mut Comparing<'_>) -> Result<Checksum, Halt> {
        let mut checksum = Checksum::default();
        loop {
            // All documents are read in each pass.
            let of_pass = self.add_source(comparing).await?;
            comparing.ranges = None;
            self.take_copy(comparing).await?;
            self.converge().await?;
            self.forget_touched(comparing);
            self.find_missing(comparing).await?;
            if checksum.documents == 0 {
                checksum = of_pass;
            }
            if comparing.fingerprints.is_last_pass() {
                self.observer.progress.complete(checksum.documents, Instant::now());
                return Ok(checksum);
            }
            comparing.fingerprints.next_pass();
        }
    }

    /// Removes changed documents, which are compared again before the swap.
    fn forget_touched(&self, comparing: &mut Comparing<'_>) {
        comparing
            .fingerprints
            .remove(self.touched.iter().map(|(identity, _)| identity));
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
    async fn add_source(&mut self, comparing: &mut Comparing<'_>) -> Result<Checksum, Halt> {
        let mut documents = self.mirror.source.scan(RawDocumentBuf::new(), self.since()).await?;
        let mut checksum = Checksum::default();
        let mut batch = self.begin_batch();
        while let Some(document) = documents.try_next().await? {
            let hash = comparing.fingerprints.add(&document);
            checksum.add(hash);
            if let Some(ranges) = &mut comparing.ranges {
                ranges.add(&document, hash);
            }
            self.end_batch_if_full(&mut batch, comparing).await?;
        }
        Ok(checksum)
    }

    /// Reads the copy.
    async fn take_copy(&mut self, comparing: &mut Comparing<'_>) -> Result<(), Halt> {
        let mut documents = self.mirror.copy.scan(RawDocumentBuf::new(), None).await?;
        let mut batch = self.begin_batch();
        while let Some(document) = documents.try_next().await? {
            if !comparing.fingerprints.take(&document) {
                comparing.suspects.add_of(&document);
            }
            self.end_batch_if_full(&mut batch, comparing).await?;
        }
        Ok(())
    }

    /// Adds the documents that the copy does not have.
    async fn find_missing(&mut self, comparing: &mut Comparing<'_>) -> Result<(), Halt> {
        if comparing.fingerprints.is_empty() {
            return Ok(());
        }
        let mut documents = self.mirror.source.scan_ids().await?;
        let mut batch = self.begin_batch();
        while let Some(document) = documents.try_next().await? {
            if comparing.fingerprints.contains(&document) {
                comparing.suspects.add_of(&document);
            }
            self.end_batch_if_full(&mut batch, comparing).await?;
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

    /// After a batch of documents: applies changes, and keeps the limits of the operator.
    async fn end_batch_if_full(&mut self, batch: &mut ReadBatch, comparing: &mut Comparing<'_>) -> Result<(), Halt> {
        batch.documents += 1;
        if batch.documents < self.throttle.limits.batch(AT_ONCE) {
            return Ok(());
        }
        if comparing.suspects.len() >= comparing.suspects_at {
            comparing.suspects.remove(&self.touched);
            comparing.suspects = self.mirror.differing(&comparing.suspects, self.since()).await?;
            comparing.suspects_at = next_at(comparing.suspects.len());
        }
        self.leave_time(batch.begun.elapsed()).await?;
        self.follow_if_due().await?;
        if self.touched.len() >= comparing.touched_at {
            self.forget_touched(comparing);
            self.compare_touched(Deadline::between_batches()).await?;
            comparing.touched_at = next_at(self.touched.len());
        }
        self.advance(comparing.fingerprints.compared()).await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_that_differ_again_are_compared_less_often() {
        assert_eq!(next_at(0), MAX_SUSPECTS);
        assert_eq!(next_at(MAX_SUSPECTS), 2 * MAX_SUSPECTS);
    }
}
