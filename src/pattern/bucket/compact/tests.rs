use bson::raw::RawDocumentBuf;
use bson::{DateTime, Document, doc, rawdoc};

use super::*;
use crate::pattern::bucket::layout::PageHeader;
use crate::pattern::shapes::{BucketOptions, BucketShape, NamespacePattern};

fn shape(max_items: u32) -> BucketShape {
    let options = BucketOptions {
        time: Some("t".to_owned()),
        max_items,
        ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
    };
    BucketShape::new(options).unwrap()
}

fn given() -> Given {
    use std::sync::atomic::{AtomicI64, Ordering};
    static NONCE: AtomicI64 = AtomicI64::new(1);
    Given {
        now: DateTime::from_millis(77_000),
        nonce: || NONCE.fetch_add(1, Ordering::Relaxed),
    }
}

/// A page with items of these times, some items deleted.
fn page(number: i32, times: &[i64]) -> RawDocumentBuf {
    let items: bson::raw::RawArrayBuf = times
        .iter()
        .map(|time| rawdoc! { "_id": *time, "t": DateTime::from_millis(*time * 1000) })
        .collect();
    let count = i32::try_from(times.len()).unwrap();
    rawdoc! {
        "_id": format!("x{number}"), "k": 7, "count": count, "history": items,
        "control": { "v": 1, "page": number, "bytes": 0, "exception": true, "short": true },
    }
}

fn packed(shape: &BucketShape, pages: &[RawDocumentBuf]) -> Vec<(PageHeader, RawDocumentBuf)> {
    let mut packer = Packer::new(shape, given(), &pages[0]).unwrap();
    let mut made: Vec<Packed> = Vec::new();
    for page in pages {
        made.extend(packer.take(page).unwrap());
    }
    made.extend(packer.finish());
    let mut made: Vec<_> = made
        .into_iter()
        .map(|page| (PageHeader::parse(shape, &page.document).unwrap(), page.document))
        .collect();
    made.sort_by_key(|(facts, _)| facts.page);
    made
}

#[test]
fn pages_are_full_and_reserve_the_next() {
    let shape = shape(3);
    let pages = packed(
        &shape,
        &[page(0, &[1]), page(1, &[]), page(2, &[2, 3, 4]), page(3, &[5, 6, 7])],
    );
    let counts: Vec<u32> = pages.iter().map(|(facts, _)| facts.count).collect();
    assert_eq!(counts, [3, 3, 1]);
    for ((before, _), (behind, _)) in pages.iter().zip(pages.iter().skip(1)) {
        assert_eq!(before.next, [behind.nonce.unwrap()]);
        assert!(!behind.late && !behind.unordered && !behind.short);
    }
    assert!(pages[2].0.next.is_empty());
    let names: Vec<_> = pages.iter().map(|(facts, _)| facts.id.as_str().unwrap()).collect();
    assert_eq!(names, ["7_1", "7_4", "7_7"]);
}

/// A retry of an insert that was executed before the compaction reads them.
#[test]
fn the_last_page_has_the_newest_push_records() {
    let shape = shape(3);
    let with_records = |number: i32, times: &[i64], records: std::ops::Range<i32>| {
        let mut page = Document::try_from(&*page(number, times)).unwrap();
        let records: Vec<_> = records.map(|record| doc! { "r": record }).collect();
        page.get_document_mut("control").unwrap().insert("pushes", records);
        RawDocumentBuf::try_from(&page).unwrap()
    };
    for (pages, last) in [
        (vec![with_records(0, &[1], 0..2)], 0..2),
        (
            vec![with_records(0, &[1, 2, 3], 0..60), with_records(1, &[4], 60..120)],
            20..120,
        ),
    ] {
        let packed = packed(&shape, &pages);
        let records = packed.iter().map(|(_, page)| {
            let control = page.get_document("control").unwrap();
            let records = control.get_array("pushes").into_iter().flatten().flatten();
            records
                .map(|record| record.as_document().unwrap().get_i32("r").unwrap())
                .collect::<Vec<_>>()
        });
        let records: Vec<_> = records.collect();
        let (newest, others) = records.split_last().unwrap();
        assert_eq!(*newest, last.collect::<Vec<_>>());
        assert!(others.iter().all(Vec::is_empty));
    }
}

#[test]
fn the_first_page_records_a_late_one() {
    let shape = shape(2);
    let pages = packed(
        &shape,
        &[page(0, &[1]), page(1, &[5]), page(2, &[9, 8]), page(3, &[10])],
    );
    let marks: Vec<_> = pages.iter().map(|(facts, _)| (facts.late, facts.unordered)).collect();
    assert_eq!(marks, [(false, true), (true, false), (false, true)]);
}

#[test]
fn copy_differs_only_in_generated_fields() {
    let shape = shape(2);
    let pages = [page(0, &[1]), page(1, &[2, 3])];
    let check = |found: &[RawDocumentBuf], same: bool| {
        let mut chain = PageChain::default();
        for (_, expected) in packed(&shape, &pages) {
            chain.expect(&shape, &expected);
        }
        for found in found {
            chain.find(&shape, found);
        }
        assert_eq!(chain.is_same(), same);
    };
    let copy = |pages: &[RawDocumentBuf]| -> Vec<RawDocumentBuf> {
        packed(&shape, pages)
            .into_iter()
            .map(|(_, document)| document)
            .collect()
    };
    let good = copy(&pages);
    check(&good, true);
    check(&good[..1], false);
    // Two copies from different runs do not fit together.
    check(&[good[0].clone(), copy(&pages)[1].clone()], false);
    check(&copy(&[page(0, &[1]), page(1, &[2, 4])]), false);
    check(&copy(&[page(0, &[1]), page(1, &[2, 3, 4])]), false);
}

#[test]
fn a_document_that_is_no_page_is_reported() {
    let shape = shape(2);
    let unlike =
        rawdoc! { "_id": 1, "k": 7.0, "count": 0, "history": [], "control": { "v": 1, "page": 0, "bytes": 0 } };
    assert!(Packer::new(&shape, given(), &unlike).is_err());
    let mut packer = Packer::new(&shape, given(), &page(0, &[1])).unwrap();
    let miscounted = rawdoc! {
        "_id": 1, "k": 7, "count": 2, "history": [{ "_id": 1 }], "control": { "v": 1, "page": 0, "bytes": 0 },
    };
    assert!(packer.take(&miscounted).is_err());
}

#[test]
fn a_validator_marks_a_frozen_collection() {
    let mut options = RawDocumentBuf::new();
    options.append(bson::raw::cstr!("validator"), freeze());
    assert!(is_frozen(&options));
    assert!(!is_frozen(&rawdoc! { "validator": { "x": 1 } }));
    assert!(!is_frozen(&rawdoc! { "validationLevel": "strict" }));
}
