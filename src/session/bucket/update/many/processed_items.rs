//! The items and pages that an update of many has processed.

use std::collections::HashMap;

use bson::raw::RawBson;

use crate::command::document::single;
use crate::pattern::bucket::item_lookup::LocatedItem;

/// The buckets read so far, each with the position of its last item.
#[derive(Default)]
pub(super) struct ProcessedItems {
    buckets: HashMap<Vec<u8>, usize>,
    last: Option<RawBson>,
}

impl ProcessedItems {
    pub(super) fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    pub(super) fn is_new(&mut self, found: &LocatedItem) -> bool {
        let name = single("", &found.bucket).into_bytes();
        let is_same_bucket = self.last.as_ref() == Some(&found.bucket);
        let before = self.buckets.get(&name).copied();
        let is_new = before.is_none_or(|place| is_same_bucket && place < found.place);
        if is_new {
            self.buckets.insert(name, found.place);
            self.last = Some(found.bucket.clone());
        }
        is_new
    }
}

/// Number of items that left each page. Later items of the page have moved up by that number.
#[derive(Default)]
pub(super) struct Gone {
    of_bucket: HashMap<Vec<u8>, usize>,
}

impl Gone {
    fn name(found: &LocatedItem) -> Vec<u8> {
        single("", &found.bucket).into_bytes()
    }

    /// Corrects the position of an item. Requires that items of a bucket arrive by ascending
    /// position.
    pub(super) fn close_ranks(&self, found: &mut LocatedItem) {
        let gone = self.of_bucket.get(&Self::name(found)).copied().unwrap_or_default();
        found.place = found.place.saturating_sub(gone);
        found.count = found.count.saturating_sub(u32::try_from(gone).unwrap_or(u32::MAX));
    }

    pub(super) fn add(&mut self, found: &LocatedItem) {
        let gone = self.of_bucket.entry(Self::name(found)).or_default();
        *gone = gone.saturating_add(1);
    }
}
