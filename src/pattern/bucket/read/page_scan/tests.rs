mod ends;

use bson::raw::RawArrayBuf;
use bson::rawdoc;
use proptest::prelude::*;

use super::*;
use crate::command::find::Find;
use crate::pattern::bucket::page_locator::PageExceptions;
use crate::pattern::bucket::read::Reach;
use crate::pattern::shapes::{BucketOptions, ItemIds, NamespacePattern};

const MAX_ITEMS: usize = 4;

fn shape() -> BucketShape {
    let options = BucketOptions {
        time: Some("t".to_owned()),
        max_items: u32::try_from(MAX_ITEMS).unwrap(),
        ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
    };
    BucketShape::new(options).unwrap()
}

fn date(millis: i32) -> DateTime {
    DateTime::from_millis(i64::from(millis))
}

/// Pages with these numbers of items, with consecutive numbers and dates. All but the last are
/// marked short unless they are full.
fn pages(counts: &[usize]) -> Vec<RawDocumentBuf> {
    let mut next = 0;
    let last = counts.len() - 1;
    let page = |(page, count): (usize, &usize)| {
        let first = next;
        let item = |_| {
            next += 1;
            rawdoc! { "_id": next - 1, "t": date(next - 1) }
        };
        let items: RawArrayBuf = (0..*count).map(item).collect();
        let mut control = rawdoc! { "v": 1, "page": i32::try_from(page).unwrap(), "bytes": 1 };
        if *count > 0 {
            control.append(cstr!("from"), date(first));
            control.append(cstr!("to"), date(next - 1));
        }
        if page < last && *count < MAX_ITEMS {
            control.append(cstr!("exception"), true);
            control.append(cstr!("short"), true);
        }
        rawdoc! { "_id": "x", "k": 1, "count": i32::try_from(*count).unwrap(), "history": items, "control": control }
    };
    counts.iter().enumerate().map(page).collect()
}

fn bucket_query(body: &RawDocument) -> Option<BucketQuery> {
    BucketQuery::of(&shape(), &Find::parse(body).unwrap())
}

/// The items that a scan returns from pages, which are fetched as its queries request them.
fn taken(scan: &mut PageScan, pages: &[RawDocumentBuf]) -> Vec<i32> {
    let source = BucketSource {
        collection: "c",
        reach: Reach::Bounds,
        has_item_id_index: true,
    };
    let mut found = DocumentBuffer::default();
    'asking: loop {
        let query = scan.query(source);
        if query.get_document("min").is_err() {
            // The bounds are empty.
            break;
        }
        let bound = |name: &str| query.get_document(name).unwrap().get_i64("control.page").ok();
        let meant = |(number, _): &(usize, &RawDocumentBuf)| {
            let number = i64::try_from(*number).unwrap();
            bound("min").is_none_or(|from| number >= from) && bound("max").is_none_or(|before| number < before)
        };
        let mut meant: Vec<_> = pages.iter().enumerate().filter(meant).map(|(_, page)| page).collect();
        if query.get_document("sort").is_ok() {
            meant.reverse();
        }
        if meant.is_empty() || scan.is_at_the_end() {
            break;
        }
        let few = usize::try_from(scan.buckets_for(&shape(), 3)).unwrap();
        for page in meant.into_iter().take(few) {
            match scan.take(&shape(), page, &mut found) {
                ScanStep::More => {}
                ScanStep::Done => break 'asking,
                step => panic!("{step:?}"),
            }
        }
    }
    let mut ids = Vec::new();
    while let Some(item) = found.first() {
        ids.push(RawDocument::from_bytes(item).unwrap().get_i32("_id").unwrap());
        found.advance();
    }
    ids
}

