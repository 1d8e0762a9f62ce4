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
        size: None,
        revision: None,
        ids: None,
        contended: 0,
    }
}

fn check(control: &RawDocument, page: i32, highest: Option<&PageHeader>, expected: RetimeReadiness) {
    let found = found(control, page);
    assert_eq!(readiness(&found, highest), expected, "{control:?}, {highest:?}");
}

#[test]
fn pages_to_mark_before_a_time_changes() {
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
fn page_is_required_to_be_unchanged() {
    let options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()]);
    let shape = BucketShape::new(options).unwrap();
    let nothing = RawDocumentBuf::new();
    let bare = || rawdoc! { "control.page": 2, "control.unsteady": true };
    let late = rawdoc! { "control.page": 2, "control.unsteady": true, "control.late": true };
    let without_reservation = rawdoc! {
        "control.page": 2, "control.unsteady": true, "control.next": { "$in": [RawBson::Null, []] },
    };
    for (control, highest, expected) in [
        (nothing.clone(), None, bare()),
        (nothing.clone(), Some(highest(5, &[], false)), bare()),
        (nothing.clone(), Some(highest(2, &[], true)), bare()),
        (nothing, Some(highest(2, &[], false)), without_reservation),
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

#[test]
fn pages_are_marked_by_their_numbers() {
    let options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()]);
    let shape = BucketShape::new(options).unwrap();
    let key = Key::of(&shape, &rawdoc! { "k": 5 }).unwrap();
    let page = PageHeader {
        id: "5_9".into(),
        ..highest(5, &[], false)
    };
    let marking = |query: RawDocumentBuf, mut marks: RawDocumentBuf| {
        put(&mut marks, "control.revision", 0);
        rawdoc! { "q": query, "u": { "$set": marks }, "hint": "mongoshape_page" }
    };
    let anchor = || rawdoc! { "control.unordered": true, "control.anchor": true };
    assert_eq!(
        mark_first(&shape, &key),
        marking(
            rawdoc! { "k": { "$eq": 5 }, "control.page": 0 },
            rawdoc! { "control.unordered": true, "control.unsteady": true }
        )
    );
    let without_reservation = rawdoc! { "$in": [RawBson::Null, []] };
    assert_eq!(
        mark_highest(&shape, &key, &page),
        marking(
            rawdoc! {
                "k": { "$eq": 5 }, "control.page": 5, "_id": { "$eq": "5_9" }, "control.nonce": 1_i64,
                "control.next": without_reservation.clone(),
            },
            anchor()
        )
    );
    let without_nonce = PageHeader {
        nonce: None,
        page: 0,
        ..page.clone()
    };
    assert_eq!(
        mark_highest(&shape, &key, &without_nonce),
        marking(
            rawdoc! { "k": { "$eq": 5 }, "control.page": 0, "_id": { "$eq": "5_9" }, "control.next": without_reservation },
            anchor()
        )
    );
    let key = rawdoc! { "k": { "$eq": 5 } };
    assert_eq!(
        mark_before(&key, &page),
        Some(marking(
            rawdoc! { "k": { "$eq": 5 }, "control.page": 4, "control.next": { "$eq": [1_i64] } },
            anchor()
        ))
    );
    assert_eq!(mark_before(&key, &without_nonce), None);
}
