mod key_order;
mod plans;
mod time_bounds;
mod values;

use bson::raw::RawBson;
use bson::{RawDocumentBuf, rawdoc};

use super::*;
use crate::command::find::Find;
use crate::pattern::shapes::{BucketOptions, ItemIds, NamespacePattern};

fn shape() -> BucketShape {
    let options = BucketOptions {
        time: Some("at".to_owned()),
        ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
    };
    BucketShape::new(options).unwrap()
}

/// A `find` of three items.
fn find<'a>(filter: &'a RawDocument, sort: &'a RawDocument) -> Find<'a> {
    Find {
        filter: Some(filter),
        sort: Some(sort),
        limit: 3,
        ..Find::default()
    }
}

/// The stored indexes of these key patterns.
fn indexes(keys: &[RawDocumentBuf]) -> Vec<StoredIndex> {
    let specs = keys.iter().map(|key| {
        let mut spec = single("key", key);
        put(&mut spec, "name", format!("{key:?}").as_str());
        StoredIndex::of(&shape(), &spec).unwrap()
    });
    specs.collect()
}

fn prefixed() -> Vec<StoredIndex> {
    indexes(&[
        rawdoc! { "control.v": 1, "history.at": -1 },
        rawdoc! { "control.v": 1, "history.status": 1, "history.at": 1 },
        rawdoc! { "k": 1, "history.at": 1 },
    ])
}

/// The `find` on buckets for a client's `find` of five items. `None` if no index answers it.
fn query(indexes: &[StoredIndex], filter: &RawDocument, sort: &RawDocument) -> Option<RawDocumentBuf> {
    let find = Find {
        filter: Some(filter),
        sort: Some(sort),
        limit: 5,
        ..Find::default()
    };
    let query = SortedQuery::of(&shape(), &find)?;
    let scan = query.scans(indexes).pop()?;
    Some(scan.query(&shape(), "c", scan.buckets(&shape())))
}

fn check(indexes: &[StoredIndex], filter: &RawDocument, sort: &RawDocument, expected: &RawDocument) {
    let found = query(indexes, filter, sort).unwrap_or_else(|| panic!("no index for {filter:?} {sort:?}"));
    let mut whole = single("find", "c");
    for (name, value) in expected.iter().flatten() {
        whole.append(name, value);
    }
    whole.append(cstr!("limit"), 6_i64);
    whole.append(cstr!("batchSize"), 6_i64);
    assert_eq!(found, whole, "{filter:?} {sort:?}");
}

#[test]
fn a_range_without_a_begin_is_read_from_the_first_value_of_its_type() {
    let key = rawdoc! { "control.v": 1, "history.status": 1 };
    let indexes = indexes(std::slice::from_ref(&key));
    let least = [
        (rawdoc! { "$lt": "b" }, RawBson::from("")),
        (rawdoc! { "$lte": 5 }, f64::NEG_INFINITY.into()),
        (rawdoc! { "$lte": bson::DateTime::now() }, bson::DateTime::MIN.into()),
        (
            rawdoc! { "$lt": bson::oid::ObjectId::new() },
            bson::oid::ObjectId::from_bytes([0; 12]).into(),
        ),
    ];
    for (range, least) in least {
        let begin = rawdoc! { "control.v": 1, "history.status": least };
        check(
            &indexes,
            &rawdoc! { "status": range },
            &rawdoc! { "status": 1 },
            &rawdoc! { "hint": key.clone(), "min": begin },
        );
    }
    check(
        &indexes,
        &rawdoc! { "status": { "$gt": 5 } },
        &rawdoc! { "status": -1 },
        // Excludes the least value of the next type.
        &rawdoc! { "hint": key.clone(), "max": { "control.v": 1, "history.status": "" }, "sort": { "control.v": -1 } },
    );
    let page = rawdoc! { "control.v": { "$gte": 1, "$lte": 1 }, "count": { "$gt": 0 } };
    for (range, order) in [(rawdoc! { "$lte": true }, 1), (rawdoc! { "$gt": "b" }, -1)] {
        check(
            &indexes,
            &rawdoc! { "status": range },
            &rawdoc! { "status": order },
            &rawdoc! { "hint": key.clone(), "filter": page.clone(), "sort": { "history.status": order } },
        );
    }
}