proptest! {
    /// For any range, skip and limit, in both directions, a scan over short and full pages returns
    /// the right items.
    #[test]
    fn scan_returns_the_items_of_its_range(
        counts in prop::collection::vec(0..=MAX_ITEMS, 1..8),
        skip in 0_i32..30,
        limit in 0_i32..30,
        from in prop::option::of(0_i32..25),
        to in prop::option::of(0_i32..25),
        sort in prop::option::of(0_usize..3),
    ) {
        let shape = shape();
        let pages = pages(&counts);
        let total = i32::try_from(counts.iter().sum::<usize>()).unwrap();
        let sorts = [rawdoc! { "t": 1 }, rawdoc! { "t": -1 }, rawdoc! { "k": -1 }];
        let sort = sort.map(|sort| sorts[sort].clone());
        let newest_first = sort == Some(sorts[1].clone());
        let mut filter = rawdoc! { "k": 1 };
        let mut range = RawDocumentBuf::new();
        if let Some(from) = from { range.append(cstr!("$gte"), date(from)); }
        if let Some(to) = to { range.append(cstr!("$lt"), date(to)); }
        if !range.is_empty() { filter.append(cstr!("t"), range); }
        let mut body = rawdoc! { "find": "c", "filter": filter, "skip": skip, "limit": limit };
        if let Some(sort) = sort { body.append(cstr!("sort"), sort); }
        let find = bucket_query(&body).unwrap();

        let marked = pages.iter().filter(|page| page.get_document("control").unwrap().get("short").unwrap().is_some());
        let exceptions = PageExceptions::parse(&shape, marked.map(AsRef::as_ref));
        let wanted: Vec<i32> = (0..total)
            .filter(|time| from.is_none_or(|from| *time >= from) && to.is_none_or(|to| *time < to))
            .collect();
        let skipped = u64::try_from(skip).unwrap();
        let position = if newest_first {
            let end = wanted.last().map_or(0, |last| u64::try_from(last + 1).unwrap());
            end.checked_sub(skipped + 1)
        } else {
            wanted.first().map(|first| u64::try_from(*first).unwrap() + skipped)
        };
        if let Some(position) = position {
            let scan = PageScan::of(&find, if newest_first { ScanDirection::Backward } else { ScanDirection::Forward });
            let mut scan = scan.beginning(Start::At(exceptions.locate(&shape, position)), 0);
            let mut expected = wanted.clone();
            if newest_first { expected.reverse(); }
            let limit = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap() };
            let expected: Vec<i32> = expected.into_iter().skip(usize::try_from(skip).unwrap()).take(limit).collect();
            prop_assert_eq!(taken(&mut scan, &pages), expected);
        }
    }
}

#[test]
fn item_that_became_late_during_a_scan_is_sorted_or_omitted() {
    let shape = shape();
    let mut pages = pages(&[4, 4, 2]);
    let find = bucket_query(&rawdoc! { "find": "c", "filter": { "k": 1 }, "sort": { "t": 1 } }).unwrap();
    let mut scan = PageScan::of(&find, ScanDirection::Forward);
    let mut found = DocumentBuffer::default();
    assert_eq!(scan.take(&shape, &pages[0], &mut found), ScanStep::More);
    assert_eq!(scan.take(&shape, &pages[1], &mut found), ScanStep::More);
    let items: RawArrayBuf = [9, 2, 8]
        .into_iter()
        .map(|number| rawdoc! { "_id": number, "t": date(number) })
        .collect();
    let control = rawdoc! { "v": 1, "page": 2, "from": date(2), "to": date(9), "late": true };
    pages[2] = rawdoc! { "k": 1, "count": 3, "history": items, "control": control };
    assert_eq!(scan.take(&shape, &pages[2], &mut found), ScanStep::More);
    assert_eq!(found.count(), 10);
}

#[test]
fn late_item_keeps_its_insertion_position_without_sort() {
    let mut pages = pages(&[4, 3]);
    let items: RawArrayBuf = [6, 2, 5]
        .into_iter()
        .map(|number| rawdoc! { "_id": number, "t": date(number) })
        .collect();
    for mark in ["late", "unordered"] {
        let mut control = rawdoc! { "v": 1, "page": 1, "from": date(2), "to": date(6) };
        control.append(<&bson::raw::CStr>::try_from(mark).unwrap(), true);
        pages[1] = rawdoc! { "k": 1, "count": 3, "history": items.clone(), "control": control };
        let find = bucket_query(&rawdoc! { "find": "c", "filter": { "k": 1 } }).unwrap();
        let mut scan = PageScan::of(&find, ScanDirection::Forward);
        assert_eq!(taken(&mut scan, &pages), [0, 1, 2, 3, 6, 2, 5], "{mark}");
    }
}

