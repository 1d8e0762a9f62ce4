//! Joins the outliers of a collection, and finds those that cannot be joined.

use std::time::{Duration, Instant};

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::rawdoc;
use futures_util::TryStreamExt;
use mongodb::Cursor;
use tokio::time::sleep;

use super::OutlierConversion;
use crate::command::document::{array_of, get, single};
use crate::command::value_text::id_text;
use crate::maintenance::convert::REPORT_EVERY;
use crate::maintenance::finding::{Finding, Findings};
use crate::maintenance::outlier_documents::{MAX_ATTEMPTS, base, delete, extras, extras_bytes, update};
use crate::maintenance::swap::Halt;
use crate::pattern::outlier::join::{joining, whole};
use crate::pattern::outlier::layout::{DocumentState, is_typical};
use crate::pattern::outlier::page::removal;

/// The largest document that mongod stores.
const MAX_BYTES: usize = 16 << 20;
/// Extras of fewer bytes fit in a document in any case: the names of its array's elements add at most seven
/// bytes to each element, and an element has at least three.
const SURELY_FIT: i64 = 2 << 20;
/// Documents named in a report. Further ones are counted.
const MAX_EXAMPLES: usize = 5;
/// Scans of the collection without a joined document, and the pause between them: the majority does not have
/// the last changes yet, or other writers change the outliers.
const MAX_IDLE_SCANS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(100);

/// The result for one document.
enum Joined {
    Yes,
    /// It has no extras, or does not exist any more.
    NotNeeded,
    TooLarge,
    /// Its extras cannot be read.
    Misfit,
    /// It was changed concurrently in every attempt.
    Lost,
}

/// The outliers of a collection.
#[derive(Default)]
pub(super) struct OutlierCensus {
    outliers: u64,
    /// The `_id`s of documents that cannot be joined, with the reason.
    refused: Vec<String>,
    others_refused: u64,
}

impl OutlierCensus {
    /// Reads the outliers whose extras may be too large for one document, and counts the others.
    pub(super) async fn of(conversion: &OutlierConversion<'_>) -> Result<Self, Halt> {
        let (target, shape) = (conversion.target, conversion.shape);
        let mut census = Self::default();
        let mut found = conversion.outliers().await?;
        while let Some(found) = found.try_next().await? {
            if conversion.request.stop.is_cancelled() {
                return Err(Halt::Stopped);
            }
            let Some(id) = get(&found, "_id") else { continue };
            let Some(stored) = base(target, id).await? else {
                continue;
            };
            let state = DocumentState::of(shape, &stored);
            census.outliers += 1;
            let bytes = extras_bytes(target, shape, id, &state).await?;
            let is_small = usize::try_from(bytes).is_ok_and(|bytes| bytes < MAX_BYTES);
            if state == DocumentState::Invalid {
                census.refuse(&found, "its record of its extras is invalid");
            } else if !is_small || (bytes > SURELY_FIT && conversion.is_too_large(&stored, &state).await?) {
                census.refuse(&found, "it exceeds 16 MiB with its extras");
            }
        }
        Ok(census)
    }

    fn refuse(&mut self, found: &RawDocument, reason: &str) {
        if self.refused.len() < MAX_EXAMPLES {
            let text = format!("the document with _id {} cannot be joined: {reason}", id_text(found));
            self.refused.push(text);
        } else {
            self.others_refused += 1;
        }
    }

    pub(super) fn findings(&self, namespace: &str) -> Vec<Finding> {
        let mut findings = vec![Finding::note(namespace, format!("contains {} outliers", self.outliers))];
        findings.extend(self.refused.iter().map(|text| Finding::error(namespace, text)));
        if self.others_refused > 0 {
            let text = format!("{} more documents cannot be joined", self.others_refused);
            findings.push(Finding::error(namespace, text));
        }
        findings
    }
}

/// A run that joins all outliers.
pub(super) struct Joining<'a> {
    pub(super) conversion: &'a OutlierConversion<'a>,
    pub(super) joined: u64,
}

