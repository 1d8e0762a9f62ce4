//! Where a scan begins and ends.

use super::*;

/// A page with one item at each of its bounds, which is closed.
fn page(number: i32, bounds: [i32; 2]) -> RawDocumentBuf {
    let items: RawArrayBuf = bounds
        .into_iter()
        .map(|time| rawdoc! { "_id": time, "t": date(time) })
        .collect();
    let [from, to] = bounds.map(date);
    let control = rawdoc! { "v": 1, "page": number, "from": from, "to": to, "short": true };
    rawdoc! { "k": 1, "count": 2, "history": items, "control": control }
}

fn marked(page: &RawDocument, mark: &bson::raw::CStr) -> RawDocumentBuf {
    let mut control = page.get_document("control").unwrap().to_owned();
    control.append(mark, true);
    let items = page.get_array("history").unwrap().to_owned();
    rawdoc! { "k": 1, "count": page.get_i32("count").unwrap(), "history": items, "control": control }
}

#[test]
fn scan_ends_at_an_open_page_or_the_first() {
    let (forward, backward) = (ScanDirection::Forward, ScanDirection::Backward);
    let find = bucket_query(&rawdoc! { "find": "c", "filter": { "k": 1 } }).unwrap();
    let open = |number: i32| rawdoc! { "k": 1, "count": 3, "history": [], "control": { "v": 1, "page": number } };
    let full = |number: i32| rawdoc! { "k": 1, "count": 4, "history": [], "control": { "v": 1, "page": number } };
    for (direction, met, is_at_the_end) in [
        (forward, open(3), true),
        (forward, full(3), false),
        (forward, page(3, [1, 2]), false),
        (backward, full(3), false),
        (backward, open(3), false),
        (backward, full(0), true),
    ] {
        let mut scan = PageScan::of(&find, direction);
        assert!(!scan.is_at_the_end());
        let step = scan.take(&shape(), &met, &mut DocumentBuffer::default());
        assert_eq!(step, ScanStep::More);
        assert_eq!(scan.is_at_the_end(), is_at_the_end, "{direction:?} {met:?}");
    }
}

#[test]
fn pages_to_the_end_of_a_range_are_estimated_from_the_last_page() {
    for (direction, range, met, expected) in [
        (
            1,
            rawdoc! { "$gte": date(0), "$lt": date(100) },
            page(4, [10, 20]),
            Some(9),
        ),
        (
            -1,
            rawdoc! { "$gte": date(0), "$lt": date(100) },
            page(4, [10, 20]),
            Some(2),
        ),
        (
            1,
            rawdoc! { "$gte": date(0), "$lt": date(20) },
            page(4, [10, 20]),
            Some(1),
        ),
        // Of a page with one time, and of a range that is open there.
        (
            1,
            rawdoc! { "$gte": date(0), "$lt": date(100) },
            page(4, [10, 10]),
            None,
        ),
        (1, rawdoc! { "$gte": date(0) }, page(4, [10, 20]), None),
    ] {
        let filter = rawdoc! { "k": 1, "t": range };
        let find = bucket_query(&rawdoc! { "find": "c", "filter": filter, "sort": { "t": direction } }).unwrap();
        let direction = if direction > 0 {
            ScanDirection::Forward
        } else {
            ScanDirection::Backward
        };
        let mut scan = PageScan::of(&find, direction).beginning(Start::Before(3), 0);
        assert_eq!(scan.pages_to_end_of_range(), None);
        scan.take(&shape(), &met, &mut DocumentBuffer::default());
        assert_eq!(scan.pages_to_end_of_range(), expected, "{direction:?} {met:?}");
    }
}

#[test]
fn page_before_the_range_must_end_before_it() {
    let newer = rawdoc! { "$gte": date(10) };
    let older = rawdoc! { "$lte": date(10) };
    for (direction, range, start, met, expected) in [
        (1, &newer, 3, page(3, [5, 9]), ScanStep::More),
        (1, &newer, 3, page(3, [5, 10]), ScanStep::OutOfOrder),
        // The page was removed.
        (1, &newer, 3, page(4, [5, 10]), ScanStep::More),
        // No page is before the first one.
        (1, &newer, 0, page(0, [5, 10]), ScanStep::More),
        (-1, &older, 3, page(3, [11, 15]), ScanStep::More),
        (-1, &older, 3, page(3, [10, 15]), ScanStep::OutOfOrder),
        (-1, &older, 3, page(2, [10, 15]), ScanStep::More),
    ] {
        let filter = rawdoc! { "k": 1, "t": range.clone() };
        let find = bucket_query(&rawdoc! { "find": "c", "filter": filter, "sort": { "t": direction } }).unwrap();
        let direction = if direction == 1 {
            ScanDirection::Forward
        } else {
            ScanDirection::Backward
        };
        let mut scan = PageScan::of(&find, direction).beginning(Start::Before(start), 0);
        let step = scan.take(&shape(), &met, &mut DocumentBuffer::default());
        assert_eq!(step, expected, "{direction:?} {start} {met:?}");
    }
}

