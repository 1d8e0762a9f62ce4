//! Documents that are neither pages nor hand-written buckets, and the reasons.

use bson::raw::{RawArrayBuf, RawBson, RawDocumentBuf, cstr};
use bson::{doc, rawdoc};

use super::{at, by_hand, options, shape};
use crate::pattern::bucket::adopt::{AdoptionScan, DocumentKind};
use crate::pattern::shapes::{BucketOptions, BucketShape, ItemIds};

fn refusal(options: BucketOptions, documents: &[RawDocumentBuf]) -> String {
    let shape = BucketShape::new(options).unwrap();
    let mut scan = AdoptionScan::new(&shape);
    let refused: Vec<String> = documents
        .iter()
        .filter_map(|document| scan.look_at(document).err())
        .map(|misfit| misfit.to_string())
        .collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    refused[0].clone()
}

#[track_caller]
fn check_refused(document: &RawDocumentBuf, expected: &str) {
    let refused = refusal(options(), std::slice::from_ref(document));
    assert!(refused.contains(expected), "{refused:?} for {document:?}");
}

#[test]
fn document_that_is_no_bucket_is_refused_with_the_reason() {
    let check = check_refused;
    check(&rawdoc! { "_id": 41, "k": 1 }, "not have the array 'history'");
    check(
        &rawdoc! { "_id": 1, "k": 1, "count": 1, "history": { "0": {} } },
        "not have the array",
    );
    check(
        &rawdoc! { "_id": 1, "k": 1, "count": 2, "history": [{}, 5] },
        "element 1 of its 'history'",
    );
    check(
        &rawdoc! { "_id": 1, "k": 1, "count": 4, "history": [{}, {}, {}, {}] },
        "4 items, but max_items is 3",
    );
    check(
        &rawdoc! { "_id": 1, "k": 1, "history": [] },
        "not have the field 'count'",
    );
    check(
        &rawdoc! { "_id": 1, "k": 1, "count": "1", "history": [{}] },
        "'count' is \"1\"",
    );
    check(
        &rawdoc! { "_id": 1, "k": 1, "name": 1, "count": 0, "history": [] },
        "the field 'name'",
    );
    check(
        &rawdoc! { "_id": 1, "k": 1, "k": 1, "count": 0, "history": [] },
        "the field 'k' twice",
    );
    check(
        &rawdoc! { "_id": 1, "k": [1], "count": 0, "history": [] },
        "type array cannot be a key",
    );
    check(
        &rawdoc! { "_id": 1, "k": 1.0, "count": 0, "history": [] },
        "'k' is of type double",
    );
    check(
        &rawdoc! { "_id": 1, "k": { "a": 1.0 }, "count": 0, "history": [] },
        "types that differ",
    );
    check(
        &rawdoc! { "_id": 1, "k": null, "count": 0, "history": [] },
        "'k' is null",
    );
}

#[test]
fn item_of_another_key_is_refused_with_the_reason() {
    let check = check_refused;
    let of_item = |item: RawDocumentBuf, expected| {
        check(&rawdoc! { "_id": 1, "k": 1, "count": 1, "history": [item] }, expected);
    };
    of_item(rawdoc! { "k": 2 }, "item 0 has a different 'k'");
    of_item(rawdoc! { "k": null }, "item 0 has a different 'k'");
    of_item(rawdoc! { "k": 1, "k": 1 }, "the field 'k' twice");
    of_item(rawdoc! { "quantity": 2 }, "'quantity', which rename stores as 'qty'");
    check(
        &rawdoc! { "_id": 1, "count": 1, "history": [{ "k": 1 }] },
        "item 0 has a different 'k'",
    );
}

#[test]
fn a_control_of_another_kind_and_too_many_bytes_are_refused() {
    let check = check_refused;
    check(
        &rawdoc! { "_id": 1, "k": 1, "control": 1, "count": 0, "history": [] },
        "control is of type int",
    );
    check(
        &rawdoc! { "_id": 1, "k": 1, "control": {}, "count": 0, "history": [] },
        "control has no version",
    );
    check(
        &rawdoc! { "_id": 1, "k": 1, "control": { "v": 2 } },
        "has the version 2",
    );
    let long = "x".repeat(800);
    let large = rawdoc! { "_id": 1, "k": 1, "count": 2, "history": [{ "x": long.as_str() }, { "x": long.as_str() }] };
    let small = BucketOptions {
        max_bytes: 1024,
        ..options()
    };
    assert!(refusal(small, &[large]).contains("max_bytes is 1024"));
}

#[test]
fn adopted_item_ids_are_checked_by_the_id_option() {
    let check = |item_ids, items: [RawDocumentBuf; 2], expected: Option<&str>| {
        let items: RawArrayBuf = items.into_iter().map(RawBson::Document).collect();
        let document = rawdoc! { "_id": 1, "count": 2, "history": items };
        let shape = BucketShape::new(BucketOptions { item_ids, ..options() }).unwrap();
        let found = AdoptionScan::new(&shape).look_at(&document);
        match expected {
            None => assert!(found.is_ok(), "{found:?}"),
            Some(part) => assert!(found.unwrap_err().to_string().contains(part)),
        }
    };
    let both = || [rawdoc! { "_id": 1 }, rawdoc! { "_id": 2 }];
    let same = || [rawdoc! { "_id": 1 }, rawdoc! { "_id": 1.0 }];
    let one = || [rawdoc! { "_id": 1 }, rawdoc! {}];
    let array = || [rawdoc! { "_id": [1] }, rawdoc! {}];
    check(ItemIds::Unique, both(), None);
    check(
        ItemIds::Unique,
        same(),
        Some("item 1 has the same _id 1.0 as an earlier item"),
    );
    check(ItemIds::Unique, one(), Some("item 1 has no _id"));
    check(
        ItemIds::Unique,
        array(),
        Some("item 0 has an _id of the invalid type array"),
    );
    check(ItemIds::Stored, same(), None);
    check(ItemIds::Stored, one(), None);
    check(ItemIds::Dropped, one(), Some("item 0 has an _id"));
    check(ItemIds::Dropped, [rawdoc! {}, rawdoc! {}], None);
}