impl Joining<'_> {
    /// Joins outliers until the majority has none.
    pub(super) async fn run(&mut self, findings: &mut Findings) -> Result<(), Halt> {
        let mut reported = Instant::now();
        let mut idle_scans = 0;
        loop {
            let before = self.joined;
            let mut last = None;
            let mut found = self.conversion.outliers().await?;
            while let Some(found) = found.try_next().await? {
                if self.conversion.request.stop.is_cancelled() {
                    return Err(Halt::Stopped);
                }
                self.join(&found).await?;
                last = Some(id_text(&found));
                if reported.elapsed() >= REPORT_EVERY {
                    reported = Instant::now();
                    let text = format!("{} outliers joined so far", self.joined);
                    findings.add(&Finding::note(self.conversion.target.namespace(), text));
                }
            }
            let Some(last) = last else { return Ok(()) };
            idle_scans = if self.joined == before { idle_scans + 1 } else { 0 };
            if idle_scans == MAX_IDLE_SCANS {
                let words = format!("the document with _id {last} was changed by other writers before each attempt");
                return Err(Halt::Words(words));
            }
            sleep(PAUSE).await;
        }
    }

    async fn join(&mut self, found: &RawDocument) -> Result<(), Halt> {
        let Some(id) = get(found, "_id") else { return Ok(()) };
        let reason = match self.conversion.join(id).await? {
            Joined::Yes => {
                self.joined += 1;
                return Ok(());
            }
            Joined::NotNeeded | Joined::Lost => return Ok(()),
            Joined::TooLarge => "it exceeds 16 MiB with its extras by now",
            Joined::Misfit => "its extras are incomplete, or its array is none",
        };
        let words = format!("the document with _id {} cannot be joined: {reason}", id_text(found));
        Err(Halt::Words(words))
    }
}

impl OutlierConversion<'_> {
    /// The `_id`s of the outliers that the majority has.
    pub(super) async fn outliers(&self) -> Result<Cursor<RawDocumentBuf>, Halt> {
        let mut find = single("find", self.target.collection.as_str());
        let has_extras = single("$nor", array_of(&[is_typical(self.shape)]));
        find.append(cstr!("filter"), has_extras);
        find.append(cstr!("projection"), single("_id", 1));
        if self.is_replicated {
            find.append(cstr!("readConcern"), rawdoc! { "level": "majority" });
        }
        Ok(self.target.database.run_raw_cursor_command(find).await?.with_type())
    }

    async fn is_too_large(&self, stored: &RawDocument, state: &DocumentState) -> Result<bool, Halt> {
        let id = get(stored, "_id").unwrap_or(RawBsonRef::Null);
        let pages = extras(self.target, self.shape, id, state).await?.unwrap_or_default();
        let pages: Vec<&RawDocument> = pages.iter().map(RawDocumentBuf::as_ref).collect();
        let whole = whole(self.shape, stored, state, &pages);
        Ok(whole.is_some_and(|whole| whole.as_bytes().len() > MAX_BYTES))
    }

    async fn join(&self, id: RawBsonRef<'_>) -> Result<Joined, Halt> {
        let (target, shape) = (self.target, self.shape);
        let mut is_incomplete = false;
        for _ in 0..MAX_ATTEMPTS {
            let Some(stored) = base(target, id).await? else {
                return Ok(Joined::NotNeeded);
            };
            let state = DocumentState::of(shape, &stored);
            match &state {
                DocumentState::Inline => return Ok(Joined::NotNeeded),
                DocumentState::Invalid => return Ok(Joined::Misfit),
                DocumentState::Outlier(_) | DocumentState::Unmanaged => {}
            }
            let bytes = extras_bytes(target, shape, id, &state).await?;
            if usize::try_from(bytes).map_or(true, |bytes| bytes > MAX_BYTES) {
                return Ok(Joined::TooLarge);
            }
            let pages = extras(target, shape, id, &state).await?.unwrap_or_default();
            let pages: Vec<&RawDocument> = pages.iter().map(RawDocumentBuf::as_ref).collect();
            let whole = whole(shape, &stored, &state, &pages);
            if whole.is_some_and(|whole| whole.as_bytes().len() > MAX_BYTES) {
                return Ok(Joined::TooLarge);
            }
            let Some(statement) = joining(shape, &stored, &state, &pages) else {
                // Its pages may have been replaced after it was read.
                is_incomplete = true;
                continue;
            };
            is_incomplete = false;
            if update(target, &target.collection, &statement).await? > 0 {
                if let DocumentState::Outlier(extras) = &state {
                    delete(target, shape, &removal(shape, id, extras.generation)).await?;
                }
                return Ok(Joined::Yes);
            }
        }
        Ok(if is_incomplete { Joined::Misfit } else { Joined::Lost })
    }
}
