use bson::raw::RawDocumentBuf;
use bson::{DateTime, doc, rawdoc};

use super::super::sizes::Known;
use super::super::tests::{self, key, trade_facts, trade_sample};
use super::*;

fn advise(facts: &CollectionStats, sample: &Sample, traffic: &Traffic) -> Result<BucketProposal, Vec<String>> {
    tests::decide(Evidence { facts, sample, traffic })
}

#[test]
fn trades_of_a_customer_are_pages() {
    let (facts, sample) = (trade_facts(), trade_sample());
    assert!(against(&facts, &sample, &Traffic::default()).is_empty());
    let bucket = advise(&facts, &sample, &Traffic::default()).unwrap();
    assert_eq!(
        (bucket.key.clone(), bucket.time.as_deref(), bucket.max_items),
        (key(&["customerId"]), Some("date"), 10)
    );
    assert_eq!(bucket.why, ["an index begins with it, followed by the time"]);
    assert_eq!((bucket.keys(), bucket.sizes.known), (20, Known::Guessed));
    // 100,000 items of 20 keys. The last page of each key is half full on average.
    assert_eq!(bucket.then.documents, 10_010);
    // `_id` and the index on customer and date have an entry for each item now. Then five indexes and the one
    // on customer and date have one for each page.
    assert_eq!(bucket.now.entries, 200_000);
    assert!(
        (149_000..=151_000).contains(&bucket.then.entries),
        "{}",
        bucket.then.entries
    );
    assert!(
        (1_200_000..=3_600_000).contains(&bucket.then.indexes),
        "{}",
        bucket.then.indexes
    );
    assert!(bucket.without_ids.storage < bucket.then.storage, "{bucket:?}");
    assert!((0.99..=1.0).contains(&bucket.fill()), "{}", bucket.fill());
    let renames: Vec<_> = bucket.renames.names.keys().map(String::as_str).collect();
    assert_eq!(renames, ["quantity", "ticker"].map(|name| name).to_vec());
}

#[test]
fn a_page_takes_what_the_proxy_stores() {
    let bucket = advise(&trade_facts(), &trade_sample(), &Traffic::default()).unwrap();
    let of_item = bucket.then.data / 100_000;
    // Measured by `bench insert`: 93 bytes, before pages had reservations. Here without the rename,
    // and with a nonce.
    assert!((95..=105).contains(&of_item), "{of_item}");
}

#[test]
fn traffic_finds_the_key_and_the_size_of_pages() {
    let mut facts = trade_facts();
    facts.indexes.truncate(1);
    let sample = trade_sample();
    assert_eq!(
        advise(&facts, &sample, &Traffic::default()).unwrap_err(),
        ["no index begins with a field of repeated values, and no query has an equality on one"]
    );
    let mut traffic = Traffic::default();
    for _ in 0..3 {
        let find = doc! { "find": "trades", "filter": { "customerId": 7 }, "sort": { "date": -1 }, "limit": 40 };
        traffic.add_profiled(&doc! { "op": "query", "command": find });
    }
    let bucket = advise(&facts, &sample, &traffic).unwrap();
    assert_eq!((bucket.key.clone(), bucket.max_items), (key(&["customerId"]), 50));
    assert_eq!(bucket.why, ["3 of 3 observed queries (100 %) have an equality on it"]);
    assert_eq!(
        bucket.why_page,
        "observed reads of a key have the limit 40 (the median of 3 reads)"
    );
}

#[test]
fn key_that_is_read_whole_gets_larger_pages() {
    let mut traffic = Traffic::default();
    traffic.add_profiled(&doc! { "op": "query", "command": { "find": "trades", "filter": { "customerId": 7 } } });
    let bucket = advise(&trade_facts(), &trade_sample(), &traffic).unwrap();
    assert_eq!(bucket.max_items, 100);
}

#[test]
fn all_reasons_against_are_reported() {
    let mut facts = trade_facts();
    facts.add_indexes(&[doc! { "key": { "ticker": 1 }, "name": "ticker_1", "unique": true, "sparse": true }]);
    facts.documents = 10;
    facts.data = 10 << 20;
    let mut traffic = Traffic::default();
    traffic.add_change_stream();
    let expected = [
        "has the index ticker_1, which is sparse; bucket collections do not support it",
        "has only 10 documents",
        "its documents are large, 1048576 bytes on average",
    ];
    assert_eq!(against(&facts, &trade_sample(), &traffic), expected);
}

#[test]
fn few_documents_of_a_key_fill_no_page() {
    let document = |number: i32| rawdoc! { "_id": number, "customerId": number, "date": DateTime::from_millis(0) };
    let documents: Vec<RawDocumentBuf> = (0..1000).map(document).collect();
    let reasons = advise(&trade_facts(), &Sample::new(documents, false), &Traffic::default()).unwrap_err();
    assert_eq!(
        reasons,
        ["a key of customerId has 1.0 documents on average, which do not fill a page"]
    );
}

#[test]
fn a_shape_that_is_forecast_to_take_more_is_not_proposed() {
    let mut facts = trade_facts();
    // The documents compress better than pages.
    facts.storage = 500_000;
    facts.indexes[1].bytes = 600_000;
    let reasons = advise(&facts, &trade_sample(), &Traffic::default()).unwrap_err();
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert!(reasons[0].starts_with("pages by customerId would need "), "{reasons:?}");
    assert!(
        reasons[0].contains("with item_ids = \"stored\" the pages would need"),
        "{reasons:?}"
    );
    // Sizes from before a checkpoint are not used for the decision.
    facts.storage = 4096;
    let bucket = advise(&facts, &trade_sample(), &Traffic::default()).unwrap();
    assert!(bucket.is_before_checkpoint);
}

#[test]
fn an_index_alone_is_not_enough() {
    let mut facts = trade_facts();
    facts.add_indexes(&[doc! { "key": { "ticker": 1 }, "name": "ticker_1" }]);
    let reasons = advise(&facts, &trade_sample(), &Traffic::default()).unwrap_err();
    assert!(
        reasons[0].starts_with("an index begins with ticker, but there is no evidence"),
        "{reasons:?}"
    );
}

#[test]
fn a_longer_key_is_taken_where_its_pages_are_full() {
    let mut facts = trade_facts();
    facts.add_indexes(&[doc! { "key": { "customerId": 1, "ticker": 1, "date": 1 }, "name": "long" }]);
    facts.indexes[0].bytes = 2_500_000;
    let bucket = advise(&facts, &trade_sample(), &Traffic::default()).unwrap();
    assert_eq!(bucket.key, key(&["customerId", "ticker"]));
}
