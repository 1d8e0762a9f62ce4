//! Pages of listed keys, in the order of their time bounds.

use bson::DateTime;

use bson::raw::RawArrayBuf;

use super::*;
use crate::command::document::put;
use crate::pattern::bucket::layout::PageHeader;

fn at(seconds: i64) -> DateTime {
    DateTime::from_millis(seconds * 1000)
}

struct Page<'a> {
    key: i32,
    number: i32,
    to: i64,
    times: &'a [i64],
    control: RawDocumentBuf,
}

impl Page<'_> {
    fn document(&self) -> RawDocumentBuf {
        let items: RawArrayBuf = self.times.iter().map(|time| rawdoc! { "at": at(*time) }).collect();
        let mut control = rawdoc! { "v": 1, "page": self.number, "bytes": 1, "from": at(self.times.first().copied().unwrap_or_default()), "to": at(self.to) };
        for (name, value) in self.control.iter().flatten() {
            control.append(name, value);
        }
        let count = i32::try_from(self.times.len()).unwrap();
        rawdoc! { "_id": self.to, "k": self.key, "count": count, "history": items, "control": control }
    }
}

fn page(key: i32, to: i64, times: &[i64]) -> RawDocumentBuf {
    let control = rawdoc! {};
    let page = Page {
        key,
        number: 0,
        to,
        times,
        control,
    };
    page.document()
}

/// The `find` on pages. `None` if they are not read so.
fn pages(filter: &RawDocument, sort: &RawDocument) -> Option<RawDocumentBuf> {
    let query = SortedQuery::of(&shape(), &find(filter, sort))?;
    let scan = query.scan_of_time_bounds(&shape())?;
    Some(scan.query(&shape(), "c", 4))
}

#[test]
fn listed_keys_are_read_by_the_index_on_the_bound_of_the_begin() {
    let filter = rawdoc! { "k": { "$in": [1, 2] } };
    let keys = || rawdoc! { "k": { "$in": [1, 2] }, "control.v": 1, "count": { "$gt": 0 } };
    assert_eq!(
        pages(&filter, &rawdoc! { "at": -1 }),
        Some(rawdoc! {
            "find": "c", "hint": "mongoshape_to", "filter": keys(), "sort": { "control.to": -1 },
            "limit": 4_i64, "batchSize": 4_i64,
        })
    );
    assert_eq!(
        pages(&filter, &rawdoc! { "at": 1 }),
        Some(rawdoc! {
            "find": "c", "hint": "mongoshape_from", "filter": keys(), "sort": { "control.from": 1 },
            "limit": 4_i64, "batchSize": 4_i64,
        })
    );
}

#[test]
fn pages_of_one_key_are_read_by_number_or_from_a_bound() {
    let range = |condition: RawDocumentBuf| rawdoc! { "k": 1, "at": condition, "a": 1 };
    let of_key = |hint: &str, range: &RawDocument, order: &str, direction: i32| {
        let mut filter = rawdoc! { "k": 1 };
        if !range.is_empty() {
            put(&mut filter, "control.v", 1);
            for (name, value) in range.iter().flatten() {
                filter.append(name, value);
            }
            put(&mut filter, "count", rawdoc! { "$gt": 0 });
        }
        rawdoc! {
            "find": "c", "hint": hint, "filter": filter, "sort": single(order, direction),
            "limit": 4_i64, "batchSize": 4_i64,
        }
    };
    let (number, from, to) = (
        ("mongoshape_page", "control.page"),
        ("mongoshape_from", "control.from"),
        ("mongoshape_to", "control.to"),
    );
    for (filter, direction, (hint, order), condition) in [
        (rawdoc! { "k": 1, "a": 1 }, -1, number, rawdoc! {}),
        (rawdoc! { "k": 1, "a": 1 }, 1, number, rawdoc! {}),
        (
            range(rawdoc! { "$lt": at(5) }),
            -1,
            from,
            rawdoc! { "control.from": { "$lte": at(5) } },
        ),
        (
            range(rawdoc! { "$gt": at(5) }),
            1,
            to,
            rawdoc! { "control.to": { "$gte": at(5) } },
        ),
        (range(rawdoc! { "$gt": at(5) }), -1, number, rawdoc! {}),
    ] {
        let expected = of_key(hint, &condition, order, direction);
        for sort in [rawdoc! { "at": direction }, rawdoc! { "at": direction, "a": 1 }] {
            assert_eq!(pages(&filter, &sort).as_ref(), Some(&expected), "{filter:?} {sort:?}");
        }
    }
    // The scan would begin at a value that is no date, or at a key that several pages may equal.
    for filter in [range(rawdoc! { "$lt": 5 }), rawdoc! { "k": RawBson::Null, "a": 1 }] {
        assert_eq!(pages(&filter, &rawdoc! { "at": -1 }), None, "{filter:?}");
    }
}

