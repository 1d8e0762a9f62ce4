//! Changes an item's time in place although it belongs on another page, on deployments without
//! transactions.
//!
//! The same statement marks the item's page late and extends its bounds. Other pages are marked
//! before: see `docs/decisions/0015-times-are-changed-in-place-on-a-standalone.md`.

use bson::DateTime;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::compare_and_set;
use super::plan::Demand;
use super::replacement::in_place;
use crate::command::document::{array_of, get, put, single};
use crate::pattern::bucket::expression::{field, literal, of_field};
use crate::pattern::bucket::index;
use crate::pattern::bucket::item_lookup::LocatedItem;
use crate::pattern::bucket::key::Key;
use crate::pattern::bucket::layout::{NO_REVISION, PageHeader, TimeBounds, path};
use crate::pattern::shapes::BucketShape;
use crate::pattern::unsupported::Unsupported;

/// The marks that are missing before an item can get an arbitrary time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetimeReadiness {
    /// No mark is missing.
    Ready,
    /// Page 0 must be [marked](mark_first).
    First,
    /// Page 0 must be marked, and the highest page [as well](mark_highest).
    FirstAndHighest,
    /// The highest page has a reservation: another page may be begun from the present header. Read
    /// it again later.
    NotYet,
    /// The item's page is gone.
    Gone,
}

/// Whether an item of the page has got another time like this before: then everything is marked.
#[must_use]
pub fn is_marked(found: &LocatedItem) -> bool {
    get(&found.control, "kept").is_some()
}

/// Computes the missing marks. `highest` is the key's highest page. It is needed unless [everything is
/// marked](is_marked). Pages after a late page are marked when they are begun.
#[must_use]
pub fn readiness(found: &LocatedItem, highest: Option<&PageHeader>) -> RetimeReadiness {
    if is_marked(found) {
        return RetimeReadiness::Ready;
    }
    let Some(highest) = highest.filter(|highest| highest.page >= found.page) else {
        return RetimeReadiness::Gone;
    };
    let is_late = get(&found.control, "late").is_some();
    if is_late || highest.anchor {
        RetimeReadiness::First
    } else if !highest.next.is_empty() {
        RetimeReadiness::NotYet
    } else if highest.page == found.page {
        RetimeReadiness::First
    } else {
        RetimeReadiness::FirstAndHighest
    }
}

/// The element of `updates` that marks page 0: a page of the key is late, and bounds may change.
#[must_use]
pub fn mark_first(shape: &BucketShape, key: &Key) -> RawDocumentBuf {
    let mut query = RawDocumentBuf::new();
    key.append_filter(shape, &mut query);
    put(&mut query, path::PAGE, 0);
    let mut marks = single(path::UNORDERED, true);
    put(&mut marks, path::UNSTEADY, true);
    marking(&query, &marks)
}

/// The element of `updates` that marks the highest page as an anchor: a page before it is late.
/// Misses if the page has a reservation.
#[must_use]
pub fn mark_highest(shape: &BucketShape, key: &Key, highest: &PageHeader) -> RawDocumentBuf {
    let mut query = RawDocumentBuf::new();
    key.append_filter(shape, &mut query);
    put(&mut query, path::PAGE, highest.page);
    put(&mut query, "_id", single("$eq", &highest.id));
    if let Some(nonce) = highest.nonce {
        put(&mut query, path::NONCE, nonce);
    }
    put(&mut query, path::NEXT, no_reservation());
    marking(&query, &as_anchor())
}

/// The element of `updates` that marks the page before `removed` as an anchor, because `removed` is
/// one and will be removed. Misses if the page before has another reservation. `None` if `removed`
/// was page 0.
#[must_use]
pub fn mark_before(key: &RawDocument, removed: &PageHeader) -> Option<RawDocumentBuf> {
    let mut query = key.to_owned();
    put(&mut query, path::PAGE, removed.page.checked_sub(1)?);
    let next: RawArrayBuf = [removed.nonce?].into_iter().collect();
    put(&mut query, path::NEXT, single("$eq", &next));
    Some(marking(&query, &as_anchor()))
}

fn as_anchor() -> RawDocumentBuf {
    let mut marks = single(path::UNORDERED, true);
    put(&mut marks, path::ANCHOR, true);
    marks
}

fn marking(query: &RawDocument, marks: &RawDocument) -> RawDocumentBuf {
    let mut values = marks.to_owned();
    put(&mut values, path::REVISION, NO_REVISION);
    let mut statement = single("q", query);
    put(&mut statement, "u", single("$set", &values));
    put(&mut statement, "hint", index::PAGE);
    statement
}

fn no_reservation() -> RawDocumentBuf {
    let mut none = RawArrayBuf::new();
    none.push(RawBsonRef::Null);
    none.push(RawArrayBuf::new());
    single("$in", &none)
}

/// The element of `updates` that replaces the item by `stored`, whatever its time, if the page is
/// still in the state that [`readiness`] was computed from.
///
/// # Errors
/// The part of the item that cannot be compared, for an error message.
pub fn with_any_time(
    shape: &BucketShape,
    found: &LocatedItem,
    stored: &RawDocument,
    time: Option<DateTime>,
    highest: Option<&PageHeader>,
) -> Result<RawDocumentBuf, Unsupported> {
    let mut page = single(path::PAGE, found.page);
    match get(&found.control, "nonce") {
        Some(nonce) => put(&mut page, path::NONCE, nonce),
        // Page 0 has no reservation id to identify it. A page 0 that was removed and begun again
        // may look the same but is not marked.
        None => put(&mut page, path::UNSTEADY, true),
    }
    if get(&found.control, "late").is_some() {
        put(&mut page, path::LATE, true);
    } else if highest.is_some_and(|highest| highest.page == found.page && !highest.anchor) {
        put(&mut page, path::NEXT, no_reservation());
    }
    let filter = compare_and_set::filter(shape, found, Demand::Item, false)?;
    let mut changes = RawDocumentBuf::new();
    if let Some(bounds) = TimeBounds::of([time]) {
        put(
            &mut changes,
            path::FROM,
            of_field("$min", path::FROM, literal(bounds.from())),
        );
        put(&mut changes, path::TO, of_field("$max", path::TO, literal(bounds.to())));
    }
    for mark in [path::EXCEPTION, path::LATE] {
        put(&mut changes, mark, true);
    }
    put(&mut changes, path::REVISION, NO_REVISION);
    let mut bounds = single("from", field(path::FROM));
    put(&mut bounds, "to", field(path::TO));
    put(&mut changes, path::KEPT, of_field("$ifNull", path::KEPT, &bounds));
    let stages = [in_place(shape, found, stored), single("$set", &changes)];
    let mut statement = single("q", single("$and", array_of(&[filter, page])));
    put(&mut statement, "u", array_of(&stages));
    put(&mut statement, "collation", single("locale", "simple"));
    Ok(statement)
}

#[cfg(test)]
mod tests;
