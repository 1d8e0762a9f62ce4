use bson::raw::RawArrayBuf;
use bson::{RawDocumentBuf, rawdoc};
use proptest::prelude::*;

use super::*;
use crate::command::find::Find;
use crate::pattern::shapes::{BucketOptions, NamespacePattern};

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

/// The position of an item in the order of insertion.
fn inserted(page: usize, place: usize) -> i32 {
    i32::try_from(10 * page + place).unwrap()
}

fn page((number, times): (usize, &Vec<i64>)) -> RawDocumentBuf {
    let item = |(place, time): (usize, &i64)| rawdoc! { "t": date(*time), "n": inserted(number, place) };
    let items: RawArrayBuf = times.iter().enumerate().map(item).collect();
    let control = rawdoc! {
        "v": 1, "page": i32::try_from(number).unwrap(),
        "from": date(*times.iter().min().unwrap()), "to": date(*times.iter().max().unwrap()),
    };
    rawdoc! { "k": 1, "count": i32::try_from(times.len()).unwrap(), "history": items, "control": control }
}

fn contents(documents: &mut DocumentBuffer) -> Vec<(i64, i32)> {
    let mut contents = Vec::new();
    while let Some(document) = documents.first() {
        let document = RawDocument::from_bytes(document).unwrap();
        let time = document.get_datetime("t").unwrap().timestamp_millis();
        contents.push((time, document.get_i32("n").unwrap()));
        documents.advance();
    }
    contents
}

proptest! {
    /// The chosen pages contain the items that sorting all items would return. Items of equal time
    /// are in the order of insertion, in a descending sort in the reverse order.
    #[test]
    fn merging_chosen_pages_is_sorting_all_items(
        pages in prop::collection::vec(prop::collection::vec(0_i64..20, 1..5), 1..12),
        skip in 0_i32..30,
        limit in 1_i32..10,
        from in prop::option::of(0_i64..20),
        to in prop::option::of(0_i64..20),
        descending: bool,
    ) {
        let shape = shape();
        let mut filter = rawdoc! { "k": 1 };
        let mut range = RawDocumentBuf::new();
        if let Some(from) = from { range.append(bson::raw::cstr!("$gte"), date(from)); }
        if let Some(to) = to { range.append(bson::raw::cstr!("$lt"), date(to)); }
        if !range.is_empty() { filter.append(bson::raw::cstr!("t"), range); }
        let sort = rawdoc! { "t": if descending { -1 } else { 1 } };
        let body = rawdoc! { "find": "c", "filter": filter, "sort": sort, "skip": skip, "limit": limit };
        let query = BucketQuery::of(&shape, &Find::parse(&body).unwrap()).unwrap();

        let inside = |time: &i64| from.is_none_or(|from| *time >= from) && to.is_none_or(|to| *time < to);
        let of_page = |(page, times): (usize, &Vec<i64>)| -> Vec<(i64, i32)> {
            times.iter().enumerate().map(|(place, time)| (*time, inserted(page, place))).collect()
        };
        let mut expected: Vec<(i64, i32)> = pages.iter().enumerate().flat_map(of_page).collect();
        expected.retain(|(time, _)| inside(time));
        expected.sort_by_key(|(time, _)| *time);
        if descending { expected.reverse(); }
        let expected: Vec<(i64, i32)> =
            expected.into_iter().skip(usize::try_from(skip).unwrap()).take(usize::try_from(limit).unwrap()).collect();

        let stored: Vec<RawDocumentBuf> = pages.iter().enumerate().map(page).collect();
        let buckets: Vec<Bucket<'_>> = stored.iter().map(|page| Bucket::open(&shape, page).unwrap()).collect();
        let touched = |bounds: &PageBounds| !query.range.is_after(bounds.to) && !query.range.is_before(bounds.from);
        let bounds: Vec<PageBounds> = buckets.iter().filter_map(PageBounds::of).filter(touched).collect();
        let chosen = choose(&query, &bounds);
        let read: Vec<Bucket<'_>> = buckets.iter().copied().filter(|bucket| chosen.pages.contains(&bucket.page)).collect();
        let mut found = DocumentBuffer::default();
        let skip = query.skip - chosen.passed;
        let window = MergeWindow { skip, unread: Unread::None };
        prop_assert!(merge(&shape, &query, window, &read, &mut found));
        prop_assert_eq!(contents(&mut found), expected);
    }
}

