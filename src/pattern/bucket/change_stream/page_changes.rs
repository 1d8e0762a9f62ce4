//! The items that differ between two versions of a page.

use std::collections::{HashMap, HashSet};

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use crate::command::document::get;
use crate::pattern::bucket::item_decoder::ItemDecoder;
use crate::pattern::bucket::key::value_identity;
use crate::pattern::bucket::projection::Projection;
use crate::pattern::bucket::read::bucket::Bucket;
use crate::pattern::shapes::BucketShape;

/// An item of a page.
#[derive(Clone, Debug)]
pub(super) struct PageItem {
    /// The `_id`.
    pub(super) id: RawBson,
    /// The item as the application knows it.
    pub(super) item: RawDocumentBuf,
}

/// A difference between two versions of a page.
#[derive(Clone, Debug)]
pub(super) enum PageChange {
    /// The item is only on the new page.
    Added(PageItem),
    /// The item is on both pages and was changed. `position` is that on the new page.
    Changed {
        before: RawDocumentBuf,
        after: PageItem,
        position: usize,
    },
    /// The item is only on the old page.
    Removed(PageItem),
}

/// The differences: removed items in their order, then the others in theirs. `None` stands for no page.
/// `computed_nan`: the [positions](super::update_description::computed_nan) of items that are changed although
/// they do not differ.
pub(super) fn page_changes(
    shape: &BucketShape,
    before: Option<&RawDocument>,
    after: Option<&RawDocument>,
    computed_nan: &HashSet<usize>,
) -> Vec<PageChange> {
    let (before, after) = (stored(shape, before), stored(shape, after));
    let place = |items: &[Stored<'_>]| -> HashMap<Vec<u8>, usize> {
        let ids = items.iter().enumerate();
        ids.map(|(place, item)| (value_identity(item.id), place)).collect()
    };
    let (places_before, places_after) = (place(&before.items), place(&after.items));
    let mut changes = Vec::new();
    for item in &before.items {
        if !places_after.contains_key(&value_identity(item.id)) {
            changes.push(PageChange::Removed(before.decoded(shape, item)));
        }
    }
    for (position, item) in after.items.iter().enumerate() {
        let former = places_before.get(&value_identity(item.id)).copied();
        // After a deletion, the positions in mongod's description are those of other items.
        let is_computed_nan = former == Some(position) && computed_nan.contains(&position);
        match former.and_then(|place| before.items.get(place)) {
            None => changes.push(PageChange::Added(after.decoded(shape, item))),
            Some(earlier) if is_computed_nan || earlier.document.as_bytes() != item.document.as_bytes() => {
                changes.push(PageChange::Changed {
                    before: before.decoded(shape, earlier).item,
                    after: after.decoded(shape, item),
                    position,
                });
            }
            Some(_) => {}
        }
    }
    changes
}

/// The image of a document if that is a page. Hand-written buckets have no `control` until they are adopted.
pub(super) fn page<'a>(shape: &BucketShape, image: Option<&'a RawDocument>) -> Option<&'a RawDocument> {
    image.filter(|image| match get(image, BucketShape::CONTROL) {
        Some(_) => Bucket::open(shape, image).is_some_and(|bucket| bucket.has_items()),
        None => is_bucket(shape, image),
    })
}

/// Whether a document has the fields of a bucket of the shape, and no other ones.
pub(super) fn is_bucket(shape: &BucketShape, document: &RawDocument) -> bool {
    let own = ["_id", BucketShape::CONTROL, shape.items(), shape.count()];
    let is_known = |name: &str| own.contains(&name) || shape.key().iter().any(|field| field == name);
    let has_items = get(document, shape.items()).is_some_and(|items| items.as_array().is_some());
    has_items && document.iter().flatten().all(|(name, _)| is_known(name.as_str()))
}

/// The stored items of a page.
struct StoredItems<'a> {
    page: Option<&'a RawDocument>,
    items: Vec<Stored<'a>>,
}

#[derive(Clone, Copy)]
struct Stored<'a> {
    id: RawBsonRef<'a>,
    document: &'a RawDocument,
}

