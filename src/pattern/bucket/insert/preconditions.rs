//! What a push demands of its page beside room.

use bson::raw::RawDocumentBuf;

use super::item_times::ItemTimes;
use crate::command::document::{array_of, single};
use crate::pattern::bucket::expression::{is_missing, of_field};
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::layout::{PageHeader, path};

/// What decides whether the page becomes late, and what that relies on.
pub(super) fn assumed(items: &[&Item], times: &ItemTimes, page: &PageHeader) -> impl Iterator<Item = RawDocumentBuf> {
    let of_times = assumed_times(items, page).into_iter();
    of_times
        .chain(assumed_mark(times, page))
        .chain(assumed_nonce(times, page))
}

/// What is assumed of the page's `to`, where it depends on that whether the page becomes late. One that is
/// late stays so.
fn assumed_times(items: &[&Item], page: &PageHeader) -> Option<RawDocumentBuf> {
    if page.late || page.has_unknown_before() {
        return None;
    }
    let times = ItemTimes::of(items.iter().copied(), None);
    let first = times.first.filter(|_| times.late == 0)?;
    // What is missing is less than any date.
    let is_late = page.to.is_some_and(|to| first < to);
    let operator = if is_late { "$gt" } else { "$lte" };
    Some(of_field(operator, path::TO, first))
}

/// The mark by which page 0 is known to be marked, where a late item relies on that.
fn assumed_mark(times: &ItemTimes, page: &PageHeader) -> Option<RawDocumentBuf> {
    let mark = match page {
        PageHeader { page: 0, .. } => None,
        PageHeader { late: true, .. } => Some(path::LATE),
        PageHeader { unordered: true, .. } => Some(path::UNORDERED),
        _ => None,
    };
    let mark = mark.filter(|_| times.late > 0)?;
    Some(single("$not", is_missing(mark)))
}

/// That a late item's page, where another is marked for it, is the very one that was looked at: while it is
/// there, so is page 0.
fn assumed_nonce(times: &ItemTimes, page: &PageHeader) -> Option<RawDocumentBuf> {
    let nonce = page.nonce.filter(|_| times.late > 0)?;
    Some(of_field("$eq", path::NONCE, nonce))
}

/// That the page's marks are known, where the page behind it relies on that: an item's new time may have set
/// one since.
pub(super) fn assumed_marks(page: &PageHeader) -> Vec<RawDocumentBuf> {
    let mut marks = vec![(path::LATE, page.late)];
    if page.page > 0 {
        marks.push((path::UNORDERED, page.unordered));
    }
    let known = marks.into_iter().map(|(mark, is_there)| {
        let is_missing = is_missing(mark);
        if is_there {
            single("$not", array_of(&[is_missing]))
        } else {
            is_missing
        }
    });
    known.collect()
}
