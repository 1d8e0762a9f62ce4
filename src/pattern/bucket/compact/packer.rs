//! Packs the pages of a key.

use bson::DateTime;
use bson::raw::{RawDocument, RawDocumentBuf, cstr};

use crate::command::document::get;
use crate::pattern::bucket::insert::{ItemTimes, PushRecords};
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::item_index::SphereLocations;
use crate::pattern::bucket::key::{Key, same_bytes};
use crate::pattern::bucket::layout::{NewPage, TimeBounds, build};
use crate::pattern::bucket::read::bucket::Bucket;
use crate::pattern::shapes::BucketShape;

/// A document that is not a page of this layout version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadablePage;

/// Clock and reservation ids, passed in to keep the packer pure.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// The current time.
    pub now: DateTime,
    /// Returns a number that no proxy has used before.
    pub nonce: fn() -> i64,
}

/// A packed page.
#[derive(Clone, Debug)]
pub struct Packed {
    /// The bucket.
    pub document: RawDocumentBuf,
    base: String,
    page: i32,
    tries: u32,
}

impl Packed {
    /// Gives the page another name, because another page has this one.
    pub fn take_another_name(&mut self) {
        self.tries = self.tries.saturating_add(1);
        let mut renamed = RawDocumentBuf::new();
        renamed.append(cstr!("_id"), name(&self.base, self.page, self.tries));
        for (field, value) in self.document.iter().flatten().skip(1) {
            renamed.append(field, value);
        }
        self.document = renamed;
    }
}

/// Different keys may have the same text, and several pages of a key may begin within one second.
fn name(base: &str, page: i32, tries: u32) -> String {
    match tries {
        0 => base.to_owned(),
        1 => format!("{base}_{page}"),
        _ => format!("{base}_{page}_{tries}"),
    }
}

/// Packs the items of one key. Takes pages in order, or items that are not on pages yet. Returns
/// packed pages as soon as they are full, in order. Page 0 comes last, because its mark depends on
/// all other pages.
pub struct Packer<'a> {
    shape: &'a BucketShape,
    given: Given,
    key: Key,
    identity: Vec<u8>,
    open: Vec<Item>,
    bytes: i64,
    locations: SphereLocations,
    /// The number of the page that is being filled.
    page: i32,
    /// The newest time on the page before.
    newest: Option<DateTime>,
    /// The id of the reservation on the page before.
    reserved: Option<i64>,
    /// The base of the name of the page before.
    base: String,
    /// The newest push records of the pages.
    pushes: PushRecords,
    first: Option<PackedFirstPage>,
    /// Whether an earlier page is late.
    is_behind_late: bool,
    /// Whether a page after page 0 is late.
    is_first_to_be_marked: bool,
}

/// Page 0, held back because its mark depends on later pages.
struct PackedFirstPage {
    items: Vec<Item>,
    base: String,
    late: bool,
    short: bool,
    next: Option<i64>,
}

impl<'a> Packer<'a> {
    /// A packer for the key of a bucket.
    ///
    /// # Errors
    /// The bucket does not store its key as a page does.
    pub fn new(shape: &'a BucketShape, given: Given, bucket: &RawDocument) -> Result<Self, UnreadablePage> {
        let key = Key::of(shape, bucket).map_err(|_| UnreadablePage)?;
        // A key field that an item does not store itself has the bucket's value in every bit.
        let is_as_lifted =
            shape
                .key()
                .iter()
                .zip(key.lifted())
                .all(|(field, lifted)| match (get(bucket, field), lifted) {
                    (None, None) => true,
                    (Some(value), Some(lifted)) => same_bytes(value, lifted.as_raw_bson_ref()),
                    _ => false,
                });
        if !is_as_lifted {
            return Err(UnreadablePage);
        }
        Ok(Self::of_key(shape, given, key))
    }

    /// A packer for a key of items.
    #[must_use]
    pub fn of_key(shape: &'a BucketShape, given: Given, key: Key) -> Self {
        Self {
            shape,
            given,
            identity: key.identity(),
            key,
            open: Vec::new(),
            bytes: 0,
            locations: SphereLocations::default(),
            page: 0,
            newest: None,
            reserved: None,
            base: String::new(),
            pushes: PushRecords::default(),
            first: None,
            is_behind_late: false,
            is_first_to_be_marked: false,
        }
    }

    /// Keeps items apart that the `2dsphere` indexes of the collection do not accept on one page. `locations`
    /// are those of an empty page.
    #[must_use]
    pub fn with_locations(mut self, locations: SphereLocations) -> Self {
        self.locations = locations;
        self
    }

