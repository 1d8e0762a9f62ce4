//! The invariants of the pages of one key.

use bson::raw::{RawBsonRef, RawDocument};

use super::{control, items, time, value, whole};
use crate::shape::Shape;

pub(super) fn number(bucket: &RawDocument) -> i64 {
    whole(control(bucket, "page")).unwrap_or(i64::MAX)
}

/// Checks the pages of a key, in the order of their numbers.
pub(super) fn check<'a>(pages: &[&'a RawDocument], shape: &Shape, report: &mut impl FnMut(&'a RawDocument, String)) {
    for (expected, bucket) in (0..).zip(pages) {
        if number(bucket) != expected {
            report(
                bucket,
                format!("page {} stands where page {expected} should", number(bucket)),
            );
        }
    }
    let inner = pages.split_last().map_or(&[][..], |(_, inner)| inner);
    for bucket in inner {
        let length = items(bucket, shape).len();
        if length < shape.max_items && control(bucket, "short").is_none() {
            report(bucket, format!("{length} items, not the highest page and not short"));
        }
    }
    check_announced(pages, shape, report);
    check_late(pages, shape, report);
    check_unordered(pages, shape, report);
}

/// A page was announced by the one before it. An empty one stays only where it has announced another.
fn check_announced<'a>(pages: &[&'a RawDocument], shape: &Shape, report: &mut impl FnMut(&'a RawDocument, String)) {
    for (before, bucket) in pages.iter().zip(pages.iter().skip(1)) {
        let nonce = whole(control(bucket, "nonce"));
        if nonce.is_none_or(|nonce| !announced(before).contains(&nonce)) {
            report(
                bucket,
                format!("its nonce {nonce:?} is not among {:?}", announced(before)),
            );
        }
    }
    if let Some(highest) = pages.last()
        && items(highest, shape).is_empty()
        && announced(highest).is_empty()
    {
        report(highest, "the highest page is empty".to_owned());
    }
}

fn announced(bucket: &RawDocument) -> Vec<i64> {
    let next = control(bucket, "next").and_then(RawBsonRef::as_array);
    let nonces = next.into_iter().flatten().flatten();
    nonces.filter_map(|nonce| whole(Some(nonce))).collect()
}

fn check_late<'a>(pages: &[&'a RawDocument], shape: &Shape, report: &mut impl FnMut(&'a RawDocument, String)) {
    let mut newest = None;
    let mut is_behind_empty = false;
    let mut is_behind_moved = false;
    for bucket in pages {
        let should = is_late(bucket, newest, shape);
        let is = is_marked(bucket, "late");
        // A writer that finds an empty page does not read the pages before it.
        // Nor does one that finds a page whose bounds are no dates any more: `unordered` is set then.
        let is_told = is_behind_moved && is_marked(bucket, "unordered");
        if is != should && !is_told && !(is && (is_behind_empty || shape.items_change)) {
            report(
                bucket,
                format!("control.late should {}be there", if should { "" } else { "not " }),
            );
        }
        is_behind_empty = items(bucket, shape).is_empty();
        if is_behind_empty && is {
            // The next page may have been begun when this one had items: it was not compared with those before.
            newest = None;
        } else if !is_behind_empty {
            // The page behind was begun when they were these.
            let kept = control(bucket, "kept").and_then(RawBsonRef::as_document);
            let own = control(bucket, "to");
            is_behind_moved = kept.is_some() && own.and_then(RawBsonRef::as_datetime).is_none();
            let to = kept.map_or(own, |kept| value(kept, "to"));
            newest = to
                .and_then(RawBsonRef::as_datetime)
                .map(bson::DateTime::timestamp_millis);
        }
    }
}

/// Page 0 is marked if a later page is late, unless it is late itself, and may be marked before there is one;
/// another page is marked if one before it is late.
fn check_unordered<'a>(pages: &[&'a RawDocument], shape: &Shape, report: &mut impl FnMut(&'a RawDocument, String)) {
    let Some((first, others)) = pages.split_first() else {
        return;
    };
    let is_late = |bucket: &RawDocument| is_marked(bucket, "late");
    let is_first_marked = is_marked(first, "unordered");
    if others.iter().any(|bucket| is_late(bucket)) && !is_first_marked && !is_late(first) {
        report(
            first,
            "a page behind it is late, and control.unordered is not there".to_owned(),
        );
    }
    if is_first_marked && shape.time.is_none() {
        report(first, "control.unordered is there, and items have no time".to_owned());
    }
    let mut is_behind_late = is_late(first) && !is_marked(first, "kept");
    for bucket in others {
        let is = is_marked(bucket, "unordered");
        if is != is_behind_late && !(is && shape.items_change) {
            let not = if is_behind_late { "" } else { "not " };
            report(bucket, format!("control.unordered should {not}be there"));
        }
        is_behind_late |= is_late(bucket) && !is_marked(bucket, "kept");
    }
    check_kept(pages, shape, report);
}

/// An item got a time that is out of order. Then the pages that were begun later are marked: all of them, or
/// those from an anchor on. Page 0 records that time bounds have moved.
fn check_kept<'a>(pages: &[&'a RawDocument], shape: &Shape, report: &mut impl FnMut(&'a RawDocument, String)) {
    for (position, bucket) in pages.iter().enumerate() {
        let mark = |mark| is_marked(bucket, mark);
        if !mark("kept") {
            continue;
        }
        if !mark("late") || !shape.items_change {
            report(bucket, "control.kept is there, and it should not be".to_owned());
        }
        if !pages
            .first()
            .is_some_and(|first| is_marked(first, "unsteady") && is_marked(first, "unordered"))
        {
            report(bucket, "its bounds have moved, and page 0 has no mark of it".to_owned());
        }
        let behind = pages.get(position + 1..).unwrap_or_default();
        let is_unordered = |bucket: &&RawDocument| is_marked(bucket, "unordered");
        let anchor = behind.iter().rposition(|bucket| is_marked(bucket, "anchor"));
        let from_anchor = anchor.and_then(|anchor| behind.get(anchor..));
        // A removed page passes its anchor on to the page before it. A late page needs no anchor.
        let is_reported = behind
            .iter()
            .all(|bucket| is_unordered(bucket) || is_marked(bucket, "late"))
            || from_anchor.is_some_and(|pages| pages.iter().all(is_unordered));
        if !is_reported {
            report(bucket, "the pages after it do not report that it is late".to_owned());
        }
    }
}

fn is_marked(bucket: &RawDocument, mark: &str) -> bool {
    control(bucket, mark).is_some()
}

/// Whether an item is older than one before it, or the first older than the newest of the page before, or one
/// has no date.
fn is_late(bucket: &RawDocument, newest_before: Option<i64>, shape: &Shape) -> bool {
    if shape.time.is_none() {
        return false;
    }
    let mut newest = newest_before;
    items(bucket, shape)
        .into_iter()
        .any(|item| match (time(item, shape), newest) {
            (None, _) => true,
            (Some(time), Some(until)) if time < until => true,
            (time, until) => {
                newest = time.max(until);
                false
            }
        })
}
