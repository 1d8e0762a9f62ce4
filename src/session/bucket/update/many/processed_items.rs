//! The items and pages that an update of many has processed.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, Hash, RandomState};

use bson::raw::RawBson;

use crate::command::document::single;
use crate::pattern::bucket::insert::unique_scope;
use crate::pattern::bucket::item_lookup::LocatedItem;
use crate::pattern::bucket::key::value_identity;
use crate::pattern::shapes::BucketShape;

/// The items read so far. A unique `_id` identifies an item, also on another page. Without unique `_id`s, a page is
/// processed once.
#[derive(Default)]
pub(super) struct ProcessedItems {
    /// Hashes of the `_id`s and pages, with so many bits that different ones are never equal: an update can
    /// match very many items.
    seen: HashSet<u128>,
    states: [RandomState; 2],
    /// The last page that is in `seen`, and the position of its last item.
    last: Option<(RawBson, usize)>,
}

impl ProcessedItems {
    /// Adds an item. Returns whether it is new.
    pub(super) fn add(&mut self, shape: &BucketShape, found: &LocatedItem) -> bool {
        if let Some(id) = found.id().filter(|_| shape.item_ids().are_indexed()) {
            return self.remember(&("item", unique_scope(shape, &found.key), value_identity(id)));
        }
        if let Some((_, place)) = self.last.as_mut().filter(|(bucket, _)| *bucket == found.bucket) {
            let is_new = *place < found.place;
            *place = found.place.max(*place);
            return is_new;
        }
        let is_new = self.remember(&("page", single("", &found.bucket).into_bytes()));
        if is_new {
            self.last = Some((found.bucket.clone(), found.place));
        }
        is_new
    }

    fn remember(&mut self, name: &impl Hash) -> bool {
        let [high, low] = self.states.each_ref().map(|state| u128::from(state.hash_one(name)));
        self.seen.insert((high << 64) | low)
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