    /// The [`Key::identity`] of the key.
    #[must_use]
    pub fn identity(&self) -> &[u8] {
        &self.identity
    }

    /// The key of the items.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Takes the items of the key's next page. Returns the packed pages that are full.
    ///
    /// # Errors
    /// The document is not a page.
    pub fn take(&mut self, bucket: &RawDocument) -> Result<Vec<Packed>, UnreadablePage> {
        self.pushes.add_page(bucket);
        let bucket = Bucket::open(self.shape, bucket).ok_or(UnreadablePage)?;
        let mut full = Vec::new();
        let mut taken = 0_u64;
        for stored in bucket.stored() {
            taken = taken.saturating_add(1);
            let item = Item::of_stored(self.shape, &self.key, &self.identity, stored);
            full.extend(self.add(item));
        }
        // Elements that are not documents would be lost.
        if taken == bucket.count {
            Ok(full)
        } else {
            Err(UnreadablePage)
        }
    }

    /// Takes an item of the key. Returns the packed page if it is full.
    pub fn add(&mut self, item: Item) -> Option<Packed> {
        let full = if self.has_room_for(&item) {
            None
        } else {
            self.close(true)
        };
        self.bytes = self.bytes.saturating_add(item.bytes());
        self.locations.add(item.stored());
        self.open.push(item);
        full
    }

    /// The remaining pages: the last, then page 0. The last page of the key has the push records.
    #[must_use]
    pub fn finish(mut self) -> Vec<Packed> {
        let pushes = std::mem::take(&mut self.pushes);
        let mut left = self.remaining();
        if let Some(last) = left.first_mut() {
            last.document = pushes.add_to(&last.document);
        }
        left
    }

    fn remaining(&mut self) -> Vec<Packed> {
        let mut left = Vec::new();
        if !self.open.is_empty() {
            left.extend(self.close(false));
        }
        let Some(first) = self.first.take() else { return left };
        let new = NewPage {
            id: &first.base,
            page: 0,
            late: first.late,
            short: first.short,
            unordered: self.is_first_to_be_marked,
            nonce: None,
            next: first.next,
            revision: None,
        };
        let items: Vec<&Item> = first.items.iter().collect();
        let document = build(self.shape, new, &items);
        left.push(Packed {
            document,
            base: first.base,
            page: 0,
            tries: 0,
        });
        left
    }

    fn has_room_for(&self, item: &Item) -> bool {
        let count = u32::try_from(self.open.len()).unwrap_or(u32::MAX);
        let bytes = self.bytes.saturating_add(item.bytes());
        let fits = count < self.shape.max_items() && bytes <= i64::from(self.shape.max_bytes());
        count == 0 || (fits && self.locations.accept(item.stored()))
    }

    /// Ends the open page. Returns nothing for page 0, which is held back.
    fn close(&mut self, has_more: bool) -> Option<Packed> {
        let items = std::mem::take(&mut self.open);
        self.bytes = 0;
        self.locations.clear();
        let times = self.shape.time().map(|_| ItemTimes::of(items.iter(), self.newest));
        let times = times.unwrap_or_default();
        self.newest = times.bounds.and_then(TimeBounds::newest);
        let late = times.late > 0;
        let short = has_more && u32::try_from(items.len()).is_ok_and(|count| count < self.shape.max_items());
        let next = has_more.then(|| (self.given.nonce)());
        let nonce = std::mem::replace(&mut self.reserved, next);
        let unordered = self.is_behind_late;
        self.is_behind_late |= late;
        let base = self.base_of(items.first());
        let used_before = std::mem::replace(&mut self.base, base.clone()) == base;
        let page = self.page;
        self.page = page.saturating_add(1);
        if page == 0 {
            self.first = Some(PackedFirstPage {
                items,
                base,
                late,
                short,
                next,
            });
            return None;
        }
        self.is_first_to_be_marked |= late;
        let tries = u32::from(used_before);
        let new = NewPage {
            id: &name(&base, page, tries),
            page,
            late,
            short,
            unordered,
            nonce,
            next,
            revision: None,
        };
        let items: Vec<&Item> = items.iter().collect();
        let document = build(self.shape, new, &items);
        Some(Packed {
            document,
            base,
            page,
            tries,
        })
    }

    fn base_of(&self, first: Option<&Item>) -> String {
        let time = first.and_then(Item::time).unwrap_or(self.given.now);
        format!("{}_{}", self.key.text(), time.timestamp_millis().div_euclid(1000))
    }
}
