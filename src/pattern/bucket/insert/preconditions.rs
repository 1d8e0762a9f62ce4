//! The preconditions of a push on the page header, in addition to free space.

use bson::raw::{RawBson, RawDocumentBuf};

use super::item_times::ItemTimes;
use crate::command::document::{array_of, single};
use crate::pattern::bucket::expression::{call, is_missing, of_field};
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

/// The conditions that the header after the push is as planned, because the next page relies on it. A changed
/// time of an item may have set a mark since the header was read. A page without marks has the planned
/// greatest time if it does not become late.
pub(super) fn assumed_header(times: &ItemTimes, page: &PageHeader) -> Vec<RawDocumentBuf> {
    let mut marks = vec![(path::LATE, page.late)];
    if page.page > 0 {
        marks.push((path::UNORDERED, page.unordered));
    }
    let mut known: Vec<_> = marks
        .into_iter()
        .map(|(mark, is_there)| {
            let is_missing = is_missing(mark);
            if is_there {
                single("$not", array_of(&[is_missing]))
            } else {
                is_missing
            }
        })
        .collect();
    if page.late || times.late > 0 {
        known.extend(assumed_newest(times, page));
    }
    known
}

/// The condition that the greatest time after the push is as planned: other writers may have added a newer
/// item and deleted another item.
fn assumed_newest(times: &ItemTimes, page: &PageHeader) -> Option<RawDocumentBuf> {
    let to = times.bounds?.to();
    let planned = page
        .newest_with(times.bounds)
        .map_or(RawBson::MaxKey, RawBson::DateTime);
    let newest = of_field("$max", path::TO, to);
    Some(call("$eq", &newest, planned))
}
