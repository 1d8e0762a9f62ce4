//! Reassembles the outliers of a reply, as many as fit. Extras are read in parts, within the
//! reserved memory.

use std::borrow::Cow;

use bson::raw::{RawDocument, RawDocumentBuf};

use super::base_document::{MOST_BYTES, PagesByGeneration};
use super::command::OutlierCommand;
use super::reply_inspection::shows_own;
use crate::command::batch::{BatchKind, ReplyBatch};
use crate::command::document::get;
use crate::pattern::outlier::enclosed::enclosed;
use crate::pattern::outlier::layout::{DocumentState, Extras};
use crate::pattern::outlier::reassemble::{merged, without_own};
use crate::pattern::shapes::Reads;
use crate::session::error::RunError;
use crate::session::memory::{LARGEST_REPLY, REPLY_COPIES};

/// Maximum bytes of a document (`BSONObjMaxInternalSize`).
pub(super) const LARGEST_DOCUMENT: usize = 16 * 1024 * 1024 + 16 * 1024;
/// Expected bytes of pages that are read by one query.
const PART_BYTES: usize = 1024 * 1024;

pub(super) enum Merged {
    /// The reassembled documents that fit in a batch, and their number.
    Batch(ReplyBatch, usize),
    /// The pages of a document were replaced after it was read.
    Stale,
}

