//! Layout version 1: the stored form of a bucket.
//!
//! ```js
//! { _id: "123_1698335223",     // key text, "_", seconds of the first time; any in an adopted bucket
//!   customerId: 123,           // the key, lifted out of the items
//!   count: 2,
//!   history: [ {..}, {..} ],   // the items, at most `max_items`
//!   control: {
//!     v: 1, page: 0,           // layout version; page number among the pages of the key, from 0
//!     bytes: 173,              // sum of the items' BSON lengths at insertion
//!     from: .., to: ..,        // time bounds, if items have a time: see `TimeBounds`
//!     exception: true,         // set with `short` or `late`: position arithmetic needs the page
//!     short: true,             // closed before it was full
//!     late: true,              // times not ascending, or older than the page before, or not a date
//!     unordered: true,         // an earlier page is late; on page 0: a later page is late or may become so
//!     revision: [ .. ],        // of an open page, or 0: see `Revision`
//!     nonce: 5L,               // not on page 0: id of this page's reservation on the page before
//!     next: [ 9L ],            // ids of the reservations of later pages, begun or not
//!     pushes: [ .. ],          // the newest pushes of retryable commands, for their retries
//!     changed: 3L,             // position of the item that a findAndModify changed, for its retry
//!     moved: { count, own, replaced }, // a change that a change stream shows: see `super::change_stream`
//!     kept: { from, to },      // time bounds before an item got a time of another page
//!     unsteady: true,          // on page 0: time bounds of some page of the key change or may change
//!     anchor: true } }         // not on page 0: the page was marked unordered after it was begun
//! ```
//!
//! Invariants:
//!
//! * `count` is the length of the array and at most `max_items`.
//! * The pages of a key are numbered without gaps. All but the highest are full or `short`.
//! * Only the highest page takes new items, unless it is `short`.
//! * A page is begun only after the page before it has reserved it in `next`. A page with a
//!   reservation is not removed: see `docs/decisions/0013-pages-are-reserved.md`.
//! * `count` is 0 only if all items were deleted from a page that has a reservation.
//!
//! If no page of a key is late or unordered, the times of its items ascend from the first page to the last.
//! The first and the last page show whether that is so: page 0 is marked before a later page becomes late,
//! and each page begun after a late page is unordered. See
//! `docs/decisions/0003-out-of-order-marks-are-local.md`. When an item gets another time on a
//! standalone, a page that is not the highest becomes late. `kept`, `unsteady` and `anchor` exist
//! for that case: see
//! `docs/decisions/0015-times-are-changed-in-place-on-a-standalone.md`.
//!
//! Hand-written buckets have no `control` until they are adopted, see [`super::adopt`].

mod bounds;
mod page_ids;
mod revision;

use bson::DateTime;
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

pub use self::bounds::TimeBounds;
pub use self::page_ids::PageIds;
pub(super) use self::revision::NO_REVISION;
pub use self::revision::Revision;
use super::item::Item;
use crate::command::document::{as_whole_number, get, put};
use crate::pattern::shapes::BucketShape;

/// The most bytes of a page, if its size is known: 1 KiB less than the most of a document, for changes of the
/// page header.
pub(super) const MAX_SIZE: i64 = (16 << 20) - 1024;
/// The field in `control` for the size of a page. It is not stored: a query adds it.
pub(super) const SIZE: &str = "size";
/// The field in `control` for push records.
pub(super) const PUSHES: &str = "pushes";
/// Bytes of an array element beside its value: its type and its position.
const ELEMENT_BYTES: i64 = 16;

/// The version that this build writes and reads. A later layout must set `control.revision` of the pages that it takes
/// over to another value: a push at a revision does not look at the version.
pub const VERSION: i32 = 1;

