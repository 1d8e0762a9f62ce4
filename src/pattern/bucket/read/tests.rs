use bson::rawdoc;
use proptest::prelude::*;

use super::*;
use crate::pattern::shapes::{BucketOptions, NamespacePattern};

const MAX_ITEMS: usize = 4;

fn shape() -> BucketShape {
    let options = BucketOptions {
        time: Some("t".to_owned()),
        max_items: u32::try_from(MAX_ITEMS).unwrap(),
        ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
    };
    BucketShape::new(options).unwrap()
}

/// Pages with that many items each, numbered through; all but the last that are not full are short.
fn pages(counts: &[usize]) -> Vec<RawDocumentBuf> {
    let mut next = 0;
    let last = counts.len() - 1;
    let page = |(page, count): (usize, &usize)| {
        let items: bson::raw::RawArrayBuf = (0..*count)
            .map(|_| {
                next += 1;
                rawdoc! { "_id": next - 1 }
            })
            .collect();
        let mut control = rawdoc! { "v": 1, "page": i32::try_from(page).unwrap(), "bytes": 1 };
        if page < last && *count < MAX_ITEMS {
            control.append(cstr!("exception"), true);
            control.append(cstr!("short"), true);
        }
        rawdoc! { "_id": "x", "k": 1, "count": i32::try_from(*count).unwrap(), "history": items, "control": control }
    };
    counts.iter().enumerate().map(page).collect()
}

fn read(body: &RawDocument) -> Option<PageRead> {
    PageRead::of(&shape(), &Find::parse(body).unwrap())
}

proptest! {
    /// Any stretch, from the front or the back, over pages short and full, is the stretch of the items in a row.
    #[test]
    fn a_window_is_a_stretch_of_the_items(
        counts in prop::collection::vec(0..=MAX_ITEMS, 1..8),
        skip in 0_i32..30,
        limit in 1_i32..30,
        newest_first: bool,
    ) {
        let shape = shape();
        let buckets = pages(&counts);
        let total = i32::try_from(counts.iter().sum::<usize>()).unwrap();
        let direction = if newest_first { -1 } else { 1 };
        let body = rawdoc! { "find": "c", "filter": { "k": 1 }, "sort": { "t": direction }, "skip": skip, "limit": limit };
        let read = read(&body).unwrap();
        let marked = buckets.iter().filter(|bucket| bucket.get_document("control").unwrap().get("short").unwrap().is_some());
        let exceptions = Exceptions::parse(&shape, marked.map(AsRef::as_ref));
        let highest = PageFacts::parse(&shape, buckets.last().unwrap());
        let mut items = Vec::new();
        let mut window = read.window(&shape, &exceptions, highest.as_ref());
        while let Some(wanted) = window {
            let query = read.buckets_query(&shape, "c", &wanted);
            let first = usize::try_from(wanted.start.page).unwrap().min(buckets.len());
            let asked = usize::try_from(query.get_i64("limit").unwrap()).unwrap();
            let found = buckets[first..].iter().take(asked).map(AsRef::as_ref);
            window = match wanted.take(&shape, found, &mut items) {
                Progress::More(rest) => Some(rest),
                Progress::Done => None,
                Progress::TooLarge => panic!("too large"),
            };
        }
        let ids: Vec<i32> = read.finish(items).iter().map(|item| item.get_i32("_id").unwrap()).collect();
        let mut expected: Vec<i32> = (0..total).collect();
        if newest_first {
            expected.reverse();
        }
        let expected: Vec<i32> = expected.into_iter().skip(usize::try_from(skip).unwrap()).take(usize::try_from(limit).unwrap()).collect();
        prop_assert_eq!(ids, expected);
    }
}

#[test]
fn only_whole_answers_on_one_key_are_read_by_page() {
    let find = |more: RawDocumentBuf| {
        let mut body = rawdoc! { "find": "c" };
        for (name, value) in more.iter().flatten() {
            body.append(name, value);
        }
        read(&body).is_some()
    };
    assert!(find(rawdoc! { "filter": { "k": 1 }, "limit": 10 }));
    assert!(find(
        rawdoc! { "filter": { "k": 1 }, "limit": 101, "projection": { "a": 1 } }
    ));
    assert!(!find(rawdoc! { "filter": { "k": 1 } }));
    assert!(!find(rawdoc! { "filter": { "k": 1 }, "limit": 102 }));
    assert!(!find(rawdoc! { "filter": { "k": 1 }, "limit": 10, "batchSize": 5 }));
    assert!(!find(rawdoc! { "filter": { "k": 1, "a": 1 }, "limit": 10 }));
    assert!(!find(rawdoc! { "filter": {}, "limit": 10 }));
    assert!(!find(rawdoc! { "filter": { "k": 1 }, "limit": 10, "sort": { "a": 1 } }));
    assert!(!find(
        rawdoc! { "filter": { "k": 1 }, "limit": 10, "sort": { "t": 1, "a": 1 } }
    ));
    assert!(!find(
        rawdoc! { "filter": { "k": 1 }, "limit": 10, "collation": { "locale": "en" } }
    ));
    assert!(!find(
        rawdoc! { "filter": { "k": 1 }, "limit": 10, "projection": { "a.b": 1 } }
    ));
}
