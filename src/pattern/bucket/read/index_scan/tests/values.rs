use bson::{Bson, Document, bson, doc};

use super::*;
use crate::pattern::bucket::read::index_scan::value_scan::{NextValue, ValueScan};

fn by_status(direction: i32) -> Vec<StoredIndex> {
    indexes(&[rawdoc! { "control.v": 1, "history.status": direction, "history.at": 1 }])
}

fn bucket(statuses: &[Option<Bson>]) -> RawDocumentBuf {
    let items: Vec<Document> = statuses
        .iter()
        .map(|status| status.clone().map_or(doc! {}, |status| doc! { "status": status }))
        .collect();
    let count = i32::try_from(items.len()).unwrap();
    let bucket = doc! { "control": { "v": 1, "page": 0 }, "count": count, "history": items };
    RawDocumentBuf::try_from(&bucket).unwrap()
}

fn next(direction: i32, buckets: &[RawDocumentBuf], behind: Option<&str>) -> NextValue {
    let (shape, indexes) = (shape(), by_status(direction));
    let scan = ValueScan::of(&shape, "status", &indexes).unwrap();
    let documents = buckets.iter().map(|bucket| &**bucket);
    scan.next(documents, behind.map(RawBsonRef::String), buckets.is_empty())
}

fn texts(texts: &[&str]) -> RawDocumentBuf {
    let statuses: Vec<Option<Bson>> = texts.iter().map(|text| Some(bson!(text))).collect();
    bucket(&statuses)
}

fn value(text: &str) -> NextValue {
    NextValue::Value(text.into())
}

#[test]
fn a_scan_needs_an_index_that_begins_with_the_field() {
    let shape = shape();
    let indexes = prefixed();
    for path in ["at", "status"] {
        assert!(ValueScan::of(&shape, path, &indexes).is_some(), "{path}");
    }
    for path in ["k", "kind", "status.0", "_id"] {
        assert!(ValueScan::of(&shape, path, &indexes).is_none(), "{path}");
    }
    // An index of an earlier version is not read backward.
    let unprefixed = super::indexes(&[rawdoc! { "history.status": 1 }]);
    assert!(ValueScan::of(&shape, "status", &unprefixed).is_none());
}

#[test]
fn the_first_query_reads_the_whole_index_and_others_begin_before_a_value() {
    let shape = shape();
    let projection = rawdoc! { "control.v": 1, "control.page": 1, "count": 1, "history.status": 1 };
    for direction in [1, -1] {
        let indexes = by_status(direction);
        let key = indexes[0].key().to_owned();
        let scan = ValueScan::of(&shape, "status", &indexes).unwrap();
        assert_eq!(scan.is_ascending(), direction < 0);
        let first = rawdoc! {
            "find": "c",
            "hint": key.clone(),
            "filter": { "control.v": { "$gte": 1, "$lte": 1 } },
            "sort": { "history.status": -direction },
            "projection": projection.clone(),
            "limit": 1_i64,
            "singleBatch": true,
        };
        assert_eq!(scan.query("c", None, 1), first);
        let next = rawdoc! {
            "find": "c",
            "hint": key,
            "max": { "control.v": 1, "history.status": "b", "history.at": RawBson::MinKey },
            "sort": { "control.v": -1 },
            "projection": projection.clone(),
            "limit": 32_i64,
            "singleBatch": true,
        };
        assert_eq!(scan.query("c", Some(RawBsonRef::String("b")), 32), next);
    }
}

#[test]
fn the_next_value_is_the_nearest_one_behind_the_last() {
    let items = [texts(&["b", "d", "a", "c"])];
    assert_eq!(next(1, &items, None), value("d"));
    assert_eq!(next(1, &items, Some("d")), value("c"));
    assert_eq!(next(-1, &items, None), value("a"));
    assert_eq!(next(-1, &items, Some("a")), value("b"));
}

#[test]
fn the_scan_ends_where_no_bucket_follows() {
    assert_eq!(next(1, &[], Some("a")), NextValue::End);
    assert_eq!(next(1, &[bucket(&[])], Some("a")), NextValue::OnlyEmptied);
    assert_eq!(next(1, &[bucket(&[]), texts(&["a"])], Some("b")), value("a"));
}

#[test]
fn values_that_the_index_does_not_show_are_not_comparable() {
    let odd = [
        None,
        Some(Bson::Null),
        Some(bson!(["a"])),
        Some(bson!({ "x": 1 })),
        Some(Bson::Undefined),
    ];
    for odd in odd {
        let found = next(1, &[bucket(std::slice::from_ref(&odd))], None);
        assert_eq!(found, NextValue::NotComparable, "{odd:?}");
    }
    // No item is behind the value: the page has changed.
    assert_eq!(next(1, &[texts(&["c"])], Some("b")), NextValue::NotComparable);
    assert_eq!(next(1, &[rawdoc! { "x": 1 }], None), NextValue::NotComparable);
    // A missing field comes last, so a value before it is known.
    assert_eq!(next(1, &[bucket(&[None, Some(bson!("a"))])], None), value("a"));
}
