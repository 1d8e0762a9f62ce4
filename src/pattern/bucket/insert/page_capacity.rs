//! Computes how many items fit on a page or into a push.

use super::member::Member;
use crate::pattern::bucket::layout::{PageHeader, element_bytes};
use crate::pattern::shapes::BucketShape;

/// The positions of the `coming` items that fit on a new page of up to `max_bytes`.
pub(super) fn of_page<'a>(
    shape: &BucketShape,
    max_bytes: i64,
    coming: impl Iterator<Item = (usize, &'a Member)>,
) -> Vec<usize> {
    let room = Room {
        max_items: shape.max_items(),
        max_bytes,
        space: i64::MAX,
    };
    within(room, 0, 0, coming)
}

/// The positions of the `coming` items that fit on the open page.
pub(super) fn of_push<'a>(
    shape: &BucketShape,
    page: &PageHeader,
    coming: impl Iterator<Item = (usize, &'a Member)>,
) -> Vec<usize> {
    let room = Room {
        max_items: shape.max_items(),
        max_bytes: shape.max_bytes().into(),
        space: page.space(),
    };
    within(room, page.count, page.bytes, coming)
}

/// Whether the items could be cut into other pages under another configured `max_bytes`.
pub(super) fn depends_on_max_bytes(shape: &BucketShape, members: &[&Member]) -> bool {
    let page = usize::try_from(shape.max_items()).unwrap_or(usize::MAX);
    let bytes = |member: Option<&&Member>| member.map_or(0, |member| member.item.bytes());
    let mut sum = 0_i64;
    members.iter().enumerate().skip(1).any(|(position, member)| {
        // `sum` covers the items up to this one that share a page with it, if this one fills the
        // page.
        sum = sum.saturating_add(member.item.bytes());
        if position == 1 {
            sum = sum.saturating_add(bytes(members.first()));
        }
        if let Some(left) = position.checked_sub(page) {
            sum = sum.saturating_sub(bytes(members.get(left)));
        }
        sum > i64::from(BucketShape::MIN_BYTES)
    })
}

/// The limits of a page.
#[derive(Clone, Copy)]
struct Room {
    max_items: u32,
    max_bytes: i64,
    /// The bytes that items may add to the page's document.
    space: i64,
}

/// An empty page takes an item of any size.
fn within<'a>(
    room: Room,
    mut count: u32,
    mut bytes: i64,
    coming: impl Iterator<Item = (usize, &'a Member)>,
) -> Vec<usize> {
    let mut added = 0_i64;
    let fitting = coming.take_while(|(_, member)| {
        added = added.saturating_add(element_bytes(member.item.bytes()));
        let fits_bytes = bytes.saturating_add(member.item.bytes()) <= room.max_bytes;
        let fits = count == 0 || (fits_bytes && added <= room.space);
        let fits = fits && count < room.max_items;
        count = count.saturating_add(1);
        bytes = bytes.saturating_add(member.item.bytes());
        fits
    });
    fitting.map(|(position, _)| position).collect()
}