#[test]
fn a_scan_begins_where_the_first_item_may_be() {
    let indexes = prefixed();
    let [by_time, by_status, by_key] = [0, 1, 2].map(|position: usize| indexes[position].key().to_owned());
    let page = rawdoc! { "control.v": { "$gte": 1, "$lte": 1 }, "count": { "$gt": 0 } };
    check(
        &indexes,
        &rawdoc! {},
        &rawdoc! { "at": -1 },
        &rawdoc! { "hint": by_time.clone(), "filter": page.clone(), "sort": { "history.at": -1 } },
    );
    check(
        &indexes,
        &rawdoc! {},
        &rawdoc! { "at": 1 },
        &rawdoc! { "hint": by_time.clone(), "filter": page.clone(), "sort": { "history.at": 1 } },
    );
    check(
        &indexes,
        &rawdoc! { "at": { "$lt": 7 } },
        &rawdoc! { "at": -1 },
        &rawdoc! { "hint": by_time.clone(), "min": { "control.v": 1, "history.at": 7.0_f64.next_down() } },
    );
    check(
        &indexes,
        &rawdoc! { "at": { "$gte": 7 } },
        &rawdoc! { "at": 1 },
        &rawdoc! { "hint": by_time.clone(), "max": { "control.v": 1, "history.at": 7.0_f64.next_down() }, "sort": { "control.v": -1 } },
    );
    check(
        &indexes,
        &rawdoc! { "status": "x" },
        &rawdoc! { "at": 1 },
        &rawdoc! {
            "hint": by_status.clone(),
            "min": { "control.v": 1, "history.status": "x", "history.at": bson::raw::RawBson::MinKey },
        },
    );
    check(
        &indexes,
        &rawdoc! { "status": "x", "at": { "$lt": 7, "$gt": 1 } },
        &rawdoc! { "at": -1 },
        &rawdoc! {
            "hint": by_status.clone(),
            "max": { "control.v": 1, "history.status": "x", "history.at": 7 },
            "sort": { "control.v": -1 },
        },
    );
    check(
        &indexes,
        &rawdoc! { "status": "x" },
        &rawdoc! { "at": -1 },
        &rawdoc! {
            "hint": by_status.clone(),
            "max": { "control.v": 1, "history.status": "x\0", "history.at": bson::raw::RawBson::MinKey },
            "sort": { "control.v": -1 },
        },
    );
    check(
        &indexes,
        &rawdoc! { "k": 3, "n": { "$gt": 1 } },
        &rawdoc! { "k": 1, "at": -1 },
        &rawdoc! {
            "hint": by_key.clone(),
            "max": { "k": 3.0_f64.next_up(), "history.at": bson::raw::RawBson::MinKey },
            "sort": { "k": -1 },
        },
    );
}

#[test]
fn query_on_dropped_ids_is_left_to_mongod() {
    for item_ids in [ItemIds::Unique, ItemIds::Stored, ItemIds::Dropped] {
        let options = BucketOptions {
            item_ids,
            ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
        };
        let shape = BucketShape::new(options).unwrap();
        for (filter, sort, is_of_ids) in [
            (rawdoc! {}, rawdoc! { "n": 1 }, false),
            (rawdoc! {}, rawdoc! { "n": 1, "_id": 1 }, true),
            (rawdoc! {}, rawdoc! { "_id.x": 1 }, true),
            (rawdoc! { "_id": { "$gt": 1 } }, rawdoc! { "n": 1 }, true),
            (rawdoc! { "_id.x": 1 }, rawdoc! { "n": 1 }, true),
        ] {
            let find = Find {
                filter: Some(&filter),
                sort: Some(&sort),
                limit: 5,
                ..Find::default()
            };
            let is_recognised = SortedQuery::of(&shape, &find).is_some();
            let expected = !is_of_ids || item_ids != ItemIds::Dropped;
            assert_eq!(is_recognised, expected, "{item_ids:?} {filter:?} {sort:?}");
        }
    }
}

