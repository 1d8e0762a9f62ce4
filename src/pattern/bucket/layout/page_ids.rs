//! The `_id`s of the items that a page can have, as far as this proxy knows them.
//!
//! A unique index does not compare items of one page, and a push at a revision does not look for an `_id` on the page.
//! So the proxy records the `_id`s of pages that it has begun, and of its pushes to them. Deletions are not recorded:
//! the page has some of these `_id`s, and no other one while its revision is known.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::key::value_identity;

/// The most `_id`s that are recorded for a page, four bytes each. The cache of head pages has room for them in its
/// estimate of an entry.
const MOST: usize = 32;

/// Hashes of `_id`s. Values that MongoDB compares as equal have the same hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageIds(Vec<u32>);

impl PageIds {
    /// The `_id`s of a page with these items. `None`: they are too many, or an item has none.
    pub(in crate::pattern::bucket) fn of(items: &[&Item]) -> Option<Self> {
        Self(Vec::new()).with(items)
    }

    /// The `_id`s after these items are added.
    pub(in crate::pattern::bucket) fn with(&self, items: &[&Item]) -> Option<Self> {
        let count = self.0.len().saturating_add(items.len());
        let added = (count <= MOST).then(|| hashes(items))??;
        Some(Self([self.0.as_slice(), &added].concat()))
    }

    /// Whether the page can have the `_id` of one of these items.
    pub(in crate::pattern::bucket) fn may_contain(&self, items: &[&Item]) -> bool {
        hashes(items).is_none_or(|hashes| hashes.iter().any(|hash| self.0.contains(hash)))
    }
}

fn hashes(items: &[&Item]) -> Option<Vec<u32>> {
    items.iter().map(|item| hash(item)).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "half of the hash is enough: a collision costs a slower push"
)]
fn hash(item: &Item) -> Option<u32> {
    let mut hasher = DefaultHasher::new();
    value_identity(item.id()?.as_raw_bson_ref()).hash(&mut hasher);
    Some(hasher.finish() as u32)
}

#[cfg(test)]
mod tests {
    use bson::raw::RawDocument;
    use bson::rawdoc;

    use super::*;
    use crate::pattern::bucket::item::FixedMint;
    use crate::pattern::shapes::{BucketOptions, BucketShape, ItemIds, NamespacePattern};

    fn item(document: &RawDocument) -> Item {
        let options = BucketOptions {
            item_ids: ItemIds::Unique,
            ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
        };
        Item::prepare(&BucketShape::new(options).unwrap(), 0, document, &mut FixedMint).unwrap()
    }

    #[test]
    fn equal_ids_are_found_whatever_their_type() {
        let [one, equal, other] = [
            rawdoc! { "_id": { "a": 7 }, "k": 1 },
            rawdoc! { "_id": { "a": 7.0 }, "k": 1 },
            rawdoc! { "_id": { "a": "7" }, "k": 1 },
        ]
        .map(|document| item(&document));
        let ids = PageIds::of(&[&one]).unwrap();
        assert!(ids.may_contain(&[&other, &equal]));
        assert!(!ids.may_contain(&[&other]));
        let ids = ids.with(&[&other]).unwrap();
        assert!(ids.may_contain(&[&other]) && ids.may_contain(&[&equal]));
    }

    #[test]
    fn the_ids_of_a_page_with_many_items_are_not_recorded() {
        let one = item(&rawdoc! { "_id": 1, "k": 1 });
        let ids = PageIds::of(&[&one; MOST]).unwrap();
        assert_eq!(ids.with(&[&one]), None);
        assert_eq!(PageIds::of(&[&one; MOST + 1]), None);
    }
}
