//! Which queries are answered in the order of an index.

use super::*;

#[test]
fn few_items_are_read_in_the_order_of_an_index() {
    let sort = rawdoc! { "at": 1 };
    for (skip, limit, is_read) in [
        (0, 1, true),
        (0, 1000, true),
        (999, 1, true),
        (0, 1001, false),
        (1000, 1, false),
        // No limit.
        (0, 0, false),
    ] {
        let find = Find {
            sort: Some(&sort),
            skip,
            limit,
            ..Find::default()
        };
        assert_eq!(SortedQuery::of(&shape(), &find).is_some(), is_read, "{skip} {limit}");
    }
}

#[test]
fn variables_and_collations_are_left_to_mongod() {
    let (sort, option) = (rawdoc! { "at": 1 }, rawdoc! { "locale": "en" });
    for (collation, let_variables, is_read) in [
        (None, None, true),
        (Some(&option), None, false),
        (None, Some(&option), false),
    ] {
        let find = Find {
            sort: Some(&sort),
            limit: 5,
            collation: collation.map(|option| &**option),
            let_variables: let_variables.map(|option| &**option),
            ..Find::default()
        };
        let is_recognised = SortedQuery::of(&shape(), &find).is_some();
        assert_eq!(is_recognised, is_read, "{collation:?} {let_variables:?}");
    }
}

#[test]
fn a_sort_is_by_different_fields() {
    for (sort, is_read) in [
        (rawdoc! { "at": 1, "n.x": -1 }, true),
        (rawdoc! { "at": 1, "n": 1, "at": -1 }, false),
        (rawdoc! { "n..x": 1 }, false),
        (rawdoc! { "$n": 1 }, false),
        // A number may be a position in an array.
        (rawdoc! { "at.0": 1 }, false),
        (rawdoc! { "at.x0": 1 }, true),
        (rawdoc! {}, false),
    ] {
        let find = Find {
            sort: Some(&sort),
            limit: 5,
            ..Find::default()
        };
        assert_eq!(SortedQuery::of(&shape(), &find).is_some(), is_read, "{sort:?}");
    }
}

#[test]
fn a_sort_by_more_fields_than_an_index_has_is_left_to_mongod() {
    for (count, is_read) in [(32, true), (33, false)] {
        let (filter, mut sort) = (rawdoc! {}, rawdoc! {});
        for number in 0..count {
            put(&mut sort, &format!("f{number}"), 1);
        }
        assert_eq!(SortedQuery::of(&shape(), &find(&filter, &sort)).is_some(), is_read);
    }
}

#[test]
fn a_descending_field_behind_an_equality_begins_at_its_greatest_value() {
    let key = rawdoc! { "control.v": 1, "history.status": 1, "history.at": -1 };
    let begin = rawdoc! { "control.v": 1, "history.status": "x", "history.at": RawBson::MaxKey };
    check(
        &indexes(std::slice::from_ref(&key)),
        &rawdoc! { "status": "x" },
        &rawdoc! { "at": -1 },
        &rawdoc! { "hint": key, "min": begin },
    );
}

/// No text is the next less one, so the scan begins at the last entry that the proxy knows of the excluded value.
#[test]
fn a_scan_without_its_first_value_begins_behind_it() {
    let key = rawdoc! { "control.v": 1, "history.status": -1, "history.at": 1 };
    let behind = rawdoc! { "control.v": 1, "history.status": "x", "history.at": RawBson::MaxKey };
    let indexes = indexes(&[key.clone(), rawdoc! { "control.v": 1, "history.n": -1 }]);
    let filter = rawdoc! { "status": { "$lt": "x" } };
    let sort = rawdoc! { "status": -1 };
    check(&indexes, &filter, &sort, &rawdoc! { "hint": key, "min": behind });
    // An index of one field has no such entry.
    let (texts, by_text) = (rawdoc! { "n": { "$lt": "x" } }, rawdoc! { "n": -1 });
    let first = rawdoc! { "control.v": 1, "history.n": "x" };
    check(
        &indexes,
        &texts,
        &by_text,
        &rawdoc! { "hint": indexes[1].key().to_owned(), "min": first },
    );

    let find = find(&filter, &sort);
    let (shape, query) = (shape(), SortedQuery::of(&shape(), &find).unwrap());
    let scan = query.scans(&indexes).pop().unwrap();
    let result = |at: RawBson| {
        let items = rawdoc! { "0": { "_id": 1, "status": "x", "at": at }, "1": { "_id": 2, "status": "a", "at": 7 } };
        let items: bson::raw::RawArrayBuf = items.iter().map(|item| item.unwrap().1).collect();
        let bucket =
            rawdoc! { "_id": 1, "k": 1, "count": 2, "history": items, "control": { "v": 1, "page": 0, "bytes": 1 } };
        scan.items(&shape, std::iter::once(&*bucket), true)
    };
    assert!(matches!(result(5.into()), IndexScanResult::Items(_)));
    // The bucket may have been read for its first item, and a later one may have an item before the second.
    assert!(matches!(result(RawBson::MaxKey), IndexScanResult::NotComparable));
}

