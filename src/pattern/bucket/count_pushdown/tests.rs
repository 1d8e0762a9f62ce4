use bson::rawdoc;

use super::*;
use crate::pattern::shapes::{BucketOptions, NamespacePattern};

fn answered(pipeline: &[RawDocumentBuf]) -> Option<Vec<RawDocumentBuf>> {
    let options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()]);
    of_aggregate(&BucketShape::new(options).unwrap(), pipeline)
}

#[test]
fn count_pushdown_sums_page_counts() {
    let key = rawdoc! { "$match": { "k": { "$in": [1, 2] } } };
    let one = rawdoc! { "$group": { "_id": 1, "n": { "$sum": 1 } } };
    for pipeline in [
        vec![one.clone()],
        vec![key.clone(), one.clone()],
        vec![rawdoc! { "$match": {} }, one.clone(), rawdoc! { "$limit": 1 }],
        vec![key.clone(), rawdoc! { "$skip": 1 }, rawdoc! { "$limit": 2.0 }, one],
        vec![key.clone(), rawdoc! { "$count": "n" }],
        vec![
            key,
            rawdoc! { "$group": { "_id": "$k", "n": { "$count": {} }, "m": { "$sum": -2.0 } } },
        ],
    ] {
        let stages = answered(&pipeline).unwrap_or_else(|| panic!("{pipeline:?}"));
        assert!(!stages.iter().any(|stage| get_unwind(stage)), "{stages:?}");
    }
}

fn get_unwind(stage: &RawDocument) -> bool {
    stage.get("$unwind").unwrap().is_some()
}

#[test]
fn other_pipelines_have_no_count_pushdown() {
    let one = rawdoc! { "$group": { "_id": 1, "n": { "$sum": 1 } } };
    for pipeline in [
        vec![],
        vec![rawdoc! { "$match": { "k": 1 } }],
        vec![rawdoc! { "$match": { "x": 1 } }, one.clone()],
        vec![rawdoc! { "$match": { "k.a": 1 } }, one.clone()],
        vec![rawdoc! { "$match": { "k": { "$ne": 1 } } }, one.clone()],
        vec![rawdoc! { "$match": { "$or": [{ "k": 1 }] } }, one.clone()],
        vec![rawdoc! { "$match": 1 }, one.clone()],
        vec![rawdoc! { "$limit": 0 }, one.clone()],
        vec![rawdoc! { "$limit": 1, "$skip": 1 }, one.clone()],
        vec![rawdoc! { "$limit": 1 }, rawdoc! { "$skip": 1 }, one],
        vec![rawdoc! { "$group": { "_id": "$x" } }],
        vec![rawdoc! { "$group": { "_id": 1, "n": { "$sum": "$x" } } }],
        vec![rawdoc! { "$group": { "_id": 1, "n": { "$sum": 0.1 } } }],
        vec![rawdoc! { "$group": { "_id": 1, "n": { "$sum": 1, "$avg": 1 } } }],
        vec![rawdoc! { "$group": { "_id": 1, "a.b": { "$sum": 1 } } }],
        vec![rawdoc! { "$group": { "n": { "$sum": 1 } } }],
        vec![
            rawdoc! { "$limit": 5 },
            rawdoc! { "$group": { "_id": "$k", "n": { "$sum": 1 } } },
        ],
        vec![rawdoc! { "$count": "_id" }],
        vec![rawdoc! { "$count": "" }],
    ] {
        assert_eq!(answered(&pipeline), None, "{pipeline:?}");
    }
}
