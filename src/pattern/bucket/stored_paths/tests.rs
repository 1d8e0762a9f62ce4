use bson::rawdoc;

use super::*;
use crate::pattern::shapes::{BucketOptions, NamespacePattern};

fn shape() -> BucketShape {
    let options = BucketOptions {
        rename: [("quantity".to_owned(), "qty".to_owned())].into(),
        ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
    };
    BucketShape::new(options).unwrap()
}

fn rewritten(pipeline: &[RawDocumentBuf]) -> Option<Vec<RawDocumentBuf>> {
    let shape = shape();
    let filter = pipeline.first().and_then(|stage| only_match(stage));
    of_aggregate(&shape, &BucketPredicate::of(&shape, filter), pipeline)
}

/// Checks the expression that replaces `by` in a `$group` on unwound buckets.
fn check(by: impl Into<RawBson>, expected: impl Into<RawBson>) {
    let [group, expected] = [by.into(), expected.into()].map(|by| single("$group", single("_id", by)));
    let unwind = single("$unwind", "$history");
    assert_eq!(rewritten(&[group]), Some(vec![unwind, expected]));
}

fn is_left(pipeline: &[RawDocumentBuf]) {
    assert_eq!(rewritten(pipeline), None, "{pipeline:?}");
}

fn key(path: &str) -> RawDocumentBuf {
    let is_missing = rawdoc! { "$eq": [{ "$type": "$history.k" }, "missing"] };
    rawdoc! { "$cond": { "if": is_missing, "then": format!("${path}"), "else": format!("$history.{path}") } }
}

#[test]
fn field_paths_are_those_of_stored_fields() {
    check("$a", "$history.a");
    check("$a.b.0", "$history.a.b.0");
    check("$quantity.x", "$history.qty.x");
    check("$qty", "$history.quantity");
    check("$_id", "$history._id");
    check("$history", "$history.history");
    check("$k", key("k"));
    check("$k.x", key("k.x"));
    check(
        rawdoc! { "of": "$a", "k": ["$k"] },
        rawdoc! { "of": "$history.a", "k": [key("k")] },
    );
    check(
        rawdoc! { "$map": { "input": "$a", "as": "k", "in": { "$add": ["$$k.k", "$b"] } } },
        rawdoc! { "$map": { "input": "$history.a", "as": "k", "in": { "$add": ["$$k.k", "$history.b"] } } },
    );
}

#[test]
fn constants_and_variables_stay() {
    check("a", "a");
    check(1, 1);
    check(RawBson::Null, RawBson::Null);
    check("$$NOW", "$$NOW");
    check(rawdoc! { "$literal": "$a" }, rawdoc! { "$literal": "$a" });
}

#[test]
fn expressions_of_whole_documents_are_left() {
    for by in ["$$ROOT", "$$ROOT.a", "$$CURRENT.a", "$", "$a.", "$a..b", "$a.$b"] {
        is_left(&[rawdoc! { "$group": { "_id": by } }]);
        is_left(&[rawdoc! { "$group": { "_id": 1, "all": { "$push": { "of": [by] } } } }]);
    }
    let opaque = [
        rawdoc! { "$getField": "a" },
        rawdoc! { "$meta": "textScore" },
        rawdoc! { "$function": { "body": "$a", "args": [], "lang": "js" } },
        rawdoc! { "$_internal": "$a" },
        rawdoc! { "$let": { "vars": { "CURRENT": "$a" }, "in": "$b" } },
        rawdoc! { "$map": { "input": "$a", "as": "CURRENT", "in": "$b" } },
    ];
    for by in opaque {
        is_left(&[rawdoc! { "$group": { "_id": by } }]);
    }
}

