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
    /// The `_id`s of these items. `None`: an item has none.
    pub(in crate::pattern::bucket) fn of(items: &[&Item]) -> Option<Self> {
        items.iter().map(|item| hash(item)).collect::<Option<_>>().map(Self)
    }

    /// The `_id`s to record for a new page with these items. `None`: they are too many, or an item has none.
    pub(in crate::pattern::bucket) fn of_page(items: &[&Item]) -> Option<Self> {
        (items.len() <= MOST).then(|| Self::of(items)).flatten()
    }

    /// The `_id`s to record after these are added. `None`: they are too many.
    pub(in crate::pattern::bucket) fn with(&self, added: &Self) -> Option<Self> {
        let count = self.0.len().saturating_add(added.0.len());
        (count <= MOST).then(|| Self([self.0.as_slice(), &added.0].concat()))
    }

    /// Whether the page can have one of these `_id`s.
    pub(in crate::pattern::bucket) fn may_contain(&self, ids: &Self) -> bool {
        ids.0.iter().any(|hash| self.0.contains(hash))
    }
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
        let of = |items: &[&Item]| PageIds::of(items).unwrap();
        let ids = of(&[&one]);
        assert!(ids.may_contain(&of(&[&other, &equal])));
        assert!(!ids.may_contain(&of(&[&other])));
        let ids = ids.with(&of(&[&other])).unwrap();
        assert!(ids.may_contain(&of(&[&other])) && ids.may_contain(&of(&[&equal])));
    }

    #[test]
    fn the_ids_of_a_page_with_many_items_are_not_recorded() {
        let one = item(&rawdoc! { "_id": 1, "k": 1 });
        let ids = PageIds::of_page(&[&one; MOST]).unwrap();
        assert_eq!(ids.with(&PageIds::of(&[&one]).unwrap()), None);
        assert_eq!(PageIds::of_page(&[&one; MOST + 1]), None);
    }
}