#[test]
fn late_pages_of_the_keys_are_queried_after_the_scan() {
    let (filter, sort) = (rawdoc! { "k": { "$in": [1, 2] }, "a": 1 }, rawdoc! { "at": -1 });
    let query = SortedQuery::of(&shape(), &find(&filter, &sort)).unwrap();
    let scan = query.scan_of_time_bounds(&shape()).unwrap();
    let expected = rawdoc! {
        "find": "c", "hint": "mongoshape_exceptions",
        "filter": { "k": { "$in": [1, 2] }, "control.exception": true, "control.late": true },
        "projection": { "_id": 1 }, "limit": 1, "singleBatch": true,
    };
    assert_eq!(scan.late_pages("c"), Some(expected));
    let indexes = prefixed();
    let of_items = query.scans(&indexes).pop().unwrap();
    assert_eq!(of_items.late_pages("c"), None);
    assert_eq!([scan.equalities(&shape()), of_items.equalities(&shape())], [0, 0]);
    let filter = rawdoc! { "status": 1 };
    let behind_status = SortedQuery::of(&shape(), &find(&filter, &sort)).unwrap();
    assert_eq!(behind_status.scans(&indexes).pop().unwrap().equalities(&shape()), 1);
}

#[test]
fn other_queries_are_not_read_by_time_bounds() {
    let descending = rawdoc! { "at": -1 };
    let many: RawArrayBuf = (0..101).collect();
    for filter in [
        rawdoc! {},
        rawdoc! { "k": { "$gt": 1 } },
        rawdoc! { "a": { "$in": [1] } },
        rawdoc! { "k": { "$in": [1, RawBson::Null] } },
        rawdoc! { "k": { "$in": many } },
        // It does not begin at the newest item.
        rawdoc! { "k": { "$in": [1] }, "at": { "$lt": at(5) } },
    ] {
        assert_eq!(pages(&filter, &descending), None, "{filter:?}");
    }
    let keys = rawdoc! { "k": { "$in": [1] } };
    for sort in [rawdoc! { "a": 1 }, rawdoc! { "a": 1, "at": 1 }] {
        assert_eq!(pages(&keys, &sort), None, "{sort:?}");
    }
    let to_an_end = rawdoc! { "k": { "$in": [1] }, "at": { "$gt": at(5) } };
    assert!(pages(&to_an_end, &descending).is_some());
    let options = BucketOptions {
        time: Some("at".to_owned()),
        ..BucketOptions::new(
            NamespacePattern::parse("d.c").unwrap(),
            vec!["k".into(), "region".into()],
        )
    };
    let two_fields = BucketShape::new(options).unwrap();
    let query = SortedQuery::of(&two_fields, &find(&keys, &descending)).unwrap();
    assert!(query.scan_of_time_bounds(&two_fields).is_none());
}

/// The times of the items from these pages, in the descending order.
fn times(filter: &RawDocument, pages: &[RawDocumentBuf], is_all: bool) -> Result<Vec<i64>, IndexScanResult> {
    let shape = shape();
    let sort = rawdoc! { "at": -1 };
    let query = SortedQuery::of(&shape, &find(filter, &sort)).unwrap();
    let scan = query.scan_of_time_bounds(&shape).unwrap();
    match scan.items(&shape, pages.iter().map(|page| &**page), is_all) {
        IndexScanResult::Items(mut items) => {
            let mut times = Vec::new();
            while let Some(item) = items.first() {
                let item = RawDocument::from_bytes(item).unwrap();
                times.push(item.get_datetime("at").unwrap().timestamp_millis() / 1000);
                items.advance();
            }
            Ok(times)
        }
        other => Err(other),
    }
}

#[test]
fn items_are_deferred_until_page_bounds_are_passed() {
    let keys = rawdoc! { "k": { "$in": [1, 2] } };
    // The newest item of the first page was deleted: its bound stays.
    let read = [
        page(1, 90, &[40, 50, 60]),
        page(2, 70, &[65, 70]),
        page(1, 35, &[30, 35]),
    ];
    assert_eq!(times(&keys, &read, false).unwrap(), [70, 65, 60]);
    assert!(matches!(
        times(&keys, &read[..2], false),
        Err(IndexScanResult::TooFew(1))
    ));
    assert_eq!(times(&keys, &read[..2], true).unwrap(), [70, 65, 60]);
    let bounded = rawdoc! { "k": { "$in": [1, 2] }, "at": { "$gte": at(64) } };
    assert_eq!(times(&bounded, &read, false).unwrap(), [70, 65]);
}