#[test]
fn pages_far_away_are_not_chosen() {
    let shape = shape();
    let pages: Vec<PageBounds> = (0..100_u32)
        .map(|page| PageBounds {
            page: page.into(),
            count: 10,
            from: date(i64::from(page) * 10),
            to: date(i64::from(page) * 10 + 12),
        })
        .collect();
    for (direction, expected) in [(1, [3, 4, 5]), (-1, [94, 95, 96])] {
        let body = rawdoc! {
            "find": "c", "filter": { "k": 1 }, "sort": { "t": direction }, "skip": 40, "limit": 10,
        };
        let query = BucketQuery::of(&shape, &Find::parse(&body).unwrap()).unwrap();
        let expected = ChosenPages {
            pages: expected.to_vec(),
            passed: 30,
        };
        assert_eq!(choose(&query, &pages), expected, "{direction}");
    }
}

#[test]
fn merge_stops_where_unread_pages_may_have_items() {
    let shape = shape();
    let stored = page((0, &vec![1, 5, 9]));
    let buckets = [Bucket::open(&shape, &stored).unwrap()];
    // Two items, and the position of items that were not read.
    for (direction, unread, expected) in [
        (1, Unread::From(date(6)), Some([1, 5])),
        (1, Unread::From(date(5)), None),
        (1, Unread::From(date(4)), None),
        (1, Unread::None, Some([1, 5])),
        (-1, Unread::From(date(4)), Some([9, 5])),
        (-1, Unread::From(date(5)), None),
        (-1, Unread::From(date(6)), None),
        (-1, Unread::None, Some([9, 5])),
    ] {
        let body = rawdoc! { "find": "c", "filter": { "k": 1 }, "sort": { "t": direction }, "limit": 2 };
        let query = BucketQuery::of(&shape, &Find::parse(&body).unwrap()).unwrap();
        let mut found = DocumentBuffer::default();
        let window = MergeWindow { skip: 0, unread };
        let is_known = merge(&shape, &query, window, &buckets, &mut found);
        let times: Vec<i64> = contents(&mut found).into_iter().map(|(time, _)| time).collect();
        assert_eq!(
            is_known.then_some(times),
            expected.map(Vec::from),
            "{direction} {unread:?}"
        );
    }
}

/// Items of one time are in the order of their pages, so a page may have items on both sides of another's.
#[test]
fn pages_that_share_a_time_bound_are_chosen_together() {
    let shape = shape();
    let stored = [page((0, &vec![5, 9])), page((1, &vec![1, 5]))];
    let buckets = stored.each_ref().map(|page| Bucket::open(&shape, page).unwrap());
    let bounds: Vec<PageBounds> = buckets.iter().filter_map(PageBounds::of).collect();
    for (direction, skip, expected) in [(1, 0, [(1, 10), (5, 0)]), (-1, 2, [(5, 0), (1, 10)])] {
        let body = rawdoc! {
            "find": "c", "filter": { "k": 1 }, "sort": { "t": direction }, "skip": skip, "limit": 2,
        };
        let query = BucketQuery::of(&shape, &Find::parse(&body).unwrap()).unwrap();
        let chosen = choose(&query, &bounds);
        let both = ChosenPages {
            pages: vec![0, 1],
            passed: 0,
        };
        assert_eq!(chosen, both, "{direction}");
        let mut found = DocumentBuffer::default();
        let window = MergeWindow {
            skip: query.skip,
            unread: Unread::None,
        };
        assert!(merge(&shape, &query, window, &buckets, &mut found));
        assert_eq!(contents(&mut found), expected, "{direction}");
    }
}
