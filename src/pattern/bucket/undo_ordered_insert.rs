//! Finds items that an ordered insert stored after a refused one, to remove them.
//!
//! The items are identified by their bytes. Of two items with the same bytes either may be removed:
//! the result is the same.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::delete::take_out;
use super::item::Item;
use super::layout::PageHeader;
use crate::command::document::{get, single};
use crate::pattern::shapes::BucketShape;

/// The filter for the page on which an item was stored.
#[must_use]
pub fn on_page(page: &RawBson) -> RawDocumentBuf {
    single("_id", single("$eq", page))
}

/// The filter for the pages that contain any of these items of one key.
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

/// The elements of `updates` that remove the items found on a page, each with the item's position
/// in `items`. One statement for each item, in descending position on the page, so that no
/// statement changes the position of an item of a later statement. `None` if the document is not a
/// page of this layout version.
#[must_use]
pub fn take_back(shape: &BucketShape, page: &RawDocument, items: &[&Item]) -> Option<Vec<(usize, RawDocumentBuf)>> {
    let mut facts = PageHeader::parse(shape, page)?;
    let stored = get(page, shape.items())?.as_array()?;
    let mut left: Vec<(usize, &Item)> = items.iter().copied().enumerate().collect();
    let stored: Vec<&RawDocument> = stored
        .into_iter()
        .flatten()
        .filter_map(RawBsonRef::as_document)
        .collect();
    let mut statements = Vec::new();
    for (place, element) in stored.iter().enumerate().rev() {
        // From the end, in the reverse order of insertion.
        let found = left
            .iter()
            .rposition(|(_, item)| item.stored().as_bytes() == element.as_bytes());
        if let Some(found) = found {
            let (position, _) = left.remove(found);
            statements.push((position, take_out(shape, &facts, &[(place, element)])));
            facts.count = facts.count.saturating_sub(1);
        }
    }
    Some(statements)
}
