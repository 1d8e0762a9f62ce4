//! The commands that read pages, as mongod gets them.

use bson::rawdoc;

use super::*;
use crate::command::find::Find;
use crate::pattern::shapes::{BucketOptions, NamespacePattern};

const BOTH: [Reach; 2] = [Reach::Bounds, Reach::Conditions];
const MIN: RawBsonRef<'_> = RawBsonRef::MinKey;
const MAX: RawBsonRef<'_> = RawBsonRef::MaxKey;

fn shape() -> BucketShape {
    let options = BucketOptions {
        time: Some("t".to_owned()),
        ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
    };
    BucketShape::new(options).unwrap()
}

fn date(millis: i64) -> DateTime {
    DateTime::from_millis(millis)
}

/// The query for the items of key 1 whose time satisfies a condition.
fn bucket_query(time: &RawDocument, direction: i32) -> BucketQuery {
    let mut filter = rawdoc! { "k": 1 };
    if !time.is_empty() {
        filter.append(cstr!("t"), time);
    }
    let sort = rawdoc! { "t": direction };
    let find = Find {
        filter: Some(&filter),
        sort: Some(&sort),
        ..Find::default()
    };
    BucketQuery::of(&shape(), &find).unwrap()
}

fn joined(one: &RawDocument, other: &RawDocument) -> RawDocumentBuf {
    one.iter().chain(other).flatten().collect()
}

/// Checks a `find` on the pages of key 1. `expected` are its fields after the collection's name.
fn check(reach: Reach, made: impl Fn(&Queries<'_>) -> RawDocumentBuf, expected: &RawDocument) {
    let key = rawdoc! { "k": { "$eq": 1 } };
    let source = BucketSource {
        collection: "c",
        reach,
        has_item_id_index: true,
    };
    let whole = joined(&rawdoc! { "find": "c" }, expected);
    assert_eq!(made(&Queries { source, key: &key }), whole, "{reach:?}");
}

#[test]
fn pages_are_found_by_their_numbers() {
    let shape = shape();
    let items = || rawdoc! { "history": 0 };
    check(
        Reach::Bounds,
        |queries| queries.highest(&shape),
        &rawdoc! {
            "hint": "mongoshape_page", "min": { "k": 1, "control.page": MIN }, "max": { "k": 1, "control.page": MAX },
            "limit": 1_i64, "singleBatch": true, "sort": { "control.page": -1 }, "projection": items(),
        },
    );
    check(
        Reach::Conditions,
        |queries| queries.highest(&shape),
        &rawdoc! {
            "hint": "mongoshape_page", "filter": { "k": { "$eq": 1 } },
            "limit": 1_i64, "singleBatch": true, "sort": { "control.page": -1 }, "projection": items(),
        },
    );
    check(
        Reach::Bounds,
        |queries| queries.first(&shape),
        &rawdoc! {
            "hint": "mongoshape_page", "min": { "k": 1, "control.page": MIN }, "max": { "k": 1, "control.page": 1_i64 },
            "limit": 1_i64, "singleBatch": true, "projection": items(),
        },
    );
    check(
        Reach::Conditions,
        |queries| queries.first(&shape),
        &rawdoc! {
            "hint": "mongoshape_page", "filter": { "k": { "$eq": 1 }, "control.page": { "$lt": 1_i64 } },
            "limit": 1_i64, "singleBatch": true, "projection": items(),
        },
    );
    for reach in BOTH {
        check(
            reach,
            |queries| queries.pages(&[2, 5]),
            &rawdoc! {
                "filter": { "k": { "$eq": 1 }, "control.page": { "$in": [2_i64, 5_i64] } }, "hint": "mongoshape_page",
            },
        );
    }
    let filters = [rawdoc! { "_id": "1_0" }, rawdoc! { "_id": "1_0", "k": { "$eq": 1 } }];
    for (reach, filter) in BOTH.into_iter().zip(filters) {
        let find = rawdoc! { "filter": filter, "limit": 1_i64, "singleBatch": true };
        check(reach, |queries| queries.named("1_0"), &find);
    }
}

#[test]
fn exceptions_are_found_by_their_index() {
    let shape = shape();
    let end = |end: RawBsonRef<'_>| rawdoc! { "k": 1, "control.page": end, "count": end, "control.late": end };
    let rest = rawdoc! {
        "limit": 1000_i64, "singleBatch": true, "batchSize": 1000_i64, "projection": { "history": 0 },
    };
    check(
        Reach::Bounds,
        |queries| queries.exceptions(&shape),
        &joined(
            &rawdoc! { "hint": "mongoshape_exceptions", "min": end(MIN), "max": end(MAX) },
            &rest,
        ),
    );
    check(
        Reach::Conditions,
        |queries| queries.exceptions(&shape),
        &joined(
            &rawdoc! { "hint": "mongoshape_exceptions", "filter": { "k": { "$eq": 1 }, "control.exception": true } },
            &rest,
        ),
    );
    check(
        Reach::Bounds,
        |queries| queries.moved(3),
        &rawdoc! {
            "filter": { "k": { "$eq": 1 }, "control.exception": true, "control.kept": { "$exists": true } },
            "hint": "mongoshape_exceptions", "limit": 3_i64, "batchSize": 3_i64,
        },
    );
}

#[test]
fn time_range_becomes_a_condition_on_time_bounds() {
    let shape = shape();
    let range = rawdoc! { "$gte": date(3), "$lt": date(8) };
    let [oldest, newest] = [
        rawdoc! { "$not": { "$lt": date(3) } },
        rawdoc! { "$not": { "$gte": date(8) } },
    ];
    let by_bounds = |hint: &str, sort: RawDocumentBuf| {
        rawdoc! {
            "filter": {
                "k": { "$eq": 1 }, "control.v": 1, "control.to": oldest.clone(), "control.from": newest.clone(),
            },
            "hint": hint, "limit": 4_i64, "batchSize": 4_i64, "sort": sort,
        }
    };
    for reach in BOTH {
        check(
            reach,
            |queries| queries.oldest_in_range(&bucket_query(&range, 1)).unwrap(),
            &rawdoc! {
                "filter": { "k": { "$eq": 1 }, "control.v": 1, "control.to": oldest.clone() },
                "hint": "mongoshape_to", "limit": 1_i64, "singleBatch": true, "sort": { "control.to": 1 },
            },
        );
        check(
            reach,
            |queries| queries.newest_in_range(&bucket_query(&range, 1)).unwrap(),
            &rawdoc! {
                "filter": { "k": { "$eq": 1 }, "control.v": 1, "control.from": newest.clone() },
                "hint": "mongoshape_from", "limit": 1_i64, "singleBatch": true, "sort": { "control.from": -1 },
            },
        );
        check(
            reach,
            |queries| queries.by_bounds(&bucket_query(&range, 1), 4),
            &by_bounds("mongoshape_from", rawdoc! { "control.from": 1 }),
        );
        check(
            reach,
            |queries| queries.by_bounds(&bucket_query(&range, -1), 4),
            &by_bounds("mongoshape_to", rawdoc! { "control.to": -1 }),
        );
        check(
            reach,
            |queries| queries.bounds(&shape, &bucket_query(&range, 1), 5),
            &rawdoc! {
                "filter": {
                    "k": { "$eq": 1 }, "control.to": oldest.clone(), "control.from": newest.clone(),
                    "control.page": { "$lt": 5_i64 },
                },
                "hint": "mongoshape_page", "projection": { "_id": 0, "control": 1, "count": 1 },
            },
        );
    }
}

/// mongod includes `min` and excludes `max`.
#[test]
fn a_scan_begins_at_the_near_end_of_its_range() {
    let forward = ScanDirection::Forward;
    let backward = ScanDirection::Backward;
    let sorted = |mut find: RawDocumentBuf, path: &str, direction: i32| {
        let mut sort = RawDocumentBuf::new();
        put(&mut sort, path, direction);
        find.append(cstr!("sort"), sort);
        find
    };
    let find = |path: &str, filter: RawDocumentBuf| {
        let hint = if path == "control.to" {
            "mongoshape_to"
        } else {
            "mongoshape_from"
        };
        rawdoc! { "filter": filter, "hint": hint, "limit": 2_i64, "batchSize": 2_i64 }
    };
    for (operator, at, direction, path, begin) in [
        ("$gte", 3, forward, "control.to", 3),
        ("$gt", 3, forward, "control.to", 4),
        ("$lte", 8, backward, "control.from", 9),
        ("$lt", 8, backward, "control.from", 8),
    ] {
        let range = single(operator, date(at));
        let sign = if direction == forward { 1 } else { -1 };
        let near_end = |queries: &Queries<'_>| {
            queries
                .from_near_end(&bucket_query(&range, sign), direction, 2)
                .unwrap()
        };
        let begin = RawBsonRef::DateTime(date(begin));
        let (min, max) = if direction == forward {
            (begin, MAX)
        } else {
            (MIN, begin)
        };
        let mut bounded = find(path, rawdoc! {});
        for (name, end) in [("min", min), ("max", max)] {
            let mut bound = rawdoc! { "k": 1 };
            put(&mut bound, path, end);
            put(&mut bounded, name, bound);
        }
        check(Reach::Bounds, near_end, &sorted(bounded, path, sign));
        let mut filter = rawdoc! { "k": { "$eq": 1 }, "control.v": 1 };
        put(&mut filter, path, &range);
        check(Reach::Conditions, near_end, &sorted(find(path, filter), path, sign));
    }
    // No date is greater than the last one.
    let range = rawdoc! { "$gt": DateTime::MAX };
    let filter = rawdoc! { "k": { "$eq": 1 }, "control.v": 1, "control.to": range.clone() };
    check(
        Reach::Bounds,
        |queries| queries.from_near_end(&bucket_query(&range, 1), forward, 2).unwrap(),
        &sorted(find("control.to", filter), "control.to", 1),
    );
}

