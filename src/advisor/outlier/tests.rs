use bson::doc;
use bson::raw::{RawArrayBuf, RawDocumentBuf, cstr};

use super::super::tests::{book_facts, book_sample};
use super::*;

fn sample_of(lengths: &[i32]) -> Sample {
    let document = |length: &i32| {
        let mut array = RawArrayBuf::new();
        (0..*length).for_each(|number| array.push(number));
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("tags"), array);
        document
    };
    Sample::new(lengths.iter().map(document).collect(), false)
}

#[test]
fn books_with_very_many_buyers_are_outliers() {
    let found = decide(&book_facts(), &book_sample(), &Traffic::default()).unwrap();
    assert_eq!(
        (found.array.as_str(), found.threshold, found.extras),
        ("buyers", 50, None)
    );
    assert_eq!(
        (found.seen, found.outliers, found.longest, found.median),
        (2, 20, 1000, 20)
    );
    assert_eq!(
        found.histogram,
        [
            (0, 0),
            (10, 0),
            (20, 198),
            (50, 0),
            (100, 0),
            (200, 0),
            (500, 0),
            (1000, 2)
        ]
    );
    // 950 elements of two documents: each has a type, a name and an int32.
    assert!((20 * 950 * 7..20 * 950 * 10).contains(&found.moved), "{}", found.moved);
    assert_eq!(found.pages, 20);
}

#[test]
fn threshold_is_above_typical_lengths_and_limits_of_queries() {
    let check = |lengths: &[i32], slice: i32, expected: Option<u32>| {
        let mut traffic = Traffic::default();
        let find = doc! { "find": "c", "projection": { "tags": { "$slice": slice } } };
        traffic.add_profiled(&doc! { "op": "query", "command": find });
        let found = decide(&book_facts(), &sample_of(lengths), &traffic).ok();
        assert_eq!(found.map(|found| found.threshold), expected);
    };
    let mut lengths = vec![80; 995];
    lengths.extend([4000; 5]);
    check(&lengths, 10, Some(100));
    check(&lengths, 300, Some(500));
    // Three in a hundred arrays are long, so the 99th percentile is within the tail.
    let mut lengths = vec![80; 970];
    lengths.extend([4000; 30]);
    check(&lengths, 10, Some(100));
    check(&[10, 20, 30, 40], 10, None);
    check(&[4000; 100], 10, None);
    check(&[], 10, None);
}

#[test]
fn reasons_against_are_reported() {
    let check = |facts: &CollectionStats, sample: &Sample, expected: &str| {
        let reasons = decide(facts, sample, &Traffic::default()).unwrap_err();
        assert_eq!(reasons, [expected]);
    };
    let mut facts = book_facts();
    facts.add_indexes(&[doc! { "key": { "buyers": 1 }, "name": "buyers_1", "unique": true }]);
    check(&facts, &book_sample(), "buyers has the index buyers_1, which is unique");
    check(
        &book_facts(),
        &sample_of(&[1, 2, 3]),
        "the lengths of tags have no long tail: the median is 2, the 99th percentile 3, the maximum 3",
    );
    check(&book_facts(), &Sample::default(), "no top-level field is an array");
    facts.unfit.push("is capped".to_owned());
    check(&facts, &book_sample(), "is capped");
}

#[test]
fn extras_have_a_collection_of_their_own() {
    let mut facts = book_facts();
    facts.beside = vec!["sales".to_owned(), "extra_sales".to_owned(), "extra_sales_2".to_owned()];
    assert_eq!(extras(&facts).as_deref(), Some("extra_sales_3"));
}
