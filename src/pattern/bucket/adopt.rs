//! Adoption: hand-written buckets become pages of [layout version 1](super::layout), in place.
//!
//! A hand-written bucket has the key fields, the number of items and the array, and no `control`.
//! An [`AdoptionScan`] over a collection's documents, by key and page ([`order`]), classifies each:
//! a page, a bucket with the statements that adopt it, or invalid with the reason. The scan keeps
//! state of the current key only.
//!
//! * The buckets of a key are numbered after its pages, in the order of their first time, then of
//!   their `_id`.
//! * Buckets keep their `_id`: nothing that reads pages depends on it.
//! * A statement demands the bucket as it was read, and fails as a miss (error 66) if the bucket
//!   was changed.
//! * Statements are sent in order and end with the first failure. So after any failure the pages of
//!   a key are numbered without gaps, and all but the head page are full or `short`.
//! * A document that differs in any part from a bucket of this shape is an [`InvalidPage`].

mod examined;
mod query;
mod statement;

use std::fmt;

use bson::DateTime;
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use self::examined::Examined;
pub use self::query::{doubled_ids, foreign_documents, order};
use super::key::Key;
use super::layout::{Control, PageHeader, TimeBounds};
use crate::command::document::get;
use crate::pattern::shapes::BucketShape;

/// The reason why a document is not a bucket, for the end of an error message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidPage {
    /// The document itself is invalid.
    Itself(String),
    /// The document is a page, but contradicts the pages of its key before it. This may be temporary: another
    /// process may be adopting buckets of the key, and its statements do not take effect at the same moment.
    Place(String),
}

impl fmt::Display for InvalidPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Itself(words) | Self::Place(words)) = self;
        f.write_str(words)
    }
}

/// The kind of a document.
#[derive(Clone, Debug)]
pub enum DocumentKind {
    /// A page of layout version 1.
    Page,
    /// A bucket that can be adopted.
    ByHand(Adoption),
}

/// The statements that adopt a bucket.
#[derive(Clone, Debug)]
pub struct Adoption {
    /// The elements of an ordered `updates`: closes the page before and marks page 0, if necessary,
    /// and makes the bucket a page.
    pub statements: Vec<RawDocumentBuf>,
    /// Whether the recorded number of items is wrong and gets corrected.
    pub is_miscounted: bool,
}

/// A key's page 0.
#[derive(Debug)]
struct FirstPage {
    id: RawBson,
    /// Whether page 0 is marked: not all times of the key ascend.
    is_marked: bool,
}

/// A scan over a collection's documents in their [`order`].
#[derive(Debug)]
pub struct AdoptionScan<'a> {
    shape: &'a BucketShape,
    /// The [`Key::identity`] of the document before. `None` if that document has no valid key.
    key: Option<Vec<u8>>,
    /// The page before, if it has the same key: as it will be after its statements are executed.
    before: Option<PageHeader>,
    /// The greatest time on the last page of this key that has items. `None` if one of those items
    /// has no date.
    newest: Option<DateTime>,
    /// This key's page 0, once the scan has seen it.
    first: Option<FirstPage>,
    /// Whether an earlier page of this key is late, so that the next page must be marked unordered.
    is_behind_late: bool,
    /// Whether a document of this key was invalid or skipped. The order of the key's pages is then
    /// not checked.
    doubtful: bool,
}

impl<'a> AdoptionScan<'a> {
    /// A scan that has seen no document.
    #[must_use]
    pub fn new(shape: &'a BucketShape) -> Self {
        Self {
            shape,
            key: None,
            before: None,
            newest: None,
            first: None,
            is_behind_late: false,
            doubtful: false,
        }
    }

    /// Classifies the next document.
    ///
    /// # Errors
    /// The document is neither a page nor a bucket that can be adopted.
    pub fn look_at(&mut self, document: &RawDocument) -> Result<DocumentKind, InvalidPage> {
        self.turn_to(document);
        let found = Examined::of(self.shape, document).and_then(|seen| match seen.control {
            Some(control) => self.page(&seen, document, control),
            None => Ok(DocumentKind::ByHand(self.by_hand(&seen))),
        });
        self.doubtful |= found.is_err();
        found
    }

    /// Skips a document that another process has just made a page, before or after others of its
    /// key were classified.
    pub fn pass_over(&mut self, document: &RawDocument) {
        self.turn_to(document);
        self.doubtful = true;
    }

    fn turn_to(&mut self, document: &RawDocument) {
        let key = Key::of(self.shape, document).ok().map(|key| key.identity());
        if key != self.key {
            *self = Self {
                key,
                ..Self::new(self.shape)
            };
        }
    }