/// Four pages. Two items of the second page have got other times: one much later, one before all
/// others.
#[test]
fn item_whose_time_changed_during_a_scan_is_omitted() {
    let mut pages = pages(&[4, 4, 4, 2]);
    let items: RawArrayBuf = [(4, 90), (5, 5), (6, -7), (7, 7)]
        .into_iter()
        .map(|(number, time)| rawdoc! { "_id": number, "t": date(time) })
        .collect();
    let control = rawdoc! {
        "v": 1, "page": 1, "from": date(-7), "to": date(90), "late": true, "kept": { "from": date(4), "to": date(7) },
    };
    pages[1] = rawdoc! { "k": 1, "count": 4, "history": items, "control": control };
    for (sort, direction) in [(1, ScanDirection::Forward), (-1, ScanDirection::Backward)] {
        let find = bucket_query(&rawdoc! { "find": "c", "filter": { "k": 1 }, "sort": { "t": sort } }).unwrap();
        let mut scan = PageScan::of(&find, direction);
        let mut expected = vec![0, 1, 2, 3, 5, 7, 8, 9, 10, 11, 12, 13];
        if sort < 0 {
            expected.reverse();
        }
        assert_eq!(taken(&mut scan, &pages), expected);
    }
}

/// The page has become late before any item was returned, so the scan cannot rely on the order.
#[test]
fn a_first_page_that_became_late_ends_the_scan() {
    let shape = shape();
    let find = bucket_query(&rawdoc! { "find": "c", "filter": { "k": 1 }, "sort": { "t": 1 } }).unwrap();
    let place = Location { page: 3, offset: 0 };
    let mut scan = PageScan::of(&find, ScanDirection::Forward).beginning(Start::At(place), 0);
    let control = rawdoc! { "v": 1, "page": 3, "late": true };
    let bucket = rawdoc! { "k": 1, "count": 0, "history": [], "control": control };
    assert_eq!(
        scan.take(&shape, &bucket, &mut DocumentBuffer::default()),
        ScanStep::OutOfOrder
    );
}

/// Late items were stored after a scan began, and then newer ones. The first of the new pages is
/// marked late, the others are marked unordered.
#[test]
fn items_after_a_late_page_are_in_order() {
    let mut pages = pages(&[4, 4, 4, 4]);
    let items: RawArrayBuf = [8, 9, 10, 90]
        .into_iter()
        .map(|number| rawdoc! { "_id": number, "t": date(number) })
        .collect();
    let control = rawdoc! { "v": 1, "page": 2, "from": date(8), "to": date(90) };
    pages[2] = rawdoc! { "k": 1, "count": 4, "history": items, "control": control };
    for mark in ["late", "unordered"] {
        let items: RawArrayBuf = [12, 13, 14, 95]
            .into_iter()
            .map(|number| rawdoc! { "_id": number, "t": date(number) })
            .collect();
        let mut control = rawdoc! { "v": 1, "page": 3, "from": date(12), "to": date(95) };
        control.append(<&bson::raw::CStr>::try_from(mark).unwrap(), true);
        pages[3] = rawdoc! { "k": 1, "count": 4, "history": items, "control": control };
        let find = bucket_query(&rawdoc! { "find": "c", "filter": { "k": 1 }, "sort": { "t": 1 } }).unwrap();
        let taken = taken(&mut PageScan::of(&find, ScanDirection::Forward), &pages);
        assert_eq!(taken, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 90, 95]);
    }
}

#[test]
fn a_mark_on_the_first_page_read_ends_the_scan() {
    let shape = shape();
    for (sort, page) in [(1, 0), (-1, 7)] {
        for mark in ["late", "unordered"] {
            let find = bucket_query(&rawdoc! { "find": "c", "filter": { "k": 1 }, "sort": { "t": sort } }).unwrap();
            let mut scan = PageScan::of(
                &find,
                if sort == 1 {
                    ScanDirection::Forward
                } else {
                    ScanDirection::Backward
                },
            );
            let mut control = rawdoc! { "v": 1, "page": page };
            control.append(<&bson::raw::CStr>::try_from(mark).unwrap(), true);
            let bucket = rawdoc! { "k": 1, "count": 0, "history": [], "control": control };
            assert_eq!(
                scan.take(&shape, &bucket, &mut DocumentBuffer::default()),
                ScanStep::OutOfOrder
            );
        }
    }
}

