//! Pages of several keys in the order of key and number.

use bson::DateTime;
use bson::raw::RawArrayBuf;

use super::*;
use crate::pattern::bucket::item_index::{self, KeyTimeIndex};
use crate::pattern::bucket::readable_indexes::ReadableIndexes;

fn indexes() -> ReadableIndexes {
    let descending = rawdoc! { "key": { "k": 1, "at": -1 }, "name": "x" };
    let specs = [
        rawdoc! { "key": { "k": 1, "control.page": 1 }, "name": "mongoshape_page", "unique": true },
        item_index::stored(&shape(), &descending).unwrap(),
    ];
    ReadableIndexes::of(&shape(), specs.iter().map(|spec| &**spec))
}

/// The `find` on pages. `None` if no index has the order.
fn pages(filter: &RawDocument, sort: &RawDocument) -> Option<RawDocumentBuf> {
    let indexes = indexes();
    let query = SortedQuery::of(&shape(), &find(filter, sort))?;
    let scan = query.scan_of_keys(&indexes.on_key_and_time)?;
    Some(scan.query(&shape(), "c", 4))
}

fn expected(hint: RawDocumentBuf, filter: RawDocumentBuf, sort: RawDocumentBuf) -> RawDocumentBuf {
    rawdoc! { "find": "c", "hint": hint, "filter": filter, "sort": sort, "limit": 4_i64, "batchSize": 4_i64 }
}

#[test]
fn index_with_the_directions_of_the_sort_is_read() {
    let page_index = rawdoc! { "k": 1, "control.page": 1 };
    let applications = rawdoc! { "k": 1, "control.page": -1, "control.v": 1 };
    for (hint, [key, time]) in [
        (&page_index, [1, 1]),
        (&page_index, [-1, -1]),
        (&applications, [1, -1]),
        (&applications, [-1, 1]),
    ] {
        assert_eq!(
            pages(&rawdoc! {}, &rawdoc! { "k": key, "at": time }),
            Some(expected(
                hint.clone(),
                rawdoc! {},
                rawdoc! { "k": key, "control.page": time }
            ))
        );
    }
    assert_eq!(
        pages(
            &rawdoc! { "k": { "$gt": 3, "$in": [4, 5] }, "n": 1 },
            &rawdoc! { "k": 1, "at": 1, "n": -1 }
        ),
        Some(expected(
            page_index,
            rawdoc! { "k": { "$in": [4, 5], "$gte": 3 } },
            rawdoc! { "k": 1, "control.page": 1 }
        ))
    );
}

#[test]
fn other_sorts_are_left() {
    for sort in [
        rawdoc! { "at": 1, "k": 1 },
        rawdoc! { "k": 1, "n": 1 },
        rawdoc! { "k": 1 },
    ] {
        assert_eq!(pages(&rawdoc! {}, &sort), None, "{sort:?}");
    }
    assert_eq!(pages(&rawdoc! { "k": 1 }, &rawdoc! { "k": 1, "at": 1 }), None);
}

fn page(key: i32, number: i32, times: &[i64], marks: &RawDocument) -> RawDocumentBuf {
    let at = |time: &i64| DateTime::from_millis(*time);
    let items: RawArrayBuf = times.iter().map(|time| rawdoc! { "at": at(time) }).collect();
    let mut control = rawdoc! { "v": 1, "page": number, "bytes": 1 };
    if let [first, .., last] | [first @ last] = times {
        put(&mut control, "from", at(first));
        put(&mut control, "to", at(last));
    }
    for (name, value) in marks.iter().flatten() {
        control.append(name, value);
    }
    let count = i32::try_from(times.len()).unwrap();
    rawdoc! { "_id": number, "k": key, "count": count, "history": items, "control": control }
}

/// The number of items that these pages show, of at most three. `None`: the pages have no order.
fn items(sort: &RawDocument, pages: &[RawDocumentBuf], is_all: bool) -> Option<usize> {
    let filter = rawdoc! {};
    let index = KeyTimeIndex::of_pages(&shape()).unwrap();
    let query = SortedQuery::of(&shape(), &find(&filter, sort)).unwrap();
    let scan = query.scan_of_keys(std::slice::from_ref(&index)).unwrap();
    match scan.items(&shape(), pages.iter().map(|page| &**page), is_all) {
        IndexScanResult::Items(items) => Some(usize::try_from(items.count()).unwrap()),
        IndexScanResult::TooFew(found) => Some(found),
        IndexScanResult::NotComparable => None,
    }
}

#[test]
fn items_of_a_page_wait_for_the_next_page_or_key() {
    let forward = rawdoc! { "k": 1, "at": 1 };
    let first = page(1, 0, &[1, 2], &rawdoc! {});
    let second = page(1, 1, &[2, 3], &rawdoc! {});
    let other = page(2, 0, &[1], &rawdoc! {});
    let of = |pages: &[&RawDocumentBuf]| {
        items(
            &forward,
            &pages.iter().map(|page| (*page).clone()).collect::<Vec<_>>(),
            false,
        )
    };
    assert_eq!(of(&[&first]), Some(1));
    assert_eq!(of(&[&first, &second]), Some(3));
    assert_eq!(of(&[&first, &other]), Some(3));
    assert_eq!(items(&forward, std::slice::from_ref(&first), true), Some(2));
    // By time and another field, an item of the time of the next page waits.
    let ties = rawdoc! { "k": 1, "at": 1, "n": 1 };
    assert_eq!(items(&ties, &[first.clone(), second.clone()], false), Some(1));
    let backward = rawdoc! { "k": -1, "at": -1 };
    assert_eq!(items(&backward, &[other, second, first], false), Some(3));
}

#[test]
fn pages_that_may_not_follow_in_time_have_no_order() {
    let forward = rawdoc! { "k": 1, "at": 1 };
    let marked = |mark: &str| page(1, 0, &[1], &single(mark, true));
    assert_eq!(items(&forward, &[marked("unordered")], true), None);
    assert_eq!(items(&forward, &[marked("late")], true), None);
    let later = page(1, 3, &[1], &rawdoc! {});
    assert_eq!(items(&forward, std::slice::from_ref(&later), true), None);
    assert_eq!(items(&rawdoc! { "k": -1, "at": -1 }, &[later], true), Some(1));
    let emptied = page(1, 0, &[], &rawdoc! {});
    assert_eq!(
        items(&forward, &[emptied, page(1, 1, &[4], &rawdoc! {})], true),
        Some(1)
    );
}