/// Paths inside `control`.
pub mod path {
    /// Layout version.
    pub const VERSION: &str = "control.v";
    /// Page number.
    pub const PAGE: &str = "control.page";
    /// Sum of the items' lengths at insertion: decides whether another item fits on the page.
    pub const BYTES: &str = "control.bytes";
    /// Lower bound of the times.
    pub const FROM: &str = "control.from";
    /// Upper bound of the times.
    pub const TO: &str = "control.to";
    /// Whether position arithmetic must take the page into account.
    pub const EXCEPTION: &str = "control.exception";
    /// Whether the page was closed before it was full.
    pub const SHORT: &str = "control.short";
    /// Whether the times on the page do not ascend, or not from the page before.
    pub const LATE: &str = "control.late";
    /// Whether another page of the key is late.
    pub const UNORDERED: &str = "control.unordered";
    /// Id of the page's reservation on the page before.
    pub const NONCE: &str = "control.nonce";
    /// Ids of the reservations that the page records.
    pub const NEXT: &str = "control.next";
    /// Time bounds of the page before an item on it got a time that belongs to another page.
    pub const KEPT: &str = "control.kept";
    /// Whether time bounds of some page of the key change.
    pub const UNSTEADY: &str = "control.unsteady";
    /// Whether the page was marked unordered after it was begun.
    pub const ANCHOR: &str = "control.anchor";
    /// The page's revision, see [`super::Revision`].
    pub const REVISION: &str = "control.revision";
    /// The newest pushes of retryable commands, see [`crate::pattern::bucket::insert::RetryNumber`].
    pub const PUSHES: &str = "control.pushes";
    /// Position of the item that a `findAndModify` last changed or claimed. mongod answers a retry
    /// with the whole changed bucket, so the position identifies the item. Any other number only
    /// makes the statement change something.
    pub const CHANGED: &str = "control.changed";
}

/// The page header of a key's head page: all of the bucket that the planner needs, without the
/// items.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "marks of a page, which are there or not each by itself"
)]
pub struct PageHeader {
    /// The bucket's `_id`.
    pub id: RawBson,
    /// The page number.
    pub page: i32,
    /// Number of items on the page.
    pub count: u32,
    /// Sum of the items' lengths in bytes.
    pub bytes: i64,
    /// The greatest time on the page. `None` if an item has no date, and if there are no items.
    pub to: Option<DateTime>,
    /// Whether the page was closed before it was full.
    pub short: bool,
    /// Whether the page is marked late.
    pub late: bool,
    /// Whether the page is marked unordered.
    pub unordered: bool,
    /// Id of the page's reservation. `None` for page 0.
    pub nonce: Option<i64>,
    /// Ids of the reservations that the page records.
    pub next: Vec<i64>,
    /// Whether the page was marked unordered after it was begun. Such a page is the lowest that
    /// records a late page before it.
    pub anchor: bool,
    /// The size of the page in bytes. `None`: it was not read.
    pub size: Option<i64>,
    /// The page's revision, if it has one.
    pub revision: Option<Revision>,
    /// The `_id`s that the page can have at its revision. `None`: unknown. Not stored.
    pub ids: Option<PageIds>,
    /// The number of next pushes that only demand room, because another proxy has pushed to the page. Not stored.
    pub contended: u32,
}

impl PageHeader {
    /// The fields of `control` that a header is read from.
    pub(super) const FIELDS: [&str; 11] = [
        "v",
        "page",
        "bytes",
        "to",
        "short",
        "late",
        "unordered",
        "revision",
        "nonce",
        "next",
        "anchor",
    ];

    /// Reads the header of a bucket, with or without its items. `None` if the document is not a
    /// bucket of this layout version.
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
            size: number(SIZE),
            revision: get(control, "revision").and_then(Revision::parse),
            ids: None,
            contended: 0,
        })
    }

    /// The time that an appended item must not be older than, or the page becomes late. On an empty
    /// page after page 0 that time is unknown, so any item counts as older.
    #[must_use]
    pub fn newest(&self) -> Option<DateTime> {
        if self.has_unknown_before() {
            Some(DateTime::MAX)
        } else {
            self.to
        }
    }

    /// The greatest time after items with these bounds are added. `None` if an item has no date.
    #[must_use]
    pub(super) fn newest_with(&self, more: Option<TimeBounds>) -> Option<DateTime> {
        let is_open = self.count > 0 && self.to.is_none();
        let more = more.and_then(TimeBounds::newest).filter(|_| !is_open)?;
        self.to.max(Some(more))
    }

    /// Whether the newest time is recorded only on the pages before.
    #[must_use]
    pub fn has_unknown_before(&self) -> bool {
        self.count == 0 && self.page > 0
    }

    /// Whether a page begun after this one is unordered. The mark on page 0 is about later pages
    /// and does not count.
    #[must_use]
    pub fn makes_unordered(&self) -> bool {
        self.late || (self.page > 0 && self.unordered)
    }

    /// Whether page 0 of the key is known to be marked: page 0 is marked before another page
    /// becomes late.
    #[must_use]
    pub fn is_first_marked(&self) -> bool {
        self.late || self.unordered
    }

    /// Whether the page before must take over the mark before this page is removed.
    #[must_use]
    pub fn marks_later_pages(&self) -> bool {
        self.anchor && self.page > 0
    }

    /// Whether the page has space for an item of `bytes` bytes, as far as its size is known.
    #[must_use]
    pub(super) fn has_space(&self, bytes: i64) -> bool {
        self.count == 0 || element_bytes(bytes) <= self.space()
    }

    /// The bytes that items may add to the page, as far as its size is known.
    #[must_use]
    pub(super) fn space(&self) -> i64 {
        self.size.map_or(i64::MAX, |size| MAX_SIZE.saturating_sub(size))
    }

    /// The header after the page has recorded this reservation.
    #[must_use]
    pub(super) fn with_reservation(mut self, nonce: Option<i64>) -> Self {
        self.next.extend(nonce);
        self
    }

    /// Whether no more items can be added to the page.
    #[must_use]
    pub fn is_closed(&self, shape: &BucketShape) -> bool {
        self.short || self.count >= shape.max_items()
    }

    /// Whether an item of `bytes` bytes fits on the page. An empty page takes an item of any size.
    #[must_use]
    pub fn fits(&self, shape: &BucketShape, bytes: i64) -> bool {
        !self.is_closed(shape) && (self.count == 0 || self.bytes.saturating_add(bytes) <= i64::from(shape.max_bytes()))
    }
}

