//! The preconditions of a push on the page header, in addition to free space.

use bson::raw::RawDocumentBuf;

use super::item_times::ItemTimes;
use crate::command::document::{array_of, single};
use crate::pattern::bucket::expression::{is_missing, of_field};
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::layout::{PageHeader, path};

/// The conditions that decide whether the page becomes late, and those that a late item relies on.
pub(super) fn assumed(items: &[&Item], times: &ItemTimes, page: &PageHeader) -> impl Iterator<Item = RawDocumentBuf> {
    let of_times = assumed_times(items, page).into_iter();
    of_times
        .chain(assumed_mark(times, page))
        .chain(assumed_nonce(times, page))
}

/// The condition on the page's `to`, if it decides whether the page becomes late. A page that is
/// late stays late.
fn assumed_times(items: &[&Item], page: &PageHeader) -> Option<RawDocumentBuf> {
    if page.late || page.has_unknown_before() {
        return None;
    }
    let times = ItemTimes::of(items.iter().copied(), None);
    let first = times.first.filter(|_| times.late == 0)?;
    // A missing value is less than any date.
    let is_late = page.to.is_some_and(|to| first < to);
    let operator = if is_late { "$gt" } else { "$lte" };
    Some(of_field(operator, path::TO, first))
}

/// If a late item relies on a mark that implies the mark on page 0: the condition that the mark is
/// there.
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

/// If a late item relies on a mark on page 0: the condition that the page is the one that was read.
/// While that page exists, page 0 exists.
fn assumed_nonce(times: &ItemTimes, page: &PageHeader) -> Option<RawDocumentBuf> {
    let nonce = page.nonce.filter(|_| times.late > 0)?;
    Some(of_field("$eq", path::NONCE, nonce))
}

/// The condition that the page's marks are as known, because the next page relies on them. A
/// changed time of an item may have set a mark since they were read.
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