#[test]
fn items_are_passed_over_where_a_scan_begins() {
    let pages = pages(&[4, 2]);
    let find = bucket_query(&rawdoc! { "find": "c", "filter": { "k": 1 } }).unwrap();
    for (offset, skip, expected) in [
        (0, 0, vec![0, 1, 2, 3, 4, 5]),
        (1, 0, vec![1, 2, 3, 4, 5]),
        (1, 2, vec![3, 4, 5]),
        (2, 3, vec![5]),
    ] {
        let start = Start::At(Location { page: 0, offset });
        let mut scan = PageScan::of(&find, ScanDirection::Forward).beginning(start, skip);
        assert_eq!(taken(&mut scan, &pages), expected, "{offset} {skip}");
    }
}

#[test]
fn pages_after_the_first_of_a_scan_are_read_whole() {
    let find = bucket_query(&rawdoc! { "find": "c", "filter": { "k": 1 } }).unwrap();
    for (number, taken) in [(2, 1), (3, 2)] {
        let start = Start::At(Location { page: 2, offset: 1 });
        let mut scan = PageScan::of(&find, ScanDirection::Forward).beginning(start, 0);
        let mut found = DocumentBuffer::default();
        scan.take(&shape(), &page(number, [1, 2]), &mut found);
        assert_eq!(found.count(), taken, "{number}");
    }
}

#[test]
fn a_scan_takes_no_more_than_its_limit() {
    let whole = page(0, [1, 2]);
    for (limit, left, step) in [
        (0, [None, None], ScanStep::More),
        (5, [Some(5), Some(3)], ScanStep::More),
        (1, [Some(1), Some(0)], ScanStep::Done),
    ] {
        let find = bucket_query(&rawdoc! { "find": "c", "filter": { "k": 1 }, "limit": limit }).unwrap();
        let mut scan = PageScan::of(&find, ScanDirection::Forward);
        let before = scan.left();
        assert_eq!(scan.take(&shape(), &whole, &mut DocumentBuffer::default()), step);
        assert_eq!([before, scan.left()], left, "{limit}");
    }
}

#[test]
fn a_backward_scan_asks_for_the_highest_pages_first() {
    let find = bucket_query(&rawdoc! { "find": "c", "filter": { "k": 1 }, "sort": { "t": -1 } }).unwrap();
    let start = Start::At(Location { page: 3, offset: 1 });
    let scan = PageScan::of(&find, ScanDirection::Backward).beginning(start, 0);
    let source = BucketSource {
        collection: "c",
        reach: Reach::Conditions,
        has_item_id_index: true,
    };
    let expected = rawdoc! {
        "find": "c", "hint": "mongoshape_page",
        "filter": { "k": { "$eq": 1 }, "control.page": { "$lt": 4_i64 } },
        "sort": { "control.page": -1 },
    };
    assert_eq!(scan.query(source), expected);
}

/// The greatest time of the page before counts as passed, although the range excludes it.
#[test]
fn late_item_before_the_scan_position_is_omitted() {
    let pages = pages(&[4, 4, 4]);
    for (most, before) in [(2, &pages[..1]), (6, &pages[..2])] {
        let filter = rawdoc! { "k": 1, "t": { "$lte": date(most) } };
        let find = bucket_query(&rawdoc! { "find": "c", "filter": filter, "sort": { "t": 1 } }).unwrap();
        let start = Start::At(Location { page: 0, offset: 0 });
        let mut scan = PageScan::of(&find, ScanDirection::Forward).beginning(start, 0);
        let mut found = DocumentBuffer::default();
        // A page has become late, and the first page is marked.
        let first = marked(&before[0], cstr!("unordered"));
        assert_eq!(scan.take(&shape(), &first, &mut found), ScanStep::More);
        for page in &before[1..] {
            assert_eq!(scan.take(&shape(), page, &mut found), ScanStep::More);
        }
        let late = marked(&page(2, [most, 90]), cstr!("late"));
        assert_eq!(scan.take(&shape(), &late, &mut found), ScanStep::More);
        assert_eq!(found.count(), u64::try_from(most + 1).unwrap());
    }
}
