use bson::raw::{RawBson, RawDocumentBuf};
use bson::{Bson, DateTime, doc, rawdoc};
use proptest::prelude::*;

use super::*;
use crate::pattern::bucket::layout::path;
use crate::pattern::shapes::{BucketOptions, ItemIds, NamespacePattern};

mod misfits;

fn options() -> BucketOptions {
    BucketOptions {
        time: Some("at".to_owned()),
        max_items: 3,
        rename: [("quantity".to_owned(), "qty".to_owned())].into(),
        item_ids: ItemIds::Stored,
        ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
    }
}

fn shape() -> BucketShape {
    BucketShape::new(options()).unwrap()
}

fn at(millis: i64) -> DateTime {
    DateTime::from_millis(millis)
}

/// A hand-written bucket with an item for each of these times.
fn by_hand(id: &str, key: i32, times: &[i64]) -> RawDocumentBuf {
    let items = times.iter().map(|time| RawBson::Document(rawdoc! { "at": at(*time) }));
    let items: bson::raw::RawArrayBuf = items.collect();
    let count = i32::try_from(times.len()).unwrap();
    rawdoc! { "_id": id, "k": key, "count": count, "history": items }
}

/// The statements for all buckets, each as the `_id` of its query and its `$set`, with the
/// reservation as `next`.
fn statements(shape: &BucketShape, documents: &[RawDocumentBuf]) -> Vec<(String, bson::Document)> {
    let mut scan = AdoptionScan::new(shape);
    let mut found = Vec::new();
    for document in documents {
        let DocumentKind::ByHand(adoption) = scan.look_at(document).unwrap() else {
            continue;
        };
        for statement in adoption.statements {
            let statement = bson::Document::try_from(statement).unwrap();
            assert!(statement.get_bool("upsert").unwrap());
            let id = statement.get_document("q").unwrap().get_document("_id").unwrap();
            let change = statement.get_document("u").unwrap();
            assert_eq!(change.get_document("$setOnInsert").unwrap(), &doc! { "_id": false });
            let id = id.get_str("$eq").unwrap().to_owned();
            let mut set = change.get_document("$set").cloned().unwrap_or_default();
            if let Ok(reserved) = change.get_document("$addToSet") {
                set.insert("next", reserved.get(path::NEXT).unwrap());
            }
            found.push((id, set));
        }
    }
    found
}

fn close() -> bson::Document {
    let mut close = doc! { "control.exception": true, "control.short": true, "control.revision": 0 };
    close.extend(reserve());
    close
}

fn reserve() -> bson::Document {
    doc! { "next": 0_i64 }
}

fn control(page: i32, bytes: i32, span: (i64, i64)) -> bson::Document {
    let mut control = doc! { "v": 1, "page": page, "bytes": bytes, "from": at(span.0), "to": at(span.1) };
    if page > 0 {
        control.insert("nonce", 0_i64);
    }
    control.insert("revision", 0);
    control
}

#[test]
fn the_buckets_of_a_key_are_numbered_and_closed_behind() {
    let documents = [
        by_hand("1_0", 1, &[0, 1, 2]),
        by_hand("1_3", 1, &[3, 4]),
        by_hand("1_5", 1, &[5]),
        by_hand("2_0", 2, &[0]),
    ];
    let expected = [
        ("1_0", doc! { "control": control(0, 3 * 17, (0, 2)) }),
        ("1_0", reserve()),
        ("1_3", doc! { "control": control(1, 2 * 17, (3, 4)) }),
        ("1_3", close()),
        ("1_5", doc! { "control": control(2, 17, (5, 5)) }),
        ("2_0", doc! { "control": control(0, 17, (0, 0)) }),
    ]
    .map(|(id, set)| (id.to_owned(), set));
    assert_eq!(statements(&shape(), &documents), expected);
}

#[test]
fn adopted_buckets_get_numbers_after_existing_pages() {
    let mut page = by_hand("p", 1, &[7, 8]);
    page.append(
        bson::raw::cstr!("control"),
        rawdoc! { "v": 1, "page": 0, "bytes": 34, "from": at(7), "to": at(8) },
    );
    let mut late = control(1, 17, (5, 5));
    late.remove("nonce");
    late.remove("revision");
    late.extend(doc! { "exception": true, "late": true, "nonce": 0_i64, "revision": 0 });
    let mut behind = control(2, 17, (9, 9));
    behind.remove("nonce");
    behind.remove("revision");
    behind.extend(doc! { "unordered": true, "nonce": 0_i64, "revision": 0 });
    let expected = [
        ("p", close()),
        // Before a page becomes late.
        ("p", doc! { "control.unordered": true }),
        ("1_5", doc! { "control": late }),
        ("1_5", close()),
        ("1_9", doc! { "control": behind }),
    ]
    .map(|(id, set)| (id.to_owned(), set));
    let documents = [page, by_hand("1_5", 1, &[5]), by_hand("1_9", 1, &[9])];
    assert_eq!(statements(&shape(), &documents), expected);
}