#[test]
fn a_range_that_is_open_has_no_end_to_begin_at() {
    let key = rawdoc! { "k": { "$eq": 1 } };
    let source = BucketSource {
        collection: "c",
        reach: Reach::Bounds,
        has_item_id_index: true,
    };
    let queries = Queries { source, key: &key };
    let from = bucket_query(&rawdoc! { "$gte": date(3) }, 1);
    let to = bucket_query(&rawdoc! { "$lt": date(8) }, 1);
    assert!(queries.oldest_in_range(&from).is_some() && queries.newest_in_range(&from).is_none());
    assert!(queries.oldest_in_range(&to).is_none() && queries.newest_in_range(&to).is_some());
    assert_eq!(queries.from_near_end(&from, ScanDirection::Backward, 1), None);
    assert_eq!(queries.from_near_end(&to, ScanDirection::Forward, 1), None);
}

#[test]
fn the_identity_of_a_key_is_that_of_its_values() {
    let source = BucketSource {
        collection: "c",
        reach: Reach::Bounds,
        has_item_id_index: true,
    };
    let identity = |key: RawDocumentBuf| Queries { source, key: &key }.identity(&shape());
    let one = identity(rawdoc! { "k": { "$eq": 1 } });
    assert!(one.as_ref().is_some_and(|one| !one.is_empty()));
    assert_eq!(identity(rawdoc! { "k": { "$eq": 1.0 } }), one);
    assert_ne!(identity(rawdoc! { "k": { "$eq": 2 } }), one);
}
