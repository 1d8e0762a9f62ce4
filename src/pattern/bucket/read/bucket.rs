//! A stored bucket as a read sees it.

use bson::DateTime;
use bson::raw::{RawBsonRef, RawDocument};

use crate::command::document::{elements, get};
use crate::pattern::bucket::layout::VERSION;
use crate::pattern::shapes::BucketShape;

/// The time bounds that a page had before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreviousBounds {
    /// The least time.
    pub from: Option<DateTime>,
    /// The greatest time.
    pub to: Option<DateTime>,
}

impl PreviousBounds {
    fn of(bounds: &RawDocument) -> Self {
        let mut kept = Self::default();
        for element in elements(bounds) {
            match element.name {
                b"from" => kept.from = element.as_datetime(),
                b"to" => kept.to = element.as_datetime(),
                _ => {}
            }
        }
        kept
    }
}

/// A page and its time bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageTimes {
    /// The page number.
    pub page: u64,
    /// The least time.
    pub from: DateTime,
    /// The greatest time.
    pub to: DateTime,
}

impl PageTimes {
    /// Milliseconds between the least and the greatest time.
    #[must_use]
    pub fn millis(&self) -> u64 {
        let millis = self.to.timestamp_millis().saturating_sub(self.from.timestamp_millis());
        u64::try_from(millis).unwrap_or_default()
    }

    /// Whether a time is between the bounds.
    #[must_use]
    pub fn contains(&self, at: DateTime) -> bool {
        self.from <= at && at <= self.to
    }
}

/// A bucket, or the fields of it that a query requested.
#[derive(Clone, Copy, Debug)]
pub struct Bucket<'a> {
    /// The whole document.
    pub document: &'a RawDocument,
    /// The page number.
    pub page: u64,
    /// The number of items on the page.
    pub count: u64,
    /// Whether the page was closed before it was full.
    pub is_short: bool,
    /// Whether times on the page do not ascend, or not from the page before.
    pub is_late: bool,
    /// Whether an earlier page of the key is late. On page 0: whether any page is.
    pub is_unordered: bool,
    /// The least time on the page. `None` if the page has no bounds, or open ones.
    pub from: Option<DateTime>,
    /// The greatest time on the page. `None` in the same cases.
    pub to: Option<DateTime>,
    /// The time bounds before an item on the page got a time that belongs to another page, if one
    /// did.
    pub kept: PreviousBounds,
    items: Option<&'a RawDocument>,
}

impl<'a> Bucket<'a> {
    /// Reads a document. `None` if it is not a bucket of this layout version.
    #[must_use]
    pub fn open(shape: &BucketShape, document: &'a RawDocument) -> Option<Self> {
        let mut bucket = Self {
            document,
            page: 0,
            count: 0,
            is_short: false,
            is_late: false,
            is_unordered: false,
            from: None,
            to: None,
            kept: PreviousBounds::default(),
            items: None,
        };
        let (mut has_count, mut is_numbered, mut is_ours) = (false, false, false);
        for element in elements(document) {
            if element.name == shape.items().as_bytes() {
                bucket.items = element.as_document();
            } else if element.name == shape.count().as_bytes() {
                bucket.count = u64::try_from(element.as_whole_number()?).ok()?;
                has_count = true;
            } else if element.name == BucketShape::CONTROL.as_bytes() {
                for element in elements(element.as_document()?) {
                    match element.name {
                        b"v" => is_ours = element.as_whole_number() == Some(i64::from(VERSION)),
                        b"page" => {
                            bucket.page = u64::try_from(element.as_whole_number()?).ok()?;
                            is_numbered = true;
                        }
                        b"short" => bucket.is_short = true,
                        b"late" => bucket.is_late = true,
                        b"unordered" => bucket.is_unordered = true,
                        b"from" => bucket.from = element.as_datetime(),
                        b"to" => bucket.to = element.as_datetime(),
                        b"kept" => bucket.kept = element.as_document().map(PreviousBounds::of).unwrap_or_default(),
                        _ => {}
                    }
                }
            }
        }
        (is_ours && has_count && is_numbered).then_some(bucket)
    }

    /// The page with its time bounds. `None` if it has none, or open ones.
    #[must_use]
    pub fn times(&self) -> Option<PageTimes> {
        let (from, to) = self.from.zip(self.to)?;
        let page = self.page;
        Some(PageTimes { page, from, to })
    }

    /// Whether the query returned the items of the page.
    #[must_use]
    pub fn has_items(&self) -> bool {
        self.items.is_some()
    }

    /// Whether all times of the key ascend, as far as this page's marks show. Page 0 covers all
    /// pages, any other page itself and the pages before it.
    #[must_use]
    pub fn says_ascending(&self) -> bool {
        !self.is_late && !self.is_unordered
    }

    /// Whether time bounds of the key's pages change. Only page 0 has this mark.
    #[must_use]
    pub fn has_unsteady_bounds(&self) -> bool {
        self.control("unsteady").is_some()
    }

    /// Whether the next page is reserved. It may exist.
    #[must_use]
    pub fn has_reservation(&self) -> bool {
        let next = self.control("next").and_then(RawBsonRef::as_array);
        next.is_some_and(|next| next.into_iter().next().is_some())
    }

    fn control(&self, name: &str) -> Option<RawBsonRef<'a>> {
        let control = get(self.document, BucketShape::CONTROL)?.as_document()?;
        get(control, name)
    }

    /// Whether the page takes no more items.
    #[must_use]
    pub fn is_closed(&self, shape: &BucketShape) -> bool {
        self.is_short || self.count >= u64::from(shape.max_items())
    }

    /// The items as stored.
    pub fn stored(&self) -> impl Iterator<Item = &'a RawDocument> {
        let elements = self.items.into_iter().flat_map(elements);
        elements.filter_map(|element| element.as_document())
    }
}

/// The time of a stored item, if it has one.
#[must_use]
pub fn time_of(shape: &BucketShape, stored: &RawDocument) -> Option<DateTime> {
    let field = shape.rename().stored(shape.time()?).as_bytes();
    elements(stored).find(|element| element.name == field)?.as_datetime()
}

#[cfg(test)]
mod tests;
