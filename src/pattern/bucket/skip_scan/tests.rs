use bson::rawdoc;

use super::*;
use crate::pattern::shapes::{BucketOptions, NamespacePattern};

fn shape(key: &[&str]) -> BucketShape {
    let options = BucketOptions {
        time: Some("at".to_owned()),
        ..BucketOptions::new(
            NamespacePattern::parse("d.c").unwrap(),
            key.iter().map(|name| (*name).to_owned()).collect(),
        )
    };
    BucketShape::new(options).unwrap()
}

fn found(pipeline: &[RawDocumentBuf]) -> Option<Extreme> {
    extreme_of_keys("k", "at", pipeline)
}

fn group(accumulator: RawDocumentBuf) -> RawDocumentBuf {
    rawdoc! { "$group": { "_id": "$k", "x": accumulator } }
}

fn sorted(sort: RawDocumentBuf, accumulator: RawDocumentBuf) -> [RawDocumentBuf; 2] {
    [single("$sort", sort), group(accumulator)]
}

#[test]
fn a_sort_by_time_and_a_group_by_key_need_one_item_of_each() {
    let first = || rawdoc! { "$first": "$$ROOT" };
    let last = || rawdoc! { "$last": { "a": "$b" } };
    assert_eq!(found(&sorted(rawdoc! { "at": -1 }, first())), Some(Extreme::Newest));
    assert_eq!(found(&sorted(rawdoc! { "at": -1 }, last())), Some(Extreme::Oldest));
    assert_eq!(
        found(&sorted(rawdoc! { "k": 1, "at": 1 }, first())),
        Some(Extreme::Oldest)
    );
    assert_eq!(
        found(&sorted(rawdoc! { "at": 1, "k": -1 }, last())),
        Some(Extreme::Newest)
    );
}

#[test]
fn accumulators_may_order_the_items_themselves() {
    let top = |operator: &str, at: i32| single(operator, rawdoc! { "sortBy": { "at": at }, "output": "$a" });
    assert_eq!(found(&[group(top("$top", -1))]), Some(Extreme::Newest));
    assert_eq!(found(&[group(top("$top", 1))]), Some(Extreme::Oldest));
    assert_eq!(found(&[group(top("$bottom", -1))]), Some(Extreme::Oldest));
    assert_eq!(found(&[group(top("$bottom", 1))]), Some(Extreme::Newest));
    assert_eq!(found(&[group(rawdoc! { "$max": "$at" })]), Some(Extreme::Newest));
    assert_eq!(found(&[group(rawdoc! { "$min": "$at" })]), Some(Extreme::Oldest));
}

#[test]
fn all_accumulators_need_the_same_item() {
    let both = |one: &str, other: &str| {
        rawdoc! { "$group": {
            "_id": "$k", "one": single(one, "$at"), "other": single(other, "$at"),
        } }
    };
    let sort = || rawdoc! { "$sort": { "at": -1 } };
    assert_eq!(found(&[both("$max", "$max")]), Some(Extreme::Newest));
    assert_eq!(found(&[both("$max", "$min")]), None);
    assert_eq!(found(&[sort(), both("$first", "$max")]), Some(Extreme::Newest));
    assert_eq!(found(&[sort(), both("$first", "$last")]), None);
}

#[test]
fn other_pipelines_need_all_items() {
    let first = || rawdoc! { "$first": "$a" };
    let others = [
        vec![],
        vec![group(first())],
        vec![group(rawdoc! { "$max": "$a" })],
        vec![group(rawdoc! { "$sum": 1 })],
        vec![group(rawdoc! { "$max": "$at", "$min": "$at" })],
        vec![group(
            rawdoc! { "$top": { "sortBy": { "at": 1, "a": 1 }, "output": "$a" } },
        )],
        vec![group(rawdoc! { "$top": { "sortBy": { "a": 1 }, "output": "$a" } })],
        vec![rawdoc! { "$group": { "_id": "$k" } }],
        vec![rawdoc! { "$group": { "_id": "$a", "x": { "$max": "$at" } } }],
        vec![rawdoc! { "$group": { "_id": { "k": "$k" }, "x": { "$max": "$at" } } }],
        vec![rawdoc! { "$group": { "_id": "$k.a", "x": { "$max": "$at" } } }],
        vec![rawdoc! { "$group": { "_id": { "k": "$k", "a": "$a" }, "x": { "$max": "$at" } } }],
        vec![rawdoc! { "$group": { "_id": { "$toLower": "$k" }, "x": { "$max": "$at" } } }],
        vec![single("$sort", rawdoc! { "at": 1 })],
        sorted(rawdoc! { "k": 1 }, first()).to_vec(),
        sorted(rawdoc! { "at": 1, "_id": 1 }, first()).to_vec(),
        sorted(rawdoc! { "at": { "$meta": "textScore" } }, first()).to_vec(),
        vec![rawdoc! { "$match": { "k": 1 } }, group(rawdoc! { "$max": "$at" })],
    ];
    for pipeline in others {
        assert_eq!(found(&pipeline), None, "{pipeline:?}");
    }
}

#[test]
fn the_pages_come_from_the_page_index_before_the_stages_of_the_client() {
    let pipeline = [group(rawdoc! { "$max": "$at" })];
    let stages = of_aggregate(&shape(&["k"]), "c", &pipeline).unwrap();
    assert_eq!(stages[0], rawdoc! { "$sort": { "k": -1, "control.page": -1 } });
    assert_eq!(stages.last(), pipeline.last());
    let oldest = of_aggregate(&shape(&["k"]), "c", &[group(rawdoc! { "$min": "$at" })]).unwrap();
    assert_eq!(oldest[0], rawdoc! { "$sort": { "k": 1, "control.page": 1 } });
}

#[test]
fn a_key_of_two_fields_is_read_otherwise() {
    assert_eq!(
        of_aggregate(&shape(&["k", "l"]), "c", &[group(rawdoc! { "$max": "$at" })]),
        None
    );
}