#[test]
fn arrays_matter_where_a_scan_begins_inside_an_index() {
    let indexes = indexes(&[
        rawdoc! { "control.v": 1, "history.at": -1 },
        rawdoc! { "control.v": 1, "history._id": 1 },
        rawdoc! { "control.v": 1, "history.status": 1, "history.at": 1 },
        rawdoc! { "k": 1, "history.at": 1 },
    ]);
    for (filter, sort, expected) in [
        (rawdoc! {}, rawdoc! { "at": 1 }, None),
        (rawdoc! { "at": { "$gt": 7 } }, rawdoc! { "at": 1 }, Some("history.at")),
        // It ends inside.
        (rawdoc! { "at": { "$lt": 7 } }, rawdoc! { "at": 1 }, None),
        // No `_id` is an array, and no key.
        (rawdoc! { "_id": { "$gt": 7 } }, rawdoc! { "_id": 1 }, None),
        (rawdoc! { "k": 7 }, rawdoc! { "k": 1, "at": 1 }, None),
        (
            rawdoc! { "status": "x" },
            rawdoc! { "status": 1, "at": 1 },
            Some("history.status"),
        ),
        (rawdoc! { "status": "x" }, rawdoc! { "at": 1 }, None),
    ] {
        let find = Find {
            filter: Some(&filter),
            sort: Some(&sort),
            limit: 5,
            ..Find::default()
        };
        let query = SortedQuery::of(&shape(), &find).unwrap();
        let scan = query.scans(&indexes).pop().unwrap();
        assert_eq!(scan.unless_array(&shape()).as_deref(), expected, "{filter:?} {sort:?}");
    }
}

#[test]
fn other_sort_orders_use_no_index() {
    let indexes = prefixed();
    for (filter, sort) in [
        (rawdoc! {}, rawdoc! { "status": 1, "at": -1 }),
        (rawdoc! {}, rawdoc! { "n": 1 }),
        (rawdoc! { "status": { "$gt": "x" } }, rawdoc! { "at.x": 1 }),
        (rawdoc! {}, rawdoc! { "at": 2 }),
        (rawdoc! {}, rawdoc! { "at": { "$meta": "textScore" } }),
        (rawdoc! { "n": { "$mod": [2, 0] } }, rawdoc! { "at": 1 }),
    ] {
        assert_eq!(query(&indexes, &filter, &sort), None, "{filter:?} {sort:?}");
    }
    // mongod reads an index without a prefix backward only as a whole.
    let older = self::indexes(&[rawdoc! { "history.at": 1 }]);
    let (range, sort) = (rawdoc! { "at": { "$lt": 7 } }, rawdoc! { "at": -1 });
    assert_eq!(query(&older, &range, &sort), None);
    assert!(query(&older, &rawdoc! {}, &sort).is_some());
}

fn bucket(key: i32, items: &[(i32, &str)]) -> RawDocumentBuf {
    let items: Vec<RawDocumentBuf> = items
        .iter()
        .map(|(at, status)| rawdoc! { "_id": *at, "at": *at, "status": *status })
        .collect();
    let array: bson::raw::RawArrayBuf = items
        .iter()
        .map(|item| &**item)
        .collect::<Vec<&RawDocument>>()
        .into_iter()
        .collect();
    let count = i32::try_from(items.len()).unwrap();
    rawdoc! { "_id": key, "k": key, "count": count, "history": array, "control": { "v": 1, "page": 0, "bytes": 1 } }
}

/// The numbers of the items that the scan returns from the first buckets.
fn numbers(filter: &RawDocument, buckets: &[RawDocumentBuf], is_all: bool) -> Option<Vec<i32>> {
    let indexes = prefixed();
    let sort = rawdoc! { "at": -1 };
    let find = Find {
        filter: Some(filter),
        sort: Some(&sort),
        skip: 1,
        limit: 2,
        ..Find::default()
    };
    let shape = shape();
    let query = SortedQuery::of(&shape, &find).unwrap();
    let scan = query.scans(&indexes).pop().unwrap();
    match scan.items(&shape, buckets.iter().map(|bucket| &**bucket), is_all) {
        IndexScanResult::Items(mut items) => {
            let mut numbers = Vec::new();
            while let Some(item) = items.first() {
                numbers.push(RawDocument::from_bytes(item).unwrap().get_i32("at").unwrap());
                items.advance();
            }
            Some(numbers)
        }
        IndexScanResult::TooFew(_) => None,
        IndexScanResult::NotComparable => panic!("not comparable"),
    }
}

