//! Finds items that an ordered insert stored after a refused one, to remove them.
//!
//! They are identified by their bytes. Of two items with the same bytes either may be removed: the collection
//! is the same.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::delete::take_out;
use super::item::Item;
use super::layout::PageHeader;
use crate::command::document::{get, single};
use crate::pattern::shapes::BucketShape;

/// The condition on the page that an item was put on.
#[must_use]
pub fn on_page(page: &RawBson) -> RawDocumentBuf {
    single("_id", single("$eq", page))
}

/// The condition on the pages of some items of one key, wherever they lie by now.
#[must_use]
pub fn on_any_page(shape: &BucketShape, items: &[&Item]) -> RawDocumentBuf {
    let mut condition = RawDocumentBuf::new();
    if let Some(item) = items.first() {
        item.key().append_filter(shape, &mut condition);
    }
    let holds: RawArrayBuf = items
        .iter()
        .map(|item| single(shape.items(), single("$eq", item.stored())))
        .collect();
    condition.append(bson::raw::cstr!("$or"), holds);
    condition
}

/// The elements of `updates` that take those of some items which lie on a page out of it, each with the
/// item's position among these. One statement an item, from the last place on, so that none changes where
/// another finds its item. `None` for what is no page of this layout.
#[must_use]
pub fn take_back(shape: &BucketShape, page: &RawDocument, items: &[&Item]) -> Option<Vec<(usize, RawDocumentBuf)>> {
    let facts = PageHeader::parse(shape, page)?;
    let stored = get(page, shape.items())?.as_array()?;
    let mut left: Vec<(usize, &Item)> = items.iter().copied().enumerate().collect();
    let stored: Vec<&RawDocument> = stored
        .into_iter()
        .flatten()
        .filter_map(RawBsonRef::as_document)
        .collect();
    let mut statements = Vec::new();
    for (place, element) in stored.iter().enumerate().rev() {
        // From behind, as they were put there.
        let found = left
            .iter()
            .rposition(|(_, item)| item.stored().as_bytes() == element.as_bytes());
        if let Some(found) = found {
            let (position, _) = left.remove(found);
            statements.push((position, take_out(shape, &facts, &[(place, element)])));
        }
    }
    Some(statements)
}
