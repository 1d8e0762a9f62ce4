//! Layout version 1: what a bucket looks like in mongod.
//!
//! ```js
//! { _id: "123_1698335223",              // key text, "_", seconds of the first item's time; of an adopted bucket any
//!   customerId: 123,                    // the key, lifted out of the items
//!   count: 2, history: [ {..}, {..} ],  // the items, at most `max_items`
//!   control: { v: 1, page: 0,           // layout version; this page's number among its key's, from 0
//!              bytes: 173,              // sum of the items' BSON lengths
//!              from: .., to: ..,        // least and greatest time of the items that have one
//!              exception: true,         // there when short or late is: what position arithmetic must know of
//!              short: true,             // closed before it was full
//!              late: true } }           // times in it do not ascend, or not from the page before
//! ```
//!
//! Invariants: `count` is the length of the array and at most `max_items`; a key's pages are numbered without gaps; all
//! but the highest are full or `short`; only the highest takes new items, and not when it is `short`.
//!
//! Buckets that were written by hand have no `control` until they are adopted, see [`super::adopt`].

use bson::DateTime;
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::item::Item;
use crate::command::document::{as_whole_number, get, put};
use crate::pattern::shapes::BucketShape;

/// The version that this build writes and reads.
pub const VERSION: i32 = 1;

/// Paths inside `control`.
pub mod path {
    /// Layout version.
    pub const VERSION: &str = "control.v";
    /// Page number.
    pub const PAGE: &str = "control.page";
    /// Sum of the items' lengths.
    pub const BYTES: &str = "control.bytes";
    /// Least time.
    pub const FROM: &str = "control.from";
    /// Greatest time.
    pub const TO: &str = "control.to";
    /// Whether arithmetic must know of it.
    pub const EXCEPTION: &str = "control.exception";
    /// Whether it was closed before it was full.
    pub const SHORT: &str = "control.short";
    /// Whether times in it do not ascend.
    pub const LATE: &str = "control.late";
}

/// What the planner knows of a key's highest page: everything of the bucket but its items.
#[derive(Clone, Debug)]
pub struct PageFacts {
    /// The bucket's `_id`.
    pub id: RawBson,
    /// Its number.
    pub page: i32,
    /// Items in it.
    pub count: u32,
    /// Bytes of items in it.
    pub bytes: i64,
    /// Greatest time in it.
    pub to: Option<DateTime>,
    /// Whether it was closed before it was full.
    pub short: bool,
}

impl PageFacts {
    /// Reads a bucket, with or without its items. `None` for a document that is no bucket of this layout.
    #[must_use]
    pub fn parse(shape: &BucketShape, bucket: &RawDocument) -> Option<Self> {
        let control = bucket.get_document(BucketShape::CONTROL).ok()?;
        if get(control, "v").and_then(as_whole_number)? != i64::from(VERSION) {
            return None;
        }
        let number = |name| get(control, name).and_then(as_whole_number);
        Some(Self {
            id: get(bucket, "_id")?.into(),
            page: i32::try_from(number("page")?).ok()?,
            count: u32::try_from(get(bucket, shape.count()).and_then(as_whole_number)?).ok()?,
            bytes: number("bytes")?,
            to: get(control, "to").and_then(RawBsonRef::as_datetime),
            short: get(control, "short").is_some(),
        })
    }

    /// Whether no item can be added to it any more.
    #[must_use]
    pub fn is_closed(&self, shape: &BucketShape) -> bool {
        self.short || self.count >= shape.max_items()
    }

    /// Whether an item of that many bytes still has its place in it. An empty page takes an item of any size.
    #[must_use]
    pub fn fits(&self, shape: &BucketShape, bytes: i64) -> bool {
        !self.is_closed(shape) && (self.count == 0 || self.bytes.saturating_add(bytes) <= i64::from(shape.max_bytes()))
    }
}

/// A new page.
#[derive(Clone, Copy, Debug)]
pub struct NewPage<'a> {
    /// The bucket's `_id`.
    pub id: &'a str,
    /// Its number.
    pub page: i32,
    /// Whether an item is older than one before it or than the newest of the page before, or has no time at all.
    pub late: bool,
    /// Whether it takes no more items although it is not full.
    pub short: bool,
}

/// Builds the bucket of some items, all of one key.
#[must_use]
pub fn build(shape: &BucketShape, new: NewPage<'_>, items: &[&Item]) -> RawDocumentBuf {
    let mut bucket = RawDocumentBuf::new();
    bucket.append(cstr!("_id"), new.id);
    let lifted = items.first().map(|item| item.key().lifted()).unwrap_or_default();
    for (field, value) in shape.key().iter().zip(lifted) {
        if let Some(value) = value {
            put(&mut bucket, field, value);
        }
    }
    let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
    put(&mut bucket, shape.count(), whole_number(count));
    let elements: RawArrayBuf = items.iter().map(|item| item.stored()).collect();
    put(&mut bucket, shape.items(), &elements);
    // An item has a time only where the shape has one.
    let times = || items.iter().filter_map(|item| item.time());
    let control = Control {
        page: new.page,
        bytes: sum_of_bytes(items),
        span: times().min().zip(times().max()),
        short: new.short,
        late: new.late,
    };
    bucket.append(cstr!("control"), control.document());
    bucket
}

/// The sum of the items' lengths.
pub(super) fn sum_of_bytes(items: &[&Item]) -> i64 {
    items.iter().map(|item| item.bytes()).fold(0, i64::saturating_add)
}

/// A number that is added up in a bucket: an int32 for as long as it fits. `$inc` widens the sum where it does not, and
/// keeps it an int32 where both are.
pub(super) fn whole_number(number: i64) -> RawBson {
    i32::try_from(number).map_or(RawBson::Int64(number), RawBson::Int32)
}

/// What `control` says of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Control {
    /// The page's number.
    pub(super) page: i32,
    /// Sum of the items' lengths.
    pub(super) bytes: i64,
    /// Least and greatest time; `None` where no item has one.
    pub(super) span: Option<(DateTime, DateTime)>,
    /// Whether it is closed before it is full.
    pub(super) short: bool,
    /// Whether times in it do not ascend.
    pub(super) late: bool,
}

impl Control {
    /// As it is stored.
    pub(super) fn document(&self) -> RawDocumentBuf {
        let mut control = RawDocumentBuf::new();
        control.append(cstr!("v"), VERSION);
        control.append(cstr!("page"), self.page);
        control.append(cstr!("bytes"), whole_number(self.bytes));
        if let Some((from, to)) = self.span {
            control.append(cstr!("from"), from);
            control.append(cstr!("to"), to);
        }
        if self.late || self.short {
            control.append(cstr!("exception"), true);
        }
        if self.short {
            control.append(cstr!("short"), true);
        }
        if self.late {
            control.append(cstr!("late"), true);
        }
        control
    }
}
