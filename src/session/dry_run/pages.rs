//! The open pages of keys, as if all observed inserts had been stored in pages.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use lru::LruCache;

use crate::pattern::bucket::insert::KeyBatch;
use crate::pattern::shapes::BucketShape;

/// Keys in the cache. An evicted key begins a new page.
const MAX_KEYS: NonZeroUsize = NonZeroUsize::new(100_000).expect("not zero");

/// A key of a collection, by the shape's namespace and the key's identity.
type PageKey = (String, Vec<u8>);

#[derive(Clone, Copy, Debug, Default)]
struct OpenPage {
    items: u32,
    bytes: i64,
}

#[derive(Debug)]
pub(super) struct OpenPages {
    open: Mutex<LruCache<PageKey, OpenPage>>,
}

impl Default for OpenPages {
    fn default() -> Self {
        // Allocates on demand.
        let mut open = LruCache::unbounded();
        open.resize(MAX_KEYS);
        Self { open: Mutex::new(open) }
    }
}

impl OpenPages {
    /// Adds the pending items of a key. Returns how many pages they begin.
    pub(super) fn place(&self, shape: &BucketShape, group: &KeyBatch) -> u64 {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (shape.namespace().to_string(), group.identity().to_vec());
        let page = open.get_or_insert_mut(place, OpenPage::default);
        let mut begun = 0;
        for item in group.pending().filter_map(|position| group.item(position)) {
            let bytes = page.bytes.saturating_add(item.bytes());
            let fits = page.items > 0 && page.items < shape.max_items() && bytes <= i64::from(shape.max_bytes());
            if fits {
                *page = OpenPage {
                    items: page.items.saturating_add(1),
                    bytes,
                };
            } else {
                begun += 1;
                *page = OpenPage {
                    items: 1,
                    bytes: item.bytes(),
                };
            }
        }
        begun
    }
}