/// A page with items of these times.
fn page(number: i32, times: &[i64], control: bson::Document) -> RawDocumentBuf {
    let (from, to) = (times.iter().min(), times.iter().max());
    let bytes = i32::try_from(times.len() * 17).unwrap();
    let mut whole = doc! { "v": 1, "page": number, "bytes": bytes };
    whole.extend(from.map(|from| ("from".to_owned(), at(*from).into())));
    whole.extend(to.map(|to| ("to".to_owned(), at(*to).into())));
    whole.extend(control);
    let mut document = by_hand("p", 1, times);
    document.append(cstr!("control"), RawDocumentBuf::try_from(&whole).unwrap());
    document
}

#[test]
fn pages_are_checked_against_the_layout() {
    let fine = || page(0, &[0, 1, 2], doc! {});
    let check = |pages: &[RawDocumentBuf], expected| {
        let refused = refusal(options(), pages);
        assert!(refused.contains(expected), "{refused:?}");
    };
    check(
        &[page(1, &[0], doc! {})],
        "control.page is 1; the next page of its key should be 0",
    );
    check(
        &[fine(), fine()],
        "control.page is 0; the next page of its key should be 1",
    );
    check(&[page(0, &[0], doc! {}), page(1, &[1], doc! {})], "page 0 of its key");
    check(&[page(0, &[0], doc! { "bytes": "5" })], "no number of bytes");
    check(&[page(0, &[0], doc! { "to": at(-1) })], "do not enclose its times");
    check(&[page(0, &[0], doc! { "short": true })], "control.exception");
    check(&[page(0, &[0], doc! { "exception": true })], "control.exception");
    check(&[fine(), page(1, &[1], doc! {})], "not marked late");
    check(&[page(0, &[1, 0], doc! {})], "not marked late");
    let late = || doc! { "exception": true, "late": true };
    check(
        &[page(0, &[0, 2, 1], late()), page(1, &[9], doc! {})],
        "not marked unordered",
    );
    let kept = rawdoc! { "_id": 1, "k": 1, "count": 1, "history": [{ "k": 1 }], "control": { "v": 1 } };
    check(&[kept], "contains 'k', which belongs to the bucket");
    let miscounted = rawdoc! { "_id": 1, "k": 1, "count": 2, "history": [{}], "control": { "v": 1 } };
    check(&[miscounted], "'count' is 2, but it has 1 items");
    let all = [
        fine(),
        page(1, &[0], doc! { "exception": true, "late": true, "short": true }),
        page(2, &[9], doc! { "bytes": 17.0, "page": 2_i64, "unordered": true }),
    ];
    let shape = shape();
    let mut scan = AdoptionScan::new(&shape);
    for page in &all {
        assert!(matches!(scan.look_at(page), Ok(DocumentKind::Page)), "{page:?}");
    }
}

/// An item of the second page got another time in place: the pages from the anchor on are marked.
#[test]
fn pages_record_another_time_from_an_anchor_on() {
    let kept = doc! { "exception": true, "late": true, "kept": { "from": at(3), "to": at(5) } };
    let anchor = doc! { "unordered": true, "anchor": true };
    let pages = |last: bson::Document| {
        [
            page(0, &[0, 1, 2], doc! { "unordered": true, "unsteady": true }),
            page(1, &[3, 90, 5], kept.clone()),
            page(2, &[6, 7, 8], doc! {}),
            page(3, &[9, 10, 11], anchor.clone()),
            page(4, &[12], last),
        ]
    };
    let shape = shape();
    let mut scan = AdoptionScan::new(&shape);
    for page in pages(doc! { "unordered": true }) {
        assert!(matches!(scan.look_at(&page), Ok(DocumentKind::Page)), "{page:?}");
    }
    let refused = refusal(options(), &pages(doc! {}));
    assert!(refused.contains("not marked unordered"), "{refused:?}");
}

#[test]
fn one_misfit_does_not_reject_other_buckets_of_its_key() {
    let two = page(2, &[2], doc! {});
    refusal(
        options(),
        &[page(0, &[0, 0, 0], doc! {}), page(1, &[1], doc! { "to": at(-1) }), two],
    );
}

#[test]
fn skipped_document_does_not_reject_its_neighbours() {
    let shape = shape();
    let mut scan = AdoptionScan::new(&shape);
    let open = page(0, &[0], doc! {});
    assert!(matches!(scan.look_at(&open), Ok(DocumentKind::Page)));
    scan.pass_over(&page(1, &[1], doc! {}));
    assert!(matches!(scan.look_at(&page(2, &[2], doc! {})), Ok(DocumentKind::Page)));
    // Another key follows.
    scan.pass_over(&by_hand("2", 2, &[]));
    scan.look_at(&page(1, &[2], doc! {})).unwrap_err();
}