#[test]
fn items_after_the_last_bucket_are_deferred() {
    let first = bucket(1, &[(90, "x"), (40, "x"), (80, "y")]);
    let second = bucket(2, &[(70, "x"), (60, "x")]);
    let buckets = [first, second];
    assert_eq!(numbers(&rawdoc! {}, &buckets, false), Some(vec![80, 70]));
    assert_eq!(numbers(&rawdoc! {}, &buckets[..1], false), None);
    assert_eq!(numbers(&rawdoc! { "status": "x" }, &buckets, false), None);
    assert_eq!(numbers(&rawdoc! { "status": "x" }, &buckets, true), Some(vec![70, 60]));
    // An emptied page says nothing, wherever it comes.
    for place in 0..=2 {
        let mut with_empty = buckets.to_vec();
        with_empty.insert(place, bucket(4, &[]));
        assert_eq!(numbers(&rawdoc! {}, &with_empty, false), Some(vec![80, 70]), "{place}");
    }
    // A bucket without an entry in the range is beyond its end.
    let beyond = [buckets.to_vec(), vec![bucket(3, &[(65, "y")])]].concat();
    assert_eq!(numbers(&rawdoc! { "status": "x" }, &beyond, false), Some(vec![70, 60]));
    assert_eq!(numbers(&rawdoc! { "at": { "$lt": 80 } }, &buckets, false), None);
    assert_eq!(
        numbers(&rawdoc! { "at": { "$lt": 80 } }, &buckets, true),
        Some(vec![60, 40])
    );
    assert_eq!(
        numbers(&rawdoc! { "at": { "$gt": 65 } }, &buckets, false),
        Some(vec![80, 70])
    );
    let late = [buckets.to_vec(), vec![bucket(4, &[(50, "x")])]].concat();
    assert_eq!(
        numbers(&rawdoc! { "at": { "$gt": 65 } }, &late, false),
        Some(vec![80, 70])
    );
    assert_eq!(numbers(&rawdoc! { "at": { "$gt": 75 } }, &late, false), Some(vec![80]));
}

/// Items in the order of a whole index on `at`, where one has an array there; `None`: they are not compared.
fn in_order(sort: &RawDocument, filter: &RawDocument) -> Option<Vec<i32>> {
    let shape = shape();
    let indexes = indexes(&[
        rawdoc! { "control.v": 1, "history.at": -1 },
        rawdoc! { "control.v": 1, "history.at": -1, "history.n": -1 },
    ]);
    let find = Find {
        filter: Some(filter),
        sort: Some(sort),
        limit: 5,
        ..Find::default()
    };
    let query = SortedQuery::of(&shape, &find).unwrap();
    let scan = query.scans(&indexes).pop().unwrap();
    let bucket = rawdoc! {
        "_id": 1, "k": 1, "count": 3, "control": { "v": 1, "page": 0, "bytes": 1 },
        "history": [{ "_id": 1, "at": 40 }, { "_id": 2, "at": [70, 10, 90] }, { "_id": 3, "at": 80 }],
    };
    let IndexScanResult::Items(mut items) = scan.items(&shape, std::iter::once(&*bucket), true) else {
        return None;
    };
    let mut ids = Vec::new();
    while let Some(item) = items.first() {
        ids.push(RawDocument::from_bytes(item).unwrap().get_i32("_id").unwrap());
        items.advance();
    }
    Some(ids)
}

#[test]
fn an_array_is_sorted_by_its_first_element_in_the_order() {
    let all = rawdoc! {};
    assert_eq!(in_order(&rawdoc! { "at": 1 }, &all), Some(vec![2, 1, 3]));
    assert_eq!(in_order(&rawdoc! { "at": -1 }, &all), Some(vec![2, 3, 1]));
    // With another sort field, or where the scan begins inside the index, mongod sorts it.
    assert_eq!(in_order(&rawdoc! { "at": -1, "n": -1 }, &all), None);
    assert_eq!(in_order(&rawdoc! { "at": 1 }, &rawdoc! { "at": { "$gt": 7 } }), None);
}

#[test]
fn an_array_in_the_index_is_found() {
    let shape = shape();
    let explained = |paths: RawDocumentBuf| {
        let scan = rawdoc! { "stage": "IXSCAN", "multiKeyPaths": paths };
        rawdoc! { "queryPlanner": { "winningPlan": { "stage": "LIMIT", "inputStage": { "stage": "FETCH", "inputStage": scan } } } }
    };
    let check = |explanation: &RawDocument| may_have_array(&shape, explanation, "history.at");
    assert!(!check(&explained(
        rawdoc! { "control.v": [], "history.at": ["history"] }
    )));
    assert!(!check(&explained(rawdoc! { "history.at": [] })));
    assert!(check(&explained(rawdoc! { "history.at": ["history", "history.at"] })));
    assert!(check(&explained(rawdoc! { "history.other": ["history"] })));
    assert!(check(&rawdoc! { "queryPlanner": { "winningPlan": { "shards": [] } } }));
}
