//! Pages that are built of read documents as `setup --pack` builds them.

use bson::raw::RawDocumentBuf;

use crate::advisor::rounding::{count, real, whole};
use crate::advisor::runs::{IndexRun, Runs};
use crate::command::document::array_of;
use crate::maintenance::compact::given;
use crate::pattern::bucket::compact::Packer;
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::pack;
use crate::pattern::shapes::BucketShape;

/// Built pages, and what they contain on average.
#[derive(Debug)]
pub(super) struct BuiltPages {
    /// The pages in the order in which they are stored, for each run of documents.
    pub(super) runs: Vec<Vec<RawDocumentBuf>>,
    /// Bytes of an item on its page.
    pub(super) of_item: f64,
    /// Bytes of a page without its items.
    pub(super) of_header: f64,
}

impl BuiltPages {
    /// Builds pages. `per_key` is the number of documents of a key. `None`: no document can be an item.
    pub(super) fn of(shape: &BucketShape, runs: &Runs, per_key: f64) -> Option<Self> {
        let mut built = Vec::new();
        for run in &runs.runs {
            let prepare = |document: &RawDocumentBuf| pack::item(shape, document).ok();
            let items: Vec<Item> = run.documents.iter().filter_map(prepare).collect();
            let keys = if runs.are_neighbours {
                whole_keys(items, run)
            } else {
                imagined_keys(items, per_key)
            };
            let pages = keys.into_iter().flat_map(|items| pages_of(shape, items));
            built.push(pages.collect::<Vec<_>>());
        }
        let (mut items, mut in_arrays, mut all) = (0, 0, 0);
        let empty = count(array_of(&[]).as_bytes().len());
        for page in built.iter().flatten() {
            let array = page.get_array(shape.items()).ok()?;
            items += count(array.into_iter().count());
            in_arrays += count(array.as_bytes().len()).saturating_sub(empty);
            all += count(page.as_bytes().len());
        }
        let pages = count(built.iter().map(Vec::len).sum());
        (items > 0).then(|| Self {
            runs: built,
            of_item: real(in_arrays) / real(items),
            of_header: real(all - in_arrays) / real(pages),
        })
    }

    /// All pages, in the order in which they are stored.
    pub(super) fn all(&self) -> impl Iterator<Item = &RawDocumentBuf> + Clone {
        self.runs.iter().flatten()
    }

    /// Number of pages.
    pub(super) fn len(&self) -> usize {
        self.runs.iter().map(Vec::len).sum()
    }
}

/// The items of each key. An incomplete key is left out, unless there is no other.
fn whole_keys(items: Vec<Item>, run: &IndexRun) -> Vec<Vec<Item>> {
    let mut keys: Vec<Vec<Item>> = Vec::new();
    for item in items {
        match keys.last_mut() {
            Some(key) if key.first().is_some_and(|first| first.identity() == item.identity()) => key.push(item),
            _ => keys.push(vec![item]),
        }
    }
    if run.is_cut && keys.len() > 1 {
        keys.pop();
    }
    keys
}

/// Keys of the expected number of items. A sample contains only few items of a key, so similar keys stand for
/// one.
fn imagined_keys(mut items: Vec<Item>, per_key: f64) -> Vec<Vec<Item>> {
    let per_key = usize::try_from(whole(per_key)).unwrap_or(usize::MAX).max(1);
    let mut keys = Vec::new();
    while !items.is_empty() {
        let rest = items.split_off(per_key.min(items.len()));
        keys.push(std::mem::replace(&mut items, rest));
    }
    keys
}

fn pages_of(shape: &BucketShape, mut items: Vec<Item>) -> Vec<RawDocumentBuf> {
    let Some(key) = items.first().map(|item| item.key().clone()) else {
        return Vec::new();
    };
    items.sort_by_key(Item::time);
    let mut packer = Packer::of_key(shape, given(), key);
    let mut pages = Vec::new();
    for item in items {
        pages.extend(packer.add(item));
    }
    pages.extend(packer.finish());
    pages.into_iter().map(|page| page.document).collect()
}