/// The reservation ids in `control.next`.
fn nonces(next: Option<RawBsonRef<'_>>) -> Vec<i64> {
    let array = next.and_then(RawBsonRef::as_array).into_iter().flatten().flatten();
    array.filter_map(as_whole_number).collect()
}

/// A new page.
#[derive(Clone, Copy, Debug)]
pub struct NewPage<'a> {
    /// The bucket's `_id`.
    pub id: &'a str,
    /// The page number.
    pub page: i32,
    /// Whether an item is older than an item before it or than the newest item of the page before,
    /// or has no date.
    pub late: bool,
    /// Whether the page takes no more items although it is not full.
    pub short: bool,
    /// Whether an earlier page is late. For page 0: whether a later page will be.
    pub unordered: bool,
    /// Id of the page's reservation on the page before.
    pub nonce: Option<i64>,
    /// Id of the reservation that the page records for the next page.
    pub next: Option<i64>,
    /// The page's revision. `None` if pushes must not name one.
    pub revision: Option<Revision>,
}

/// Builds the bucket of these items, which must all have the same key.
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
        revision: new.revision,
    };
    bucket.append(cstr!("control"), control.document());
    bucket
}

/// The bytes that an item of `bytes` bytes adds to its page.
pub(super) fn element_bytes(bytes: i64) -> i64 {
    bytes.saturating_add(ELEMENT_BYTES)
}

/// The bytes that the items add to their page.
pub(super) fn sum_of_element_bytes(items: &[&Item]) -> i64 {
    let bytes = items.iter().map(|item| element_bytes(item.bytes()));
    bytes.fold(0, i64::saturating_add)
}

/// The sum of the items' lengths in bytes.
pub(super) fn sum_of_bytes(items: &[&Item]) -> i64 {
    items.iter().map(|item| item.bytes()).fold(0, i64::saturating_add)
}

/// A sum stored in a bucket: an int32 while it fits. `$inc` does the same: the sum of two int32
/// widens to int64 only on overflow.
pub(super) fn whole_number(number: i64) -> RawBson {
    i32::try_from(number).map_or(RawBson::Int64(number), RawBson::Int32)
}

/// The `control` document of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Control {
    /// The page number.
    pub(super) page: i32,
    /// Sum of the items' lengths in bytes.
    pub(super) bytes: i64,
    /// The time bounds. `None` if the page is empty or the shape has no time.
    pub(super) bounds: Option<TimeBounds>,
    /// Whether the page is closed before it is full.
    pub(super) short: bool,
    /// Whether the times on the page do not ascend, or not from the page before.
    pub(super) late: bool,
    /// Whether another page is late.
    pub(super) unordered: bool,
    /// Id of the page's reservation on the page before.
    pub(super) nonce: Option<i64>,
    /// Id of the reservation that the page records.
    pub(super) next: Option<i64>,
    /// The page's revision.
    pub(super) revision: Option<Revision>,
}

impl Control {
    /// The document as it is stored.
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
        put(&mut control, "revision", revision::of_new_page(self.revision));
        control
    }
}