    fn by_hand(&mut self, seen: &Examined<'_>) -> Adoption {
        let mut statements = Vec::new();
        if let Some(before) = &self.before {
            statements.push(statement::reserve(self.shape, before));
        }
        let page = self.before.as_ref().map_or(0, |before| before.page.saturating_add(1));
        self.is_behind_late |= self.before.as_ref().is_some_and(PageHeader::makes_unordered);
        let control = Control {
            page,
            bytes: seen.bytes,
            bounds: seen.bounds,
            short: false,
            late: self.is_late(seen),
            unordered: self.is_behind_late,
            nonce: self.before.as_ref().map(|_| statement::NONCE),
            next: None,
            revision: None,
        };
        if let Some(first) = &mut self.first
            && control.late
            && !first.is_marked
        {
            statements.push(statement::mark(&first.id));
            first.is_marked = true;
        }
        statements.push(statement::adopt(self.shape, seen, &control));
        self.is_behind_late |= control.late;
        self.go_behind(PageHeader {
            id: seen.id.into(),
            page,
            count: seen.count,
            bytes: seen.bytes,
            to: seen.bounds.and_then(TimeBounds::newest),
            short: false,
            late: control.late,
            unordered: control.unordered,
            nonce: control.nonce,
            next: Vec::new(),
            anchor: false,
            size: None,
            revision: None,
            ids: None,
            contended: 0,
        });
        Adoption {
            statements,
            is_miscounted: !seen.is_counted(),
        }
    }

    /// Compares a page's header with its items and with the page before.
    fn page(
        &mut self,
        seen: &Examined<'_>,
        document: &RawDocument,
        control: &RawDocument,
    ) -> Result<DocumentKind, InvalidPage> {
        let Some(facts) = PageHeader::parse(self.shape, document) else {
            return Err(InvalidPage::Itself(
                "its control contains no page number, or no number of bytes".to_owned(),
            ));
        };
        if !self.is_bounded(seen, control) {
            let text = "its control.from and control.to do not enclose its times, nor are they MinKey and MaxKey for items without a \
                        date";
            return Err(InvalidPage::Itself(text.to_owned()));
        }
        let is_marked = |mark| get(control, mark).is_some();
        if is_marked("exception") != (is_marked("short") || is_marked("late")) {
            let text = "control.exception must exist exactly if control.short or control.late does";
            return Err(InvalidPage::Itself(text.to_owned()));
        }
        if !self.doubtful {
            self.follows(seen, &facts, is_marked("late"))?;
        }
        let kept = get(control, "kept").and_then(RawBsonRef::as_document);
        self.is_behind_late |= facts.anchor || (facts.late && kept.is_none());
        self.go_behind(facts);
        if let Some(kept) = kept {
            // The next page was begun when the page had these bounds.
            self.newest = get(kept, "to").and_then(RawBsonRef::as_datetime);
        }
        Ok(DocumentKind::Page)
    }

    /// Checks a page against the pages of its key before it. An unnecessary mark costs time but is harmless.
    /// A missing mark on page 0 is not an error: a proxy may have set it after the scan read page 0.
    fn follows(&self, seen: &Examined<'_>, facts: &PageHeader, is_marked_late: bool) -> Result<(), InvalidPage> {
        let expected = self.before.as_ref().map_or(0, |before| before.page.saturating_add(1));
        if facts.page != expected {
            let page = facts.page;
            let text = format!("its control.page is {page}; the next page of its key should be {expected}");
            return Err(InvalidPage::Place(text));
        }
        if let Some(before) = &self.before
            && !before.is_closed(self.shape)
        {
            let page = before.page;
            let text = format!("the page before it (page {page} of its key) is neither full nor marked short");
            return Err(InvalidPage::Place(text));
        }
        if self.is_late(seen) && !is_marked_late {
            let text =
                "its times do not ascend, or begin before the end of the preceding page, and it is not marked late";
            return Err(InvalidPage::Place(text.to_owned()));
        }
        if self.is_behind_late && !facts.unordered {
            let text = "an earlier page of its key is late, and it is not marked unordered";
            return Err(InvalidPage::Place(text.to_owned()));
        }
        Ok(())
    }

    fn go_behind(&mut self, page: PageHeader) {
        if page.count > 0 {
            self.newest = page.to;
        }
        if page.page == 0 {
            self.first = Some(FirstPage {
                id: page.id.clone(),
                is_marked: page.is_first_marked(),
            });
        }
        self.before = Some(page);
    }

    /// Whether the page's bounds enclose its items' times. They may be wider, because items were
    /// deleted.
    fn is_bounded(&self, seen: &Examined<'_>, control: &RawDocument) -> bool {
        let bounds = match (get(control, "from"), get(control, "to")) {
            (Some(RawBsonRef::DateTime(from)), Some(RawBsonRef::DateTime(to))) => Some(TimeBounds::Dates(from, to)),
            (Some(RawBsonRef::MinKey), Some(RawBsonRef::MaxKey)) => Some(TimeBounds::Open),
            _ => None,
        };
        self.shape.time().is_none()
            || seen
                .bounds
                .is_none_or(|seen| bounds.is_some_and(|bounds| bounds.enclose(seen)))
    }

    fn is_late(&self, seen: &Examined<'_>) -> bool {
        let is_older = |bounds| match bounds {
            TimeBounds::Dates(from, _) => self.newest.is_some_and(|newest| from < newest),
            TimeBounds::Open => true,
        };
        seen.is_late || seen.bounds.is_some_and(is_older)
    }
}

#[cfg(test)]
mod tests;