#[test]
fn pages_of_one_key_follow_one_another() {
    let key = rawdoc! { "k": 1, "a": RawBson::Null };
    let numbered = |number: i32, times: &[i64], control: RawDocumentBuf| {
        let page = Page {
            key: 1,
            number,
            to: times.last().copied().unwrap_or_default(),
            times,
            control,
        };
        page.document()
    };
    let plain = |number: i32, times: &[i64]| numbered(number, times, rawdoc! {});
    // The highest page was emptied. Items of page 3 have the time of its bound or a later one.
    let read = [plain(4, &[]), plain(3, &[6, 7, 8]), plain(2, &[4, 5, 6])];
    assert_eq!(times(&key, &read, false).unwrap(), [8, 7, 6]);
    assert!(matches!(
        times(&key, &read[..1], false),
        Err(IndexScanResult::TooFew(0))
    ));
    let late = numbered(4, &[9], rawdoc! { "late": true });
    let unordered = numbered(4, &[9], rawdoc! { "unordered": true });
    for disordered in [
        vec![late.clone(), plain(3, &[8])],
        vec![unordered, plain(3, &[8])],
        vec![plain(5, &[9]), late],
        vec![plain(3, &[9]), plain(3, &[8])],
        vec![plain(3, &[9]), plain(4, &[8])],
    ] {
        let result = times(&key, &disordered, true);
        assert!(matches!(result, Err(IndexScanResult::NotComparable)), "{disordered:?}");
    }
}

#[test]
fn head_pages_of_the_keys_are_queried_before_a_backward_scan() {
    let keys = rawdoc! { "k": { "$in": [1, 2] }, "a": 1 };
    let heads = |sort: &RawDocument| {
        let query = SortedQuery::of(&shape(), &find(&keys, sort)).unwrap();
        query.scan_of_time_bounds(&shape()).unwrap().head_pages(&shape(), "c")
    };
    let mut control = RawDocumentBuf::new();
    for name in PageHeader::FIELDS {
        put(&mut control, name, format!("$control.{name}"));
    }
    let page = rawdoc! { "_id": "$_id", "k": "$k", "count": "$count", "control": control };
    let expected = rawdoc! {
        "aggregate": "c",
        "pipeline": [
            { "$match": { "k": { "$in": [1, 2] } } },
            { "$sort": { "k": -1, "control.page": -1 } },
            { "$group": { "_id": "$k", "page": { "$first": page } } },
        ],
        "hint": "mongoshape_page", "cursor": { "batchSize": i32::MAX },
    };
    assert_eq!(heads(&rawdoc! { "at": -1 }), Some(expected));
    // A push moves no entry of the index on `from`.
    assert_eq!(heads(&rawdoc! { "at": 1 }), None);
}

#[test]
fn a_scan_must_read_the_head_pages_before_its_last_page() {
    let read = [page(1, 90, &[80, 90]), page(2, 72, &[65, 72])];
    let read: Vec<&RawDocument> = read.iter().map(|page| &**page).collect();
    let has_read = |head: RawDocumentBuf, is_all: bool| {
        let head = rawdoc! { "_id": 3, "page": head };
        has_read_heads(&shape(), &read, is_all, [&*head].into_iter())
    };
    assert!(has_read(page(1, 90, &[80, 90]), true), "it was read");
    assert!(has_read(page(3, 70, &[60]), false), "it comes behind the last page");
    assert!(!has_read(page(3, 73, &[60]), false));
    assert!(!has_read(page(3, 70, &[60]), true));
    assert!(has_read(page(3, 95, &[]), true), "it has no items");
    assert!(has_read_heads(&shape(), &read, true, std::iter::empty()));
}

#[test]
fn a_page_without_dates_as_bounds_shows_no_order() {
    let keys = rawdoc! { "k": { "$in": [1, 2] } };
    let mut undated = page(1, 9, &[9]);
    let control = rawdoc! { "v": 1, "page": 0, "bytes": 1, "from": RawBson::MinKey, "to": RawBson::MaxKey };
    undated = crate::command::arguments::with_replaced(&undated, &[("control", Some(RawBsonRef::Document(&control)))]);
    assert!(matches!(
        times(&keys, &[undated], true),
        Err(IndexScanResult::NotComparable)
    ));
}
