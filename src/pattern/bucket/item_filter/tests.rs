use bson::raw::RawArrayBuf;
use bson::{Decimal128, RawDocumentBuf, rawdoc};

use super::*;
use crate::pattern::shapes::{BucketOptions, NamespacePattern};

fn shape() -> BucketShape {
    let options = BucketOptions {
        rename: [("quantity".to_owned(), "qty".to_owned())].into(),
        ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
    };
    BucketShape::new(options).unwrap()
}

/// Whether an item matches. `None` if mongod must evaluate the filter.
fn matches(filter: &RawDocument, stored: &RawDocument) -> Option<bool> {
    let bucket = rawdoc! { "_id": "7_0", "k": 7, "history": [] };
    let shape = shape();
    let item = StoredItem {
        shape: &shape,
        bucket: &bucket,
        stored,
    };
    ItemFilter::parse(Some(filter))?.matches(&item)
}

#[test]
fn comparisons_are_evaluated() {
    let stored = rawdoc! { "_id": 1, "qty": 5, "tags": ["a", "c"], "in": { "x": 1.5 }, "none": null, "k2": true };
    for (filter, expected) in [
        (rawdoc! {}, true),
        (rawdoc! { "$comment": 1 }, true),
        (rawdoc! { "k": 7.0, "quantity": 5_i64 }, true),
        (rawdoc! { "qty": 5 }, false),
        (rawdoc! { "quantity": { "$gt": 4, "$lte": 5 } }, true),
        (rawdoc! { "quantity": { "$gt": 5 } }, false),
        (rawdoc! { "quantity": { "$lt": "a" } }, false),
        (rawdoc! { "in.x": { "$gte": 1.5, "$lt": 2 } }, true),
        (
            rawdoc! { "in.y": null, "absent": null, "none": null, "k.x": null },
            true,
        ),
        (rawdoc! { "in.x": null }, false),
        (
            rawdoc! { "none": { "$exists": true }, "absent": { "$exists": false } },
            true,
        ),
        (rawdoc! { "tags": "a" }, true),
        (rawdoc! { "tags": { "$gt": "b", "$lt": "b" } }, true),
        (rawdoc! { "tags": { "$ne": "c" } }, false),
        (rawdoc! { "tags": { "$nin": ["b", null] } }, true),
        (rawdoc! { "quantity": { "$in": [1, 5.0] } }, true),
        (rawdoc! { "quantity": { "$not": { "$gt": 3, "$lt": 5 } } }, true),
        (rawdoc! { "$or": [{ "k": 1 }, { "k2": true }] }, true),
        (rawdoc! { "$nor": [{ "k": 1 }, { "k2": true }] }, false),
        (rawdoc! { "$and": [{ "k": 7 }, { "k2": { "$eq": false } }] }, false),
    ] {
        assert_eq!(matches(&filter, &stored), Some(expected), "{filter:?}");
    }
}

#[test]
fn a_list_of_any_values_is_searched() {
    let list = rawdoc! { "$in": ["b", 3, true, 1.5, "a", null, 2_i64, bson::DateTime::from_millis(7)] };
    let of = |stored: RawDocumentBuf| matches(&rawdoc! { "a": list.clone() }, &stored);
    for listed in [
        rawdoc! { "a": 1.5 },
        rawdoc! { "a": 2 },
        rawdoc! { "a": 3.0 },
        rawdoc! { "a": "b" },
        rawdoc! { "a": true },
        rawdoc! { "a": bson::DateTime::from_millis(7) },
        rawdoc! { "a": null },
        rawdoc! {},
        rawdoc! { "a": [9, { "x": 1 }, "a"] },
        rawdoc! { "a": [null] },
    ] {
        assert_eq!(of(listed.clone()), Some(true), "{listed:?}");
    }
    for missing in [
        rawdoc! { "a": 2.5 },
        rawdoc! { "a": f64::NAN },
        rawdoc! { "a": "ab" },
        rawdoc! { "a": false },
        rawdoc! { "a": { "b": 1 } },
        rawdoc! { "a": [] },
        rawdoc! { "a": [4, "c"] },
    ] {
        assert_eq!(of(missing.clone()), Some(false), "{missing:?}");
    }
    let decimal = Decimal128::from_bytes([0; 16]);
    assert_eq!(of(rawdoc! { "a": decimal }), None);
    let texts = rawdoc! { "a": { "$in": ["a", "b"] } };
    assert_eq!(matches(&texts, &rawdoc! { "a": decimal }), Some(false));
    assert_eq!(matches(&rawdoc! { "a": { "$in": [] } }, &rawdoc! {}), Some(false));
}