#[test]
fn empty_bucket_does_not_hide_earlier_buckets() {
    let mut page = by_hand("p", 1, &[7, 8, 9]);
    page.append(
        bson::raw::cstr!("control"),
        rawdoc! { "v": 1, "page": 0, "bytes": 51, "from": at(7), "to": at(9) },
    );
    let statements = statements(&shape(), &[page, by_hand("1", 1, &[]), by_hand("2", 1, &[5])]);
    let (_, last) = statements.last().unwrap();
    assert!(last.get_document("control").unwrap().get_bool("late").unwrap());
}

/// The only statement for a bucket: its query and its update.
fn adopted(options: BucketOptions, document: &RawDocumentBuf) -> (bson::Document, bson::Document) {
    let shape = BucketShape::new(options).unwrap();
    let DocumentKind::ByHand(adoption) = AdoptionScan::new(&shape).look_at(document).unwrap() else {
        panic!("a page");
    };
    let [statement] = <[_; 1]>::try_from(adoption.statements).unwrap();
    let statement = bson::Document::try_from(statement).unwrap();
    let part = |name| statement.get_document(name).unwrap().clone();
    (part("q"), part("u"))
}

#[test]
fn adoption_statement_requires_the_observed_bucket_and_repairs_its_header() {
    let items = rawdoc! { "k": 1, "x": 1 };
    let document = rawdoc! { "_id": 5, "k": 1, "count": 7.5, "history": [items, { "k": 1.0, "qty": 2 }] };
    let options = BucketOptions {
        time: None,
        ..options()
    };
    let (query, change) = adopted(options, &document);
    let demanded = doc! {
        "_id": { "$eq": 5 }, "control": { "$exists": false }, "count": { "$eq": 7.5 }, "history": { "$size": 2_i64 },
    };
    assert_eq!(query, demanded);
    // The `k` of the first item is lifted, which leaves 12 bytes. The `k` of the second item has
    // another type and stays.
    let control = doc! { "v": 1, "page": 0, "bytes": 12 + 25, "revision": 0 };
    let expected = doc! {
        "$set": { "control": control, "count": 2 },
        "$unset": { "history.0.k": true },
        "$setOnInsert": { "_id": false },
    };
    assert_eq!(change, expected);
}

#[test]
fn empty_buckets_have_no_bounds_and_those_of_items_without_a_date_are_open() {
    let (_, change) = adopted(options(), &by_hand("1", 1, &[]));
    let empty = doc! { "control": { "v": 1, "page": 0, "bytes": 0, "revision": 0 } };
    assert_eq!(change.get_document("$set").unwrap(), &empty);
    let undated = rawdoc! { "_id": "1", "count": 1, "history": [{ "at": "noon" }] };
    let (_, change) = adopted(options(), &undated);
    let bounds = doc! { "v": 1, "page": 0, "bytes": 18, "from": Bson::MinKey, "to": Bson::MaxKey };
    let late = bounds
        .into_iter()
        .chain(doc! { "exception": true, "late": true, "revision": 0 });
    let late: bson::Document = late.collect();
    assert_eq!(change.get_document("$set").unwrap(), &doc! { "control": late });
}

proptest! {
    /// An adopted bucket is a page of the layout, even if an earlier run was interrupted.
    #[test]
    fn adopted_bucket_is_a_page(
        buckets in prop::collection::vec(prop::collection::vec(0_i64..20, 0..4), 1..6),
        broken_off in 0_usize..12,
    ) {
        let shape = shape();
        let mut documents: Vec<RawDocumentBuf> = buckets
            .iter()
            .enumerate()
            .map(|(number, times)| by_hand(&number.to_string(), 1, times))
            .collect();
        let statements = statements(&shape, &documents);
        for statement in &statements[..broken_off.min(statements.len())] {
            execute(&mut documents, std::slice::from_ref(statement));
            let mut controls = documents.iter().filter_map(|document| document.get_document("control").ok());
            let is = |control: &bson::raw::RawDocument, mark| control.get(mark).unwrap().is_some();
            let first = controls.clone().find(|control| control.get_i32("page").unwrap() == 0);
            let is_marked = first.is_some_and(|first| is(first, "late") || is(first, "unordered"));
            prop_assert!(is_marked || !controls.any(|control| is(control, "late")), "{documents:?}");
        }
        let rest = self::statements(&shape, &documents);
        execute(&mut documents, &rest);
        let mut scan = AdoptionScan::new(&shape);
        for document in &documents {
            let found = scan.look_at(document);
            prop_assert!(matches!(found, Ok(DocumentKind::Page)), "{found:?} in {documents:?}");
        }
    }
}

/// Applies `$set`s as mongod would.
fn execute(documents: &mut [RawDocumentBuf], statements: &[(String, bson::Document)]) {
    for (id, set) in statements {
        let document = documents
            .iter_mut()
            .find(|document| document.get_str("_id").is_ok_and(|own| own == id));
        let document = document.unwrap();
        let mut changed = bson::Document::try_from(&*document).unwrap();
        for (path, value) in set {
            match path.split_once('.') {
                None if path == "next" => {
                    let control = changed.get_document_mut("control").unwrap();
                    control.insert("next", vec![value.clone()])
                }
                None => changed.insert(path, value.clone()),
                Some((outer, inner)) => changed.get_document_mut(outer).unwrap().insert(inner, value.clone()),
            };
        }
        *document = RawDocumentBuf::try_from(&changed).unwrap();
    }
}
