//! Layout version 1: what a bucket looks like in mongod.
//!
//! ```js
//! { _id: "123_1698335223",     // key text, "_", seconds of the first item's time; any in an adopted bucket
//!   customerId: 123,           // the key, lifted out of the items
//!   count: 2,
//!   history: [ {..}, {..} ],   // the items, at most `max_items`
//!   control: {
//!     v: 1, page: 0,           // layout version; the page's number among its key's, from 0
//!     bytes: 173,              // sum of the items' BSON lengths when they were inserted
//!     from: .., to: ..,        // where items have a time: see `Bounds`
//!     exception: true,         // set with `short` or `late`: position arithmetic must know the page
//!     short: true,             // closed before it was full
//!     late: true,              // its times do not ascend, or not from the page before, or one is no date
//!     unordered: true,         // a page before it is late; on page 0: a later page is, or is about to be
//!     nonce: 5L,               // not on page 0: the reservation's id, on the page before
//!     next: [ 9L ],            // reservation ids of the pages after it, begun or not
//!     changed: 3L,             // position of the item that a findAndModify has changed, for its retry
//!     kept: { from, to },      // its bounds before an item on it got a time that belongs elsewhere
//!     unsteady: true,          // on page 0: such bounds of some page of the key change, or are about to
//!     anchor: true } }         // not on page 0: it was marked unordered when page 0 existed
//! ```
//!
//! Invariants: `count` is the length of the array and at most `max_items`; a key's pages are numbered without
//! gaps; all but the highest are full or `short`; only the highest takes new items, and not when it is
//! `short`. A page is begun only when the one before it has announced it in its `next`, and none is removed
//! that has announced one: see `docs/decisions/0013-pages-are-announced.md`. `count` never is 0, but where
//! items were deleted from a page that has announced another.
//!
//! Where no page of a key is late or unordered, the times of its items ascend from the first page to the
//! last. The pages at either end are enough to know that: page 0 is marked before any page behind it becomes
//! late, and each page begun behind a late one is unordered. See `docs/decisions/0003-late-is-local.md`.
//! Where items get other times on a standalone, pages that others follow become late: `kept`, `unsteady` and
//! `anchor` are for that, see `docs/decisions/0015-times-change-in-place.md`.
//!
//! Buckets that were written by hand have no `control` until they are adopted, see [`super::adopt`].

mod bounds;

use bson::DateTime;
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

pub use self::bounds::TimeBounds;
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
    /// Sum of the items' lengths when they were inserted: what decides whether another has its place in the
    /// page.
    pub const BYTES: &str = "control.bytes";
    /// Lower bound of the times.
    pub const FROM: &str = "control.from";
    /// Upper bound of the times.
    pub const TO: &str = "control.to";
    /// Whether arithmetic must know of it.
    pub const EXCEPTION: &str = "control.exception";
    /// Whether it was closed before it was full.
    pub const SHORT: &str = "control.short";
    /// Whether times in it do not ascend.
    pub const LATE: &str = "control.late";
    /// Whether another page of its key is late.
    pub const UNORDERED: &str = "control.unordered";
    /// What it was announced by.
    pub const NONCE: &str = "control.nonce";
    /// What it has announced.
    pub const NEXT: &str = "control.next";
    /// Its bounds before an item on it got a time that belongs elsewhere.
    pub const KEPT: &str = "control.kept";
    /// Whether the bounds of some page of its key move.
    pub const UNSTEADY: &str = "control.unsteady";
    /// Whether it was marked unordered when it was there already.
    pub const ANCHOR: &str = "control.anchor";
    /// The place of the item that a `findAndModify` has changed or claimed last, for one that is sent again:
    /// mongod then answers the whole bucket as it has become. Any other number is there for the change alone.
    pub const CHANGED: &str = "control.changed";
}

/// What the planner knows of a key's highest page: everything of the bucket but its items.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "marks of a page, which are there or not each by itself"
)]
pub struct PageHeader {
    /// The bucket's `_id`.
    pub id: RawBson,
    /// Its number.
    pub page: i32,
    /// Items in it.
    pub count: u32,
    /// Bytes of items in it.
    pub bytes: i64,
    /// Greatest time in it; `None` where an item has no date, and where there is none.
    pub to: Option<DateTime>,
    /// Whether it was closed before it was full.
    pub short: bool,
    /// Whether it is marked late.
    pub late: bool,
    /// Whether it is marked unordered.
    pub unordered: bool,
    /// What it was announced by; `None` of page 0.
    pub nonce: Option<i64>,
    /// What it has announced.
    pub next: Vec<i64>,
    /// Whether it was marked unordered when it was there already: then it is the lowest that tells of a late
    /// page before it.
    pub anchor: bool,
}