#[test]
fn a_long_list_is_not_compared_with_each_item() {
    // This would take minutes.
    const VALUES: i32 = 300_000;
    let values: RawArrayBuf = (0..VALUES).rev().map(|number| number * 2).collect();
    let filter = rawdoc! { "a": { "$in": values } };
    let filter = ItemFilter::parse(Some(&filter)).unwrap();
    let (shape, bucket) = (shape(), rawdoc! { "k": 7 });
    for number in 0..VALUES {
        let stored = rawdoc! { "a": number };
        let item = StoredItem {
            shape: &shape,
            bucket: &bucket,
            stored: &stored,
        };
        assert_eq!(filter.matches(&item), Some(number % 2 == 0));
    }
}

#[test]
fn a_filter_of_many_tests_is_left_to_mongod() {
    let is_evaluated = |branch: &RawDocument, count: usize| {
        let branches: RawArrayBuf = std::iter::repeat_n(branch, count).collect();
        ItemFilter::parse(Some(&rawdoc! { "$nor": branches })).is_some()
    };
    for branch in [
        rawdoc! { "a": 1 },
        rawdoc! { "a": { "$ne": 1 } },
        rawdoc! { "$or": [{ "a": 1 }] },
        rawdoc! {},
    ] {
        assert!(is_evaluated(&branch, MAX_TESTS), "{branch:?}");
        assert!(!is_evaluated(&branch, MAX_TESTS + 1), "{branch:?}");
    }
    let two = rawdoc! { "a": { "$gt": 1, "$not": { "$in": [3, 4, 5] } } };
    assert!(is_evaluated(&two, MAX_TESTS / 2));
    assert!(!is_evaluated(&two, MAX_TESTS));
}

#[test]
fn mongod_evaluates_the_rest() {
    let stored =
        rawdoc! { "a": [{ "b": 1 }], "d": Decimal128::from_bytes([0; 16]), "u": bson::raw::RawBson::Undefined };
    let filters: [RawDocumentBuf; 17] = [
        rawdoc! { "a.b": 1 },
        rawdoc! { "d": 1 },
        rawdoc! { "u": null },
        rawdoc! { "a": {} },
        rawdoc! { "a": { "b": 1 } },
        rawdoc! { "a": [1] },
        rawdoc! { "a": { "$regex": "x" } },
        rawdoc! { "a": { "$gt": null } },
        rawdoc! { "a": { "$lt": f64::NAN } },
        rawdoc! { "a": { "$in": [[1]] } },
        rawdoc! { "a": { "$not": { "$size": 1 } } },
        rawdoc! { "a": { "$exists": "yes" } },
        rawdoc! { "$and": [] },
        rawdoc! { "$or": 1 },
        rawdoc! { "$expr": true },
        rawdoc! { "a..b": 1 },
        rawdoc! { "a.$b": 1 },
    ];
    for filter in filters {
        assert_eq!(matches(&filter, &stored), None, "{filter:?}");
    }
}

#[test]
fn bounds_and_equalities_are_found() {
    let filter = rawdoc! {
        "$and": [{ "a": 1 }, { "b": { "$lt": 5, "$gte": 2 } }],
        "$or": [{ "t": { "$lt": 7 } }, { "t": 7, "n": { "$lt": 3 } }, { "t": { "$lte": 6 } }],
    };
    let filter = ItemFilter::parse(Some(&filter)).unwrap();
    let number = |number| Some(RawBsonRef::Int32(number));
    assert_eq!(filter.equality("a"), number(1));
    assert_eq!(filter.equality("b"), None);
    let bound = |value, is_included| {
        let value = RawBsonRef::Int32(value);
        Some(RangeBound { value, is_included })
    };
    assert_eq!(filter.bound("a", BoundSide::Upper), bound(1, true));
    assert_eq!(filter.bound("b", BoundSide::Upper), bound(5, false));
    assert_eq!(filter.bound("b", BoundSide::Lower), bound(2, true));
    assert_eq!(filter.bound("t", BoundSide::Upper), bound(7, true));
    assert_eq!(filter.bound("t", BoundSide::Lower), None);
    assert_eq!(filter.bound("n", BoundSide::Upper), None);
    assert!(filter.mentions("n") && !filter.mentions("z"));
    let mixed = rawdoc! { "$or": [{ "t": { "$gt": 7 } }, { "t": "a" }] };
    assert_eq!(
        ItemFilter::parse(Some(&mixed)).unwrap().bound("t", BoundSide::Lower),
        None
    );
    let least = rawdoc! { "$or": [{ "t": { "$gt": 7 } }, { "t": { "$gt": 3 } }, { "t": { "$gte": 5 } }] };
    let least = ItemFilter::parse(Some(&least)).unwrap();
    assert_eq!(least.bound("t", BoundSide::Lower), bound(3, false));
}
