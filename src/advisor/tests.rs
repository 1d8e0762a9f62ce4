//! Collections for the other tests.

use std::collections::BTreeMap;

use bson::raw::{RawArrayBuf, RawDocumentBuf, cstr};
use bson::{DateTime, doc, rawdoc};

use super::bucket::{self, BucketProposal, ReadCandidate};
use super::candidate::candidates;
use super::collection_stats::CollectionStats;
use super::evidence::Evidence;
use super::outlier::{self, OutlierProposal};
use super::sample::Sample;
use super::sizes::Sizes;
use super::traffic::Traffic;

pub(super) fn key(fields: &[&str]) -> Vec<String> {
    fields.iter().map(|field| (*field).to_owned()).collect()
}

/// 100,000 trades with an index on customer and date.
pub(super) fn trade_facts() -> CollectionStats {
    let mut facts = CollectionStats::of("shop", &doc! { "name": "trades", "type": "collection", "options": {} });
    facts.add_indexes(&[
        doc! { "key": { "_id": 1 }, "name": "_id_" },
        doc! { "key": { "customerId": 1, "date": 1 }, "name": "reading" },
    ]);
    let sizes = doc! { "_id_": 2_000_000, "reading": 1_200_000 };
    facts.add_statistics(&doc! { "count": 100_000, "size": 9_730_000, "storageSize": 2_900_000, "indexSizes": sizes });
    facts
}

/// A sample of 20 customers.
pub(super) fn trade_sample() -> Sample {
    let document = |number: i32| {
        let mut id = [7; 12];
        id[8..].copy_from_slice(&number.to_be_bytes());
        let ticker = ["MDB", "AAPL", "GOOG"][usize::try_from(number).unwrap() % 3];
        rawdoc! {
            "_id": bson::oid::ObjectId::from_bytes(id),
            "customerId": number % 20,
            "date": DateTime::from_millis(1_700_000_000_000 + i64::from(number)),
            "ticker": ticker,
            "quantity": number % 100,
            "side": "buy",
        }
    };
    Sample::new((0..2000).map(document).collect(), false)
}

pub(super) fn trades() -> BucketProposal {
    let (facts, sample, traffic) = (trade_facts(), trade_sample(), Traffic::default());
    decide(Evidence {
        facts: &facts,
        sample: &sample,
        traffic: &traffic,
    })
    .unwrap()
}

/// Decides with the sample alone.
pub(super) fn decide(evidence: Evidence<'_>) -> Result<BucketProposal, Vec<String>> {
    let Evidence { facts, sample, traffic } = evidence;
    let read = candidates(facts, sample, traffic)
        .into_iter()
        .map(|candidate| ReadCandidate {
            sizes: Sizes::guessed(&sample.groups(&candidate.key), facts.documents),
            by_key: None,
            candidate,
        });
    bucket::decide(evidence, &BTreeMap::new(), read.collect())
}

/// 2,000 books.
pub(super) fn book_facts() -> CollectionStats {
    let mut facts = CollectionStats::of("shop", &doc! { "name": "sales", "type": "collection", "options": {} });
    facts.add_indexes(&[doc! { "key": { "_id": 1 }, "name": "_id_" }]);
    facts.add_statistics(&doc! { "count": 2000, "size": 500_000, "storageSize": 200_000 });
    facts
}

/// A sample: one in a hundred has 1,000 buyers, the others 20.
pub(super) fn book_sample() -> Sample {
    let document = |number: i32| {
        let buyers = if number % 100 == 0 { 1000 } else { 20 };
        let mut array = RawArrayBuf::new();
        (0..buyers).for_each(|buyer| array.push(buyer));
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("_id"), number);
        document.append(cstr!("buyers"), array);
        document
    };
    Sample::new((0..200).map(document).collect(), false)
}

pub(super) fn books() -> OutlierProposal {
    outlier::decide(&book_facts(), &book_sample(), &Traffic::default()).unwrap()
}
