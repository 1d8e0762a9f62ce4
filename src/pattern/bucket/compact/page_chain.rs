//! Compares the pages of a key in the copy with the expected pages.

use std::collections::BTreeMap;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use crate::command::document::put;
use crate::pattern::bucket::layout::PageHeader;
use crate::pattern::shapes::BucketShape;

/// Compares the copy's pages of one key, in order, with those that the copy should contain. Names
/// and reservation ids are generated, so only the links between pages must agree.
#[derive(Debug, Default)]
pub struct PageChain {
    /// Expected pages that were not found yet, by number, without generated values.
    expected: BTreeMap<i32, RawDocumentBuf>,
    found: BTreeMap<i32, RawDocumentBuf>,
    /// For each page the id of its reservation, and the ids that it records.
    reserved: BTreeMap<i32, (Option<i64>, Vec<i64>)>,
    differs: bool,
}

impl PageChain {
    /// Adds a page that the copy should contain.
    pub fn expect(&mut self, shape: &BucketShape, page: &RawDocument) {
        let Some(facts) = PageHeader::parse(shape, page) else {
            self.differs = true;
            return;
        };
        self.expected.insert(facts.page, without_names(page));
        self.settle(facts.page);
    }

    /// Adds a page that the copy contains.
    pub fn find(&mut self, shape: &BucketShape, page: &RawDocument) {
        let Some(facts) = PageHeader::parse(shape, page) else {
            self.differs = true;
            return;
        };
        let known = self.reserved.insert(facts.page, (facts.nonce, facts.next));
        self.differs |= known.is_some();
        self.found.insert(facts.page, without_names(page));
        self.settle(facts.page);
    }

    /// Records that a page is missing or that there is an additional one.
    pub fn differ(&mut self) {
        self.differs = true;
        self.expected.clear();
        self.found.clear();
    }

    /// Whether a difference was found.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.differs
    }

    /// Whether exactly the expected pages were found.
    #[must_use]
    pub fn is_same(&self) -> bool {
        let pages = self.reserved.iter().zip(self.reserved.iter().skip(1));
        let mut links =
            pages.map(|((_, (_, next)), (_, (nonce, _)))| nonce.is_some() && next.first() == nonce.as_ref());
        !self.differs && self.expected.is_empty() && self.found.is_empty() && links.all(|fits| fits)
    }

    /// Compares a page once both sides have it.
    fn settle(&mut self, page: i32) {
        if self.expected.contains_key(&page) && self.found.contains_key(&page) {
            let (expected, found) = (self.expected.remove(&page), self.found.remove(&page));
            let bytes = |document: Option<RawDocumentBuf>| document.map(RawDocumentBuf::into_bytes);
            self.differs |= bytes(expected) != bytes(found);
        }
    }
}

/// A page without its name and with counts in place of reservation ids.
fn without_names(page: &RawDocument) -> RawDocumentBuf {
    let mut named = RawDocumentBuf::new();
    for (name, value) in page.iter().flatten().skip(1) {
        match value {
            RawBsonRef::Document(control) if name.as_str() == BucketShape::CONTROL => {
                let mut rest = RawDocumentBuf::new();
                for (name, value) in control.iter().flatten() {
                    match name.as_str() {
                        made_up @ ("nonce" | "next") => put(&mut rest, made_up, length(value)),
                        _ => rest.append(name, value),
                    }
                }
                named.append(name, &rest);
            }
            _ => named.append(name, value),
        }
    }
    named
}

/// The number of reservation ids.
fn length(nonces: RawBsonRef<'_>) -> i64 {
    let count = nonces.as_array().map_or(1, |nonces| nonces.into_iter().count());
    i64::try_from(count).unwrap_or(i64::MAX)
}
