//! How many items go into one page or one push.

use super::group::Member;
use crate::pattern::bucket::layout::PageFacts;
use crate::pattern::shapes::BucketShape;

/// The positions of the items that a new page takes of those that are to come.
pub(super) fn of_page<'a>(shape: &BucketShape, coming: impl Iterator<Item = (usize, &'a Member)>) -> Vec<usize> {
    within(shape, (0, 0), coming)
}

/// The positions of the items that an open page still takes.
pub(super) fn of_push<'a>(
    shape: &BucketShape,
    page: &PageFacts,
    coming: impl Iterator<Item = (usize, &'a Member)>,
) -> Vec<usize> {
    within(shape, (page.count, page.bytes), coming)
}

/// An empty page takes an item of any size.
fn within<'a>(
    shape: &BucketShape,
    (mut count, mut bytes): (u32, i64),
    coming: impl Iterator<Item = (usize, &'a Member)>,
) -> Vec<usize> {
    let fitting = coming.take_while(|(_, member)| {
        let fits = count == 0 || bytes.saturating_add(member.item.bytes()) <= i64::from(shape.max_bytes());
        let fits = fits && count < shape.max_items();
        count = count.saturating_add(1);
        bytes = bytes.saturating_add(member.item.bytes());
        fits
    });
    fitting.map(|(position, _)| position).collect()
}