impl PageHeader {
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
            late: get(control, "late").is_some(),
            unordered: get(control, "unordered").is_some(),
            nonce: number("nonce"),
            next: nonces(get(control, "next")),
            anchor: get(control, "anchor").is_some(),
        })
    }

    /// What the first item of what comes behind the page's items must not be older than. Where an empty page
    /// has others before it, that is not known, and any item is taken for older.
    #[must_use]
    pub fn newest(&self) -> Option<DateTime> {
        if self.has_unknown_before() {
            Some(DateTime::MAX)
        } else {
            self.to
        }
    }

    /// Whether only the pages before it say what time it goes on from.
    #[must_use]
    pub fn has_unknown_before(&self) -> bool {
        self.count == 0 && self.page > 0
    }

    /// Whether a page begun behind it has a late one before it. What page 0 says of pages behind it is not
    /// meant.
    #[must_use]
    pub fn makes_unordered(&self) -> bool {
        self.late || (self.page > 0 && self.unordered)
    }

    /// Whether the key's page 0 says that not all times of the key ascend: it does before another page
    /// becomes late.
    #[must_use]
    pub fn is_first_marked(&self) -> bool {
        self.late || self.unordered
    }

    /// Whether it must not be removed before the page before it tells what it does.
    #[must_use]
    pub fn tells_for_others(&self) -> bool {
        self.anchor && self.page > 0
    }

    /// The same page once it has announced another.
    #[must_use]
    pub(super) fn announcing(mut self, nonce: Option<i64>) -> Self {
        self.next.extend(nonce);
        self
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

/// What a page has announced.
fn nonces(next: Option<RawBsonRef<'_>>) -> Vec<i64> {
    let array = next.and_then(RawBsonRef::as_array).into_iter().flatten().flatten();
    array.filter_map(as_whole_number).collect()
}

/// A new page.
#[derive(Clone, Copy, Debug)]
pub struct NewPage<'a> {
    /// The bucket's `_id`.
    pub id: &'a str,
    /// Its number.
    pub page: i32,
    /// Whether an item is older than one before it or than the newest of the page before, or has no time at
    /// all.
    pub late: bool,
    /// Whether it takes no more items although it is not full.
    pub short: bool,
    /// Whether a page before it is late; of page 0: whether one behind it will be.
    pub unordered: bool,
    /// What the page before announced it by.
    pub nonce: Option<i64>,
    /// What it announces from its beginning.
    pub next: Option<i64>,
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
    let bounds = shape
        .time()
        .and_then(|_| TimeBounds::of(items.iter().map(|item| item.time())));
    let control = Control {
        page: new.page,
        bytes: sum_of_bytes(items),
        bounds,
        short: new.short,
        late: new.late,
        unordered: new.unordered,
        nonce: new.nonce,
        next: new.next,
    };
    bucket.append(cstr!("control"), control.document());
    bucket
}

/// The sum of the items' lengths.
pub(super) fn sum_of_bytes(items: &[&Item]) -> i64 {
    items.iter().map(|item| item.bytes()).fold(0, i64::saturating_add)
}

/// A number that is added up in a bucket: an int32 for as long as it fits. `$inc` widens the sum where it
/// does not, and keeps it an int32 where both are.
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
    /// Those of the times; `None` where it is empty, and where the shape has no time.
    pub(super) bounds: Option<TimeBounds>,
    /// Whether it is closed before it is full.
    pub(super) short: bool,
    /// Whether times in it do not ascend.
    pub(super) late: bool,
    /// Whether another page is late.
    pub(super) unordered: bool,
    /// What the page before announced it by.
    pub(super) nonce: Option<i64>,
    /// What it has announced.
    pub(super) next: Option<i64>,
}

impl Control {
    /// As it is stored.
    pub(super) fn document(&self) -> RawDocumentBuf {
        let mut control = RawDocumentBuf::new();
        control.append(cstr!("v"), VERSION);
        control.append(cstr!("page"), self.page);
        control.append(cstr!("bytes"), whole_number(self.bytes));
        if let Some(bounds) = self.bounds {
            control.append(cstr!("from"), bounds.from());
            control.append(cstr!("to"), bounds.to());
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
        if self.unordered {
            control.append(cstr!("unordered"), true);
        }
        if let Some(nonce) = self.nonce {
            control.append(cstr!("nonce"), nonce);
        }
        if let Some(next) = self.next {
            let next: RawArrayBuf = [next].into_iter().collect();
            control.append(cstr!("next"), next);
        }
        control
    }
}
