//! Estimates the size of a collection as it is, and in buckets. Pure.
//!
//! Pages are built from sampled documents as the proxy builds them. The sizes of the shape's own index
//! entries are measured values (`docs/benchmarks.md`, reading, sizes). An application's index that
//! would stay is assumed to keep its size.

use bson::oid::ObjectId;
use bson::raw::RawDocumentBuf;
use bson::{DateTime, Timestamp};

use super::collection_stats::{CollectionStats, Index};
use super::rounding::{count, real, whole};
use super::sample::Sample;
use super::sizes::Sizes;
use crate::command::document::array_of;
use crate::pattern::bucket::item::{IdSource, Item};
use crate::pattern::bucket::layout::{self, NewPage};
use crate::pattern::shapes::BucketShape;

/// Bytes of a page's entries in the indexes on `_id` and page number, and in the indexes on times.
const PAGE_ENTRIES: f64 = 26.0;
const TIME_ENTRIES: f64 = 24.0;
/// Factor by which compressed pages are larger than compressed documents of the same bytes.
const LESS_COMPRESSED: f64 = 1.15;
/// Sampled documents from which pages are built.
const BUILT: usize = 200;

/// The size of a collection, in numbers and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) documents: u64,
    pub(super) entries: u64,
    pub(super) data: u64,
    pub(super) storage: u64,
    pub(super) indexes: u64,
}

impl Cost {
    /// Bytes on disk.
    pub(super) fn on_disk(&self) -> u64 {
        self.storage.saturating_add(self.indexes)
    }
}

/// The cost of the plain collection.
pub(super) fn now(facts: &CollectionStats) -> Cost {
    Cost {
        documents: facts.documents,
        entries: facts.documents.saturating_mul(count(facts.indexes.len())),
        data: facts.data,
        storage: facts.storage,
        indexes: facts.indexes.iter().map(|index| index.bytes).sum(),
    }
}

/// The cost in buckets with `item_ids = "unique"`. `None`: no sampled document can be an item.
pub(super) fn in_buckets(facts: &CollectionStats, sample: &Sample, shape: &BucketShape, sizes: &Sizes) -> Option<Cost> {
    let page = PageBytes::of(sample, shape)?;
    let (documents, pages) = (real(facts.documents), sizes.pages(facts.documents, shape.max_items()));
    let kept: Vec<&Index> = kept(facts, shape).collect();
    let data = documents * page.item + pages * page.own;
    let compressed = if facts.data == 0 {
        1.0
    } else {
        real(facts.storage) / real(facts.data)
    };
    let has_time = shape.time().is_some();
    let of_pages = PAGE_ENTRIES + if has_time { TIME_ENTRIES } else { 0.0 };
    let ids = facts.id_index().map_or(0, |index| index.bytes);
    let of_kept: u64 = kept.iter().map(|index| index.bytes).sum();
    let own = if has_time { 4.0 } else { 2.0 };
    Some(Cost {
        documents: whole(pages),
        // One entry for each page and own index, one for each item's `_id`, and those of the remaining
        // indexes.
        entries: whole(pages * own + documents * (1.0 + real(count(kept.len())))),
        data: whole(data),
        storage: whole(data * (compressed * LESS_COMPRESSED).min(1.0)),
        indexes: whole(pages * of_pages) + ids + of_kept,
    })
}

/// The application's indexes that would remain: those with fields other than key and time, which
/// the shape's own indexes cover.
pub(super) fn kept<'a>(facts: &'a CollectionStats, shape: &'a BucketShape) -> impl Iterator<Item = &'a Index> {
    let is_covered = |field: &String| shape.key().contains(field) || shape.time() == Some(field.as_str());
    facts
        .indexes
        .iter()
        .filter(move |index| index.name != "_id_" && !index.fields.iter().all(is_covered))
}

/// Bytes of an item on a page, and of the page header.
#[derive(Debug)]
struct PageBytes {
    item: f64,
    own: f64,
}

impl PageBytes {
    fn of(sample: &Sample, shape: &BucketShape) -> Option<Self> {
        let prepare = |document: &RawDocumentBuf| Item::prepare(shape, 0, document, &mut Still).ok();
        let items: Vec<Item> = sample.documents.iter().take(BUILT).filter_map(prepare).collect();
        let built = real(count(items.len()));
        if items.is_empty() {
            return None;
        }
        let empty = count(array_of(&[]).as_bytes().len());
        let (mut of_items, mut own) = (0.0, 0.0);
        for item in &items {
            // The page's `_id` contains the first item's time, or the day, in seconds.
            let id = format!("{}_1700000000", item.key().text());
            let new = NewPage {
                id: &id,
                page: 1,
                late: false,
                short: false,
                unordered: false,
                nonce: Some(1),
                next: Some(1),
            };
            let page = count(layout::build(shape, new, &[item]).as_bytes().len());
            let stored = count(item.stored().as_bytes().len());
            let in_array = count(array_of(&[item.stored().to_owned()]).as_bytes().len()) - empty;
            of_items += real(stored) + mean_place(shape.max_items());
            own += real(page - in_array);
        }
        Some(Self {
            item: of_items / built,
            own: own / built,
        })
    }
}

/// Mean bytes of an element's type and name in an array of this length.
fn mean_place(items: u32) -> f64 {
    let digits: f64 = (0..items)
        .map(|place| f64::from(place.checked_ilog10().unwrap_or(0) + 1))
        .sum();
    2.0 + digits / f64::from(items.max(1))
}

/// A constant clock, because only lengths matter.
struct Still;

impl IdSource for Still {
    fn now(&self) -> DateTime {
        DateTime::from_millis(0)
    }

    fn object_id(&mut self) -> ObjectId {
        ObjectId::from_bytes([0; 12])
    }

    fn timestamp(&mut self) -> Timestamp {
        Timestamp { time: 1, increment: 1 }
    }

    fn nonce(&self) -> i64 {
        1
    }
}