#[test]
fn no_bucket_after_the_end_of_the_range_is_read() {
    let buckets = [
        bucket(1, &[(90, "x"), (80, "x")]),
        bucket(2, &[(70, "x")]),
        bucket(3, &[(50, "x")]),
        rawdoc! { "no": "bucket" },
    ];
    assert_eq!(
        numbers(&rawdoc! { "at": { "$gt": 65 } }, &buckets, false),
        Some(vec![80, 70])
    );
}

#[test]
fn items_before_the_begin_of_the_range_do_not_count() {
    let buckets = [
        bucket(1, &[(70, "x"), (60, "x")]),
        bucket(2, &[(90, "x"), (40, "x")]),
        bucket(3, &[(95, "x"), (30, "x")]),
    ];
    assert_eq!(
        numbers(&rawdoc! { "at": { "$lt": 80 } }, &buckets, false),
        Some(vec![60, 40])
    );
}

#[test]
fn listed_values_are_read_from_the_first_one() {
    let key = rawdoc! { "control.v": 1, "history.status": -1 };
    let indexes = indexes(std::slice::from_ref(&key));
    let list = rawdoc! { "status": { "$in": [7, 3, 9.5] } };
    check(
        &indexes,
        &list,
        &rawdoc! { "status": -1 },
        &rawdoc! { "hint": key.clone(), "min": { "control.v": 1, "history.status": 9.5 } },
    );
    let sort = rawdoc! { "status": 1 };
    let behind = 3.0_f64.next_down();
    check(
        &indexes,
        &list,
        &sort,
        &rawdoc! { "hint": key, "max": { "control.v": 1, "history.status": behind }, "sort": { "control.v": -1 } },
    );
    // Between values of several types there may be a whole index.
    for values in [
        rawdoc! { "$in": [3, "a"] },
        rawdoc! { "$in": [RawBson::Null] },
        rawdoc! { "$in": [] },
    ] {
        assert_eq!(query(&indexes, &rawdoc! { "status": values }, &sort), None);
    }
    for (filter, can_grow) in [
        (list, false),
        (rawdoc! { "status": { "$gt": 3 }, "n": { "$in": [1] } }, true),
    ] {
        let query = SortedQuery::of(&shape(), &find(&filter, &sort)).unwrap();
        assert_eq!(query.scans(&indexes)[0].can_grow(), can_grow, "{filter:?}");
    }
}

#[test]
fn items_of_a_few_ids_are_left_to_the_index_on_ids() {
    let indexes = indexes(&[
        rawdoc! { "control.v": 1, "history._id": 1 },
        rawdoc! { "control.v": 1, "history.at": 1 },
    ]);
    for sort in [rawdoc! { "_id": 1 }, rawdoc! { "at": 1 }] {
        for (ids, is_read) in [
            (RawBson::Int32(1), false),
            (rawdoc! { "$in": [1, 2, 3, 4, 5] }.into(), false),
            (rawdoc! { "$in": [1, 2, 3, 4, 5, 6] }.into(), true),
            (rawdoc! { "$gt": 1 }.into(), true),
        ] {
            let filter = single("_id", ids);
            assert_eq!(
                query(&indexes, &filter, &sort).is_some(),
                is_read,
                "{filter:?} {sort:?}"
            );
        }
    }
}