#[test]
fn page_scan_supports_filters_on_key_and_id_sorted_by_time() {
    let find = |more: RawDocumentBuf| {
        let mut body = rawdoc! { "find": "c" };
        for (name, value) in more.iter().flatten() {
            body.append(name, value);
        }
        bucket_query(&body).is_some()
    };
    assert!(find(rawdoc! {}));
    assert!(find(rawdoc! { "filter": { "k": 1 } }));
    assert!(find(
        rawdoc! { "filter": { "k": { "$in": [1, 2] } }, "projection": { "a": 1 } }
    ));
    assert!(find(
        rawdoc! { "filter": { "k": 1, "t": { "$gt": date(1) } }, "sort": { "k": 1, "t": -1 } }
    ));
    assert!(find(rawdoc! { "filter": { "_id": 5 } }));
    assert!(!find(rawdoc! { "filter": { "k": 1, "a": 1 }, "limit": 10 }));
    assert!(!find(rawdoc! { "filter": { "t": { "$gt": date(1) } } }));
    assert!(!find(
        rawdoc! { "filter": { "k": { "$in": [1, 2] } }, "sort": { "t": 1 } }
    ));
    assert!(!find(rawdoc! { "filter": { "k": 1 }, "sort": { "a": 1 } }));
    assert!(!find(rawdoc! { "filter": { "k": 1 }, "sort": { "t": 1, "a": 1 } }));
    assert!(!find(rawdoc! { "filter": { "k": 1 }, "collation": { "locale": "en" } }));
    assert!(!find(rawdoc! { "filter": { "k": 1 }, "projection": { "a.b": 1 } }));
    assert!(!find(rawdoc! { "filter": { "_id": { "$gt": 5 } } }));
}

#[test]
fn bucket_of_an_item_is_read_by_bounds() {
    let options = BucketOptions {
        item_ids: ItemIds::Unique,
        ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
    };
    let shape = BucketShape::new(options).unwrap();
    let query = |filter: &RawDocument, reach: Reach| {
        let find = Find {
            filter: Some(filter),
            ..Find::default()
        };
        let query = BucketQuery::of(&shape, &find).unwrap();
        let source = BucketSource {
            collection: "c",
            reach,
            has_item_id_index: true,
        };
        PageScan::of(&query, ScanDirection::Forward).query(source)
    };
    let page = rawdoc! { "control.v": { "$gte": 1 } };
    let has_items = rawdoc! { "count": { "$gt": 0 } };
    let with = |item: RawDocumentBuf| rawdoc! { "$and": [item, has_items.clone(), page.clone()] };
    let by_id = with(rawdoc! { "history._id": "x" });
    let with_key = rawdoc! {
        "$and": [{ "k": { "$eq": 1 } }, { "history._id": "x" }, has_items.clone(), page.clone()],
    };
    let of_document = with(rawdoc! { "history._id": { "a": 1 } });
    let bounds =
        rawdoc! { "min": { "control.v": 1, "history._id": "x" }, "max": { "control.v": 1, "history._id": "x\0" } };
    for (filter, reach, expected, bounds) in [
        (rawdoc! { "_id": "x" }, Reach::Bounds, None, Some(&bounds)),
        (
            rawdoc! { "_id": "x", "k": 1 },
            Reach::Bounds,
            Some(&with_key),
            Some(&bounds),
        ),
        (rawdoc! { "_id": "x" }, Reach::Conditions, Some(&by_id), None),
        // The value next to a document is not computed.
        (rawdoc! { "_id": { "a": 1 } }, Reach::Bounds, Some(&of_document), None),
    ] {
        let find = query(&filter, reach);
        let part = |name: &str| find.get_document(name).ok().map(RawDocument::to_owned);
        assert_eq!(part("filter").as_ref(), expected, "{filter:?}");
        for end in ["min", "max"] {
            let bound = bounds.map(|bounds| bounds.get_document(end).unwrap().to_owned());
            assert_eq!(part(end), bound, "{filter:?}");
        }
        assert_eq!(find.get_str("hint").unwrap(), index::ITEM_ID);
    }
}