#[test]
fn accumulators_are_rewritten_but_for_those_that_name_fields() {
    let group = rawdoc! { "$group": { "_id": 1, "n": { "$sum": "$quantity" }, "all": { "$count": {} } } };
    let expected = rawdoc! { "$group": { "_id": 1, "n": { "$sum": "$history.qty" }, "all": { "$count": {} } } };
    assert_eq!(rewritten(&[group]).unwrap()[1], expected);
    for name in OPAQUE_ACCUMULATORS {
        let accumulator = single(name, rawdoc! { "output": "$a", "sortBy": { "a": 1 } });
        is_left(&[rawdoc! { "$group": { "_id": 1, "n": accumulator } }]);
    }
    is_left(&[rawdoc! { "$group": { "_id": 1, "n": 1 } }]);
    is_left(&[rawdoc! { "$group": { "_id": 1, "n": { "$sum": 1, "$avg": 1 } } }]);
}

#[test]
fn number_of_an_accumulator_is_computed_of_the_group() {
    for name in COUNTED_ACCUMULATORS {
        let group = |input: &str| {
            let of_group = rawdoc! { "$cond": [{ "$eq": ["$a", 1] }, 1, "$k"] };
            let accumulator = single(name, rawdoc! { "n": of_group, "input": input });
            single("$group", rawdoc! { "_id": 1, "some": accumulator })
        };
        let stages = rewritten(&[group("$a")]).unwrap();
        assert_eq!(stages[1], group("$history.a"));
    }
}

#[test]
fn other_summaries_are_rewritten() {
    let last = |stage: RawDocumentBuf| rewritten(&[stage]).unwrap().pop().unwrap();
    assert_eq!(last(rawdoc! { "$count": "n" }), rawdoc! { "$count": "n" });
    assert_eq!(
        last(rawdoc! { "$sortByCount": "$a" }),
        rawdoc! { "$sortByCount": "$history.a" }
    );
    assert_eq!(last(rawdoc! { "$sortByCount": "$k" }), single("$sortByCount", key("k")));
    let bucket = rawdoc! { "$bucket": { "groupBy": "$a", "boundaries": [0, 1], "output": { "n": { "$max": "$b" } } } };
    let expected = rawdoc! {
        "$bucket": { "groupBy": "$history.a", "boundaries": [0, 1], "output": { "n": { "$max": "$history.b" } } }
    };
    assert_eq!(last(bucket), expected);
    let automatic = rawdoc! { "$bucketAuto": { "groupBy": "$a", "buckets": 2 } };
    assert_eq!(
        last(automatic),
        rawdoc! { "$bucketAuto": { "groupBy": "$history.a", "buckets": 2 } }
    );
}

#[test]
fn a_filter_is_on_unwound_buckets() {
    let count = rawdoc! { "$count": "n" };
    let stages = |filter: RawDocumentBuf| rewritten(&[single("$match", filter), count.clone()]);
    let unwind = single("$unwind", "$history");
    let matched = |filter: RawDocumentBuf| Some(vec![unwind.clone(), single("$match", filter), count.clone()]);
    assert_eq!(stages(rawdoc! { "quantity": 1 }), matched(rawdoc! { "history.qty": 1 }));
    assert_eq!(
        stages(rawdoc! { "k": 1, "$or": [{ "a.b": { "$gt": 1 } }, { "$nor": [{ "quantity": null }] }] }),
        matched(rawdoc! { "$or": [{ "history.a.b": { "$gt": 1 } }, { "$nor": [{ "history.qty": null }] }] })
    );
    assert_eq!(
        stages(rawdoc! { "k": { "$in": [1, 2] } }),
        Some(vec![unwind, count.clone()])
    );
    for whole in [
        rawdoc! { "$expr": "$a" },
        rawdoc! { "k": { "$type": "int" } },
        rawdoc! { "$or": [{ "k": 1 }, { "a": 1 }] },
    ] {
        assert_eq!(stages(whole.clone()), None, "{whole:?}");
    }
}

#[test]
fn other_pipelines_are_left() {
    is_left(&[]);
    is_left(&[rawdoc! { "$sort": { "a": 1 } }, rawdoc! { "$group": { "_id": 1 } }]);
    is_left(&[rawdoc! { "$match": {} }]);
    is_left(&[rawdoc! { "$project": { "a": 1 } }]);
    is_left(&[rawdoc! { "$group": { "_id": 1 }, "$count": "n" }]);
}