/// A document of mongod's reply, by the change that the client's reply requires.
enum AnsweredDocument<'d> {
    /// Returned unchanged.
    AsIs(&'d RawDocument),
    /// Returned without the proxy's own fields.
    Stripped(RawDocumentBuf),
    /// An outlier, with the expected bytes of its pages.
    Outlier(&'d RawDocument, Extras, usize),
    /// A hand-split document.
    ByHand(&'d RawDocument),
}

impl AnsweredDocument<'_> {
    /// Expected bytes in the reply.
    fn expected_bytes(&self) -> usize {
        match self {
            Self::AsIs(document) => document.as_bytes().len(),
            Self::Stripped(document) => document.as_bytes().len(),
            Self::Outlier(document, _, pages) => document.as_bytes().len().saturating_add(*pages),
            Self::ByHand(_) => MOST_BYTES,
        }
    }
}

/// The result of filling a batch.
enum Filled {
    /// A batch with this number of documents.
    Batch(ReplyBatch, usize),
    /// The pages of a document were replaced after it was read.
    Stale,
    /// The pages exceed the reserved memory.
    Exceeded,
}

impl OutlierCommand<'_> {
    /// Reassembles as many documents as fit in a reply, beginning with the first.
    pub(super) async fn merge(&mut self, documents: &[&RawDocument], kind: BatchKind) -> Result<Merged, RunError> {
        let shown = documents.iter().map(|document| self.shown(document));
        let shown = shown.collect::<Result<Vec<_>, RunError>>()?;
        if shown.iter().any(|shown| matches!(shown, AnsweredDocument::Outlier(..))) {
            self.context.shared.metrics.outliers.merged(&self.label());
        }
        let expected = shown
            .iter()
            .map(AnsweredDocument::expected_bytes)
            .fold(0, usize::saturating_add);
        let expected = expected.saturating_mul(REPLY_COPIES).min(LARGEST_REPLY);
        for reserved in [expected, LARGEST_REPLY] {
            self.reply_memory.reserve(reserved).await?;
            match self.fill(&shown, kind).await? {
                Filled::Batch(batch, count) => return Ok(Merged::Batch(batch, count)),
                Filled::Stale => return Ok(Merged::Stale),
                Filled::Exceeded => {}
            }
        }
        Err(self.too_large().into())
    }

    fn shown<'d>(&self, document: &'d RawDocument) -> Result<AnsweredDocument<'d>, RunError> {
        let shape = self.shape;
        if !shows_own(shape, document) {
            return Ok(AnsweredDocument::AsIs(document));
        }
        if let Some(own) = enclosed(shape, document) {
            return Ok(AnsweredDocument::AsIs(own));
        }
        let keep = (shape.reads() == Reads::Base).then_some(shape.flag());
        // The control field decides: a projection may have removed the flag.
        let state = DocumentState::of(shape, document);
        let is_whole = shape.reads() == Reads::Merged && get(document, shape.array()).is_some();
        let shown = match state {
            DocumentState::Invalid => return Err(self.misfit().into()),
            DocumentState::Outlier(extras) if is_whole => {
                let expected = extras.expected_bytes(shape, document);
                AnsweredDocument::Outlier(document, extras, expected)
            }
            DocumentState::Unmanaged if is_whole => AnsweredDocument::ByHand(document),
            _ => return Ok(AnsweredDocument::Stripped(without_own(shape, document, keep))),
        };
        if get(document, "_id").is_none() {
            return Err(self.unsupported(&format!("{} without _id", shape.array())).into());
        }
        Ok(shown)
    }

    /// Fills a batch within the reserved memory.
    async fn fill(&mut self, shown: &[AnsweredDocument<'_>], kind: BatchKind) -> Result<Filled, RunError> {
        let most_bytes = self.reply_memory.bytes() / REPLY_COPIES;
        let mut batch = ReplyBatch::new(kind);
        let mut count = 0;
        let mut part_bytes = PART_BYTES;
        while let Some(rest) = shown.get(count..).filter(|rest| !rest.is_empty()) {
            let part = part_of(rest, part_bytes);
            let left = most_bytes.saturating_sub(batch.document_bytes());
            let Some(pages) = self.pages_of(part, left.min(MOST_BYTES)).await? else {
                if part.len() > 1 {
                    // Documents are read one by one from here on.
                    part_bytes = 0;
                    continue;
                }
                if batch.count() > 0 && self.reply_memory.bytes() >= LARGEST_REPLY {
                    return Ok(Filled::Batch(batch, count));
                }
                return Ok(Filled::Exceeded);
            };
            for shown in part {
                let Some(document) = self.whole_of(shown, &pages).await? else {
                    return Ok(Filled::Stale);
                };
                if document.len() > LARGEST_DOCUMENT {
                    return Err(self.too_large().into());
                }
                if !batch.has_space_for(document.len()) {
                    return Ok(Filled::Batch(batch, count));
                }
                batch.push(&document);
                count += 1;
            }
        }
        Ok(Filled::Batch(batch, count))
    }

    /// The pages of these outliers. `None`: the pages exceed `most_bytes`.
    async fn pages_of(
        &mut self,
        shown: &[AnsweredDocument<'_>],
        most_bytes: usize,
    ) -> Result<Option<PagesByGeneration>, RunError> {
        let outliers = shown.iter().filter_map(|shown| match shown {
            AnsweredDocument::Outlier(document, extras, _) => Some((get(document, "_id")?, extras.generation)),
            _ => None,
        });
        let outliers: Vec<_> = outliers.collect();
        self.pages_within(&outliers, most_bytes).await
    }

    /// The document as the application sees it. `None`: its pages were replaced after it was read.
    async fn whole_of<'d>(
        &mut self,
        shown: &'d AnsweredDocument<'_>,
        pages: &PagesByGeneration,
    ) -> Result<Option<Cow<'d, [u8]>>, RunError> {
        let whole = match shown {
            AnsweredDocument::AsIs(document) => return Ok(Some(document.as_bytes().into())),
            AnsweredDocument::Stripped(document) => return Ok(Some(document.as_bytes().into())),
            AnsweredDocument::Outlier(document, extras, _) => {
                merged(self.shape, document, extras, &pages.of(extras.generation))
            }
            AnsweredDocument::ByHand(document) => self.whole_by_hand(document).await?,
        };
        Ok(whole.map(|whole| whole.into_bytes().into()))
    }
}

/// The first documents, at least one, whose pages are expected to have at most `most_bytes`
/// together.
fn part_of<'s, 'd>(shown: &'s [AnsweredDocument<'d>], most_bytes: usize) -> &'s [AnsweredDocument<'d>] {
    let mut bytes = 0_usize;
    let fit = shown.iter().take_while(|shown| {
        bytes = bytes.saturating_add(match shown {
            AnsweredDocument::Outlier(_, _, pages) => *pages,
            AnsweredDocument::AsIs(_) | AnsweredDocument::Stripped(_) => 0,
            AnsweredDocument::ByHand(_) => MOST_BYTES,
        });
        bytes <= most_bytes
    });
    let count = fit.count().max(1);
    shown.get(..count).unwrap_or_default()
}