#[test]
fn an_item_is_missed_where_its_bucket_has_another() {
    let shape = shape();
    let page = &pages(&[3])[0];
    // Whether the item is returned, and whether it was missed.
    for (id, is_found) in [(1, true), (7, false)] {
        let find = bucket_query(&rawdoc! { "find": "c", "filter": { "_id": id } }).unwrap();
        let mut scan = PageScan::of(&find, ScanDirection::Forward);
        assert!(!scan.missed_its_item() && !scan.is_at_the_end());
        let mut found = DocumentBuffer::default();
        scan.take(&shape, page, &mut found);
        assert_eq!(found.count(), u64::from(is_found), "{id}");
        assert_eq!(scan.missed_its_item(), !is_found, "{id}");
        assert!(scan.is_at_the_end());
    }
    let find = bucket_query(&rawdoc! { "find": "c", "filter": { "k": 1 }, "limit": 4 }).unwrap();
    let mut scan = PageScan::of(&find, ScanDirection::Forward);
    scan.take(&shape, page, &mut DocumentBuffer::default());
    assert!(scan.left() == Some(1) && !scan.missed_its_item());
}

#[test]
fn scan_of_several_keys_cannot_be_resumed() {
    for (filter, can_go_on) in [
        (rawdoc! { "k": 1 }, true),
        (rawdoc! { "_id": 1 }, true),
        (rawdoc! { "k": { "$gt": 1 } }, false),
        (rawdoc! {}, false),
    ] {
        let find = bucket_query(&rawdoc! { "find": "c", "filter": filter.clone() }).unwrap();
        let scan = PageScan::of(&find, ScanDirection::Forward);
        assert_eq!(scan.can_go_on(), can_go_on, "{filter:?}");
    }
}

#[test]
fn batch_size_is_the_number_of_buckets_that_hold_the_items() {
    // A key's pages hold four items.
    let at = |offset: u64| Start::At(Location { page: 3, offset });
    for (sort, start, skip, items, expected) in [
        (1, Start::End, 0, 4, 1),
        (1, Start::End, 0, 5, 2),
        (1, Start::End, 3, 5, 2),
        (1, Start::End, 0, 0, 1),
        // The highest page is half full.
        (-1, Start::End, 0, 2, 1),
        (-1, Start::End, 0, 3, 2),
        (1, at(3), 0, 1, 1),
        (1, at(3), 0, 2, 2),
        (-1, at(0), 0, 1, 1),
        (-1, at(0), 0, 2, 2),
        (-1, at(3), 0, 4, 1),
        (1, Start::Before(2), 0, 4, 2),
        (1, Start::Before(2), 0, 5, 3),
    ] {
        let find = bucket_query(&rawdoc! { "find": "c", "filter": { "k": 1 }, "sort": { "t": sort } }).unwrap();
        let direction = if sort == 1 {
            ScanDirection::Forward
        } else {
            ScanDirection::Backward
        };
        let scan = PageScan::of(&find, direction).beginning(start, skip);
        assert_eq!(
            scan.buckets_for(&shape(), items),
            expected,
            "{sort} {start:?} {skip} {items}"
        );
    }
}

#[test]
fn scan_by_time_ends_after_its_range_unless_the_page_is_late() {
    let filter = rawdoc! { "k": 1, "t": { "$lte": date(2) } };
    let find = bucket_query(&rawdoc! { "find": "c", "filter": filter, "sort": { "t": 1 } }).unwrap();
    let pages = pages(&[4, 2]);
    for (is_late, step) in [(false, ScanStep::Done), (true, ScanStep::More)] {
        let mut scan = PageScan::of(&find, ScanDirection::Forward);
        let mut found = DocumentBuffer::default();
        assert_eq!(scan.take(&shape(), &pages[0], &mut found), ScanStep::More);
        let mut control = pages[1].get_document("control").unwrap().to_owned();
        if is_late {
            control.append(cstr!("late"), true);
        }
        let items = pages[1].get_array("history").unwrap().to_owned();
        let page = rawdoc! { "k": 1, "count": 2, "history": items, "control": control };
        assert_eq!(scan.take(&shape(), &page, &mut found), step);
        assert_eq!(found.count(), 3);
    }
}