fn stored<'a>(shape: &BucketShape, page: Option<&'a RawDocument>) -> StoredItems<'a> {
    let array = page.and_then(|page| get(page, shape.items())?.as_array());
    let documents = array
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(RawBsonRef::as_document);
    let items = documents.filter_map(|document| {
        let id = get(document, "_id")?;
        Some(Stored { id, document })
    });
    StoredItems {
        page,
        items: items.collect(),
    }
}

impl StoredItems<'_> {
    fn decoded(&self, shape: &BucketShape, item: &Stored<'_>) -> PageItem {
        let mut bytes = Vec::new();
        if let Some(page) = self.page {
            ItemDecoder::new(shape, &Projection::All, page).append(item.document, &mut bytes);
        }
        // The decoder writes whole documents.
        let decoded = RawDocumentBuf::from_bytes(bytes).unwrap_or_default();
        PageItem {
            id: item.id.into(),
            item: without_repeated_fields(decoded),
        }
    }
}

/// The item with the last one of equal fields. mongod 6.0.5 computes an image after an update by a pipeline
/// with such fields, if the update changed their order.
fn without_repeated_fields(item: RawDocumentBuf) -> RawDocumentBuf {
    let fields: Vec<_> = item.iter().flatten().collect();
    let last: HashMap<_, _> = fields
        .iter()
        .zip(0..)
        .map(|((name, _), place)| (*name, place))
        .collect();
    if last.len() == fields.len() {
        return item;
    }
    let kept = fields
        .iter()
        .zip(0..)
        .filter(|((name, _), place)| last.get(name) == Some(place));
    kept.map(|(field, _)| *field).collect()
}

#[cfg(test)]
mod tests {
    use bson::raw::cstr;
    use bson::rawdoc;

    use super::*;
    use crate::command::document::array_of;
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    #[test]
    fn documents_of_another_layout_are_no_buckets() {
        let namespace = NamespacePattern::parse("d.c").unwrap();
        let shape = BucketShape::new(BucketOptions::new(namespace, vec!["k".to_owned()])).unwrap();
        let check = |document: &RawDocument, expected: bool| {
            assert_eq!(is_bucket(&shape, document), expected, "{document:?}");
        };
        check(
            &rawdoc! { "_id": "1_0", "k": 1, "count": 0, "history": [], "control": {} },
            true,
        );
        check(&rawdoc! { "_id": 1, "count": 0, "history": [] }, true);
        check(&rawdoc! { "_id": 1, "k": 1 }, false);
        check(&rawdoc! { "_id": 1, "k": 1, "history": "long" }, false);
        check(
            &rawdoc! { "_id": "1_0", "k": 1, "j": 2, "count": 0, "history": [], "control": {} },
            false,
        );
    }

    #[test]
    fn computed_nan_is_of_the_item_at_the_same_position() {
        let namespace = NamespacePattern::parse("d.c").unwrap();
        let shape = BucketShape::new(BucketOptions::new(namespace, vec!["k".to_owned()])).unwrap();
        let page = |ids: &[i32]| {
            let items = ids.iter().map(|id| rawdoc! { "_id": *id, "n": f64::NAN });
            let items = array_of(&items.collect::<Vec<_>>());
            rawdoc! { "_id": "1_0", "k": 1, "count": 3, "history": items, "control": {} }
        };
        let changed = |before: &[i32], after: &[i32]| {
            let computed_nan = HashSet::from([1]);
            let changes = page_changes(&shape, Some(&page(before)), Some(&page(after)), &computed_nan);
            let is_changed = |change: &&PageChange| matches!(change, PageChange::Changed { .. });
            changes.iter().filter(is_changed).count()
        };
        assert_eq!(changed(&[1, 2, 3], &[1, 2, 3]), 1);
        assert_eq!(changed(&[1, 2, 3], &[2, 3]), 0);
        assert_eq!(changed(&[1, 2, 3], &[1, 2]), 1);
    }

    #[test]
    fn last_one_of_equal_fields_is_kept() {
        let mut item = rawdoc! { "_id": 1, "a": 1, "b": 2 };
        item.append(cstr!("a"), 3);
        assert_eq!(without_repeated_fields(item), rawdoc! { "_id": 1, "b": 2, "a": 3 });
    }
}
