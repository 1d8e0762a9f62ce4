//! Changes an item's time in place although it belongs on another page, on deployments without transactions.
//!
//! The item's page becomes out of order and its bounds grow, in the same statement. Other pages are marked
//! before: see `docs/decisions/0015-times-change-in-place.md`.

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
use crate::pattern::bucket::layout::{PageHeader, TimeBounds, path};
use crate::pattern::shapes::BucketShape;
use crate::pattern::unsupported::Unsupported;

/// What must be so before an item gets any other time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetimeReadiness {
    /// All of it is.
    Ready,
    /// Page 0 is to be [told](tell_first).
    First,
    /// Page 0, and the highest page [as well](tell_highest).
    FirstAndHighest,
    /// Another page is about to be begun on what is known of the highest by now: to be looked at again.
    NotYet,
    /// The item's page is gone.
    Gone,
}

/// Whether an item of its page has been given another time like that before: then all is told.
#[must_use]
pub fn is_told(found: &LocatedItem) -> bool {
    get(&found.control, "kept").is_some()
}

/// What is to be told, given the key's highest page where it is [not told](is_told) yet. Pages behind one
/// that is late know of it as they are begun.
#[must_use]
pub fn readiness(found: &LocatedItem, highest: Option<&PageHeader>) -> RetimeReadiness {
    if is_told(found) {
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

/// The element of `updates` that lets page 0 tell that a page of its key is late, and that bounds move.
#[must_use]
pub fn tell_first(shape: &BucketShape, key: &Key) -> RawDocumentBuf {
    let mut query = RawDocumentBuf::new();
    key.append_filter(shape, &mut query);
    put(&mut query, path::PAGE, 0);
    let mut marks = single(path::UNORDERED, true);
    put(&mut marks, path::UNSTEADY, true);
    marking(&query, &marks)
}

/// The element of `updates` that lets the highest page tell that one before it is late, unless another is
/// about to be begun behind it.
#[must_use]
pub fn tell_highest(shape: &BucketShape, key: &Key, highest: &PageHeader) -> RawDocumentBuf {
    let mut query = RawDocumentBuf::new();
    key.append_filter(shape, &mut query);
    put(&mut query, path::PAGE, highest.page);
    put(&mut query, "_id", single("$eq", &highest.id));
    if let Some(nonce) = highest.nonce {
        put(&mut query, path::NONCE, nonce);
    }
    put(&mut query, path::NEXT, announced_none());
    marking(&query, &as_anchor())
}

/// The element of `updates` that lets the page before one tell what that page tells, which is to be removed,
/// unless yet another is about to be begun there.
#[must_use]
pub fn tell_before(key: &RawDocument, removed: &PageHeader) -> Option<RawDocumentBuf> {
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
    let mut statement = single("q", query);
    put(&mut statement, "u", single("$set", marks));
    put(&mut statement, "hint", index::PAGE);
    statement
}

fn announced_none() -> RawDocumentBuf {
    let mut none = RawArrayBuf::new();
    none.push(RawBsonRef::Null);
    none.push(RawArrayBuf::new());
    single("$in", &none)
}

/// The element of `updates` that puts `stored`, of whatever time, in the item's place, if its page is still
/// as [`readiness`] took it to be.
///
/// # Errors
/// What of the item cannot be demanded, for a message.
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
        // One that was removed and begun again may be alike, and has not been told.
        None => put(&mut page, path::UNSTEADY, true),
    }
    if get(&found.control, "late").is_some() {
        put(&mut page, path::LATE, true);
    } else if highest.is_some_and(|highest| highest.page == found.page && !highest.anchor) {
        put(&mut page, path::NEXT, announced_none());
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
mod tests {
    use bson::raw::RawBson;
    use bson::rawdoc;

    use super::*;
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    fn found(control: &RawDocument, page: i32) -> LocatedItem {
        LocatedItem {
            bucket: RawBson::Null,
            page,
            count: 3,
            place: 0,
            key: RawDocumentBuf::new(),
            control: control.to_owned(),
            stored: RawDocumentBuf::new(),
            item: RawDocumentBuf::new(),
            all_items: None,
        }
    }

    fn highest(page: i32, next: &[i64], anchor: bool) -> PageHeader {
        PageHeader {
            id: RawBson::Null,
            page,
            count: 3,
            bytes: 1,
            to: None,
            short: false,
            late: false,
            unordered: anchor,
            nonce: Some(1),
            next: next.to_vec(),
            anchor,
        }
    }

    fn check(control: &RawDocument, page: i32, highest: Option<&PageHeader>, expected: RetimeReadiness) {
        let found = found(control, page);
        assert_eq!(readiness(&found, highest), expected, "{control:?}, {highest:?}");
    }

    #[test]
    fn what_is_to_be_told() {
        let nothing = RawDocumentBuf::new();
        let late = single("late", true);
        let kept = single("kept", RawDocumentBuf::new());
        check(&nothing, 2, None, RetimeReadiness::Gone);
        check(&nothing, 2, Some(&highest(1, &[], false)), RetimeReadiness::Gone);
        check(
            &nothing,
            2,
            Some(&highest(5, &[], false)),
            RetimeReadiness::FirstAndHighest,
        );
        check(&nothing, 2, Some(&highest(5, &[], true)), RetimeReadiness::First);
        check(&nothing, 2, Some(&highest(5, &[9], true)), RetimeReadiness::First);
        check(&nothing, 2, Some(&highest(5, &[9], false)), RetimeReadiness::NotYet);
        check(&nothing, 5, Some(&highest(5, &[9], false)), RetimeReadiness::NotYet);
        check(&nothing, 5, Some(&highest(5, &[], false)), RetimeReadiness::First);
        check(&late, 2, Some(&highest(5, &[9], false)), RetimeReadiness::First);
        check(&late, 5, Some(&highest(5, &[9], false)), RetimeReadiness::First);
        check(&kept, 5, Some(&highest(5, &[9], false)), RetimeReadiness::Ready);
    }

    #[test]
    fn a_page_is_to_be_as_it_was_taken_to_be() {
        let options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()]);
        let shape = BucketShape::new(options).unwrap();
        let nothing = RawDocumentBuf::new();
        let bare = || rawdoc! { "control.page": 2, "control.unsteady": true };
        let late = rawdoc! { "control.page": 2, "control.unsteady": true, "control.late": true };
        let unannounced = rawdoc! {
            "control.page": 2, "control.unsteady": true, "control.next": { "$in": [RawBson::Null, []] },
        };
        for (control, highest, expected) in [
            (nothing.clone(), None, bare()),
            (nothing.clone(), Some(highest(5, &[], false)), bare()),
            (nothing.clone(), Some(highest(2, &[], true)), bare()),
            (nothing, Some(highest(2, &[], false)), unannounced),
            (single("late", true), Some(highest(2, &[], false)), late),
            (
                single("nonce", 9_i64),
                None,
                rawdoc! { "control.page": 2, "control.nonce": 9_i64 },
            ),
        ] {
            let found = found(&control, 2);
            let statement = with_any_time(&shape, &found, &found.stored, None, highest.as_ref()).unwrap();
            let query = get(&statement, "q").and_then(RawBsonRef::as_document).unwrap();
            let page = get(query, "$and")
                .and_then(RawBsonRef::as_array)
                .unwrap()
                .get(1)
                .unwrap();
            assert_eq!(
                page.and_then(RawBsonRef::as_document),
                Some(&*expected),
                "{control:?} {highest:?}"
            );
        }
    }
}
