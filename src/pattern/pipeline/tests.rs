use bson::rawdoc;

use super::*;
use crate::pattern::bucket::predicate_pushdown::BucketPredicate;
use crate::pattern::bucket::unwind::{FieldOrder, unpack};
use crate::pattern::shapes::{BucketOptions, NamespacePattern};

fn options() -> BucketOptions {
    BucketOptions::new(NamespacePattern::parse("d.shaped").unwrap(), vec!["k".into()])
}

fn shapes() -> Shapes {
    let shape = BucketShape::new(options()).unwrap();
    Shapes::new(vec![Shape::Bucket(shape)]).unwrap()
}

/// The rewritten stage, and the collections that it reads. A star marks those that are read by
/// their view.
fn rewritten(stage: &RawDocument) -> Result<(RawDocumentBuf, Vec<String>), String> {
    let shapes = shapes();
    let mut pipelines = Pipelines::new(&shapes, "d");
    let stages = pipelines.stages(&[stage], PipelinePosition::Open);
    let stages = stages.map_err(|refused| format!("{}.{}: {}", refused.database, refused.collection, refused.what))?;
    let reached = pipelines.into_reached().into_iter();
    let reached = reached.map(|reached| {
        let star = if reached.needs_view { "*" } else { "" };
        format!("{}{star}", reached.collection)
    });
    Ok((stages[0].clone(), reached.collect()))
}

fn unpacking() -> RawArrayBuf {
    let shape = BucketShape::new(options()).unwrap();
    let mut stages = vec![BucketPredicate::of(&shape, None).bucket_match()];
    stages.extend(unpack(&shape, FieldOrder::Stored));
    array_of(&stages)
}

fn check(stage: &RawDocument, expected: &RawDocument, reached: &[&str]) {
    let (rewritten, collections) = rewritten(stage).unwrap();
    assert_eq!(&*rewritten, expected, "{stage:?}");
    assert_eq!(collections, reached, "{stage:?}");
}

#[test]
fn pipeline_without_shaped_collection_is_unchanged() {
    for stage in [
        rawdoc! { "$lookup": { "from": "other", "localField": "a", "foreignField": "b", "as": "c" } },
        rawdoc! { "$lookup": { "from": "other", "pipeline": [{ "$unionWith": "more" }], "as": "c" } },
        rawdoc! { "$unionWith": "other" },
        rawdoc! { "$unionWith": { "coll": "other" } },
        rawdoc! { "$graphLookup": { "from": "other" } },
        rawdoc! { "$out": "other" },
        rawdoc! { "$match": { "from": "shaped" } },
    ] {
        check(&stage, &stage, &[]);
    }
}

#[test]
fn pipeline_that_mongod_refuses_is_unchanged() {
    for stage in [
        rawdoc! { "$lookup": { "from": "shaped", "as": "c" } },
        rawdoc! { "$lookup": { "from": "shaped", "pipeline": 1, "as": "c" } },
        rawdoc! { "$lookup": { "from": "shaped", "pipeline": [1], "as": "c" } },
        rawdoc! { "$lookup": { "from": "shaped", "let": {}, "localField": "a", "foreignField": "b", "as": "c" } },
        rawdoc! { "$unionWith": { "coll": "shaped", "pipeline": bson::raw::RawBson::Null } },
        rawdoc! { "$unionWith": "shaped", "$limit": 1 },
    ] {
        check(&stage, &stage, &[]);
    }
}

#[test]
fn items_are_unwound_at_every_read() {
    let union = |pipeline: RawArrayBuf| rawdoc! { "$unionWith": { "coll": "shaped", "pipeline": pipeline } };
    let unpacked = union(unpacking());
    check(&rawdoc! { "$unionWith": "shaped" }, &unpacked, &["shaped"]);
    check(&union(RawArrayBuf::new()), &unpacked, &["shaped"]);
    check(
        &rawdoc! { "$facet": { "x": [{ "$unionWith": "shaped" }] } },
        &rawdoc! { "$facet": { "x": [unpacked.clone()] } },
        &["shaped"],
    );
    let nested = |stage: RawDocumentBuf| rawdoc! { "$lookup": { "from": "other", "pipeline": [stage], "as": "c" } };
    check(
        &nested(rawdoc! { "$unionWith": "shaped" }),
        &nested(unpacked),
        &["shaped"],
    );
    check(
        &rawdoc! { "$lookup": { "from": "shaped", "localField": "a", "foreignField": "k.x", "as": "c" } },
        &rawdoc! { "$lookup": {
            "from": "shaped", "localField": "a", "foreignField": "k.x", "as": "c", "pipeline": unpacking(),
        } },
        &["shaped"],
    );
}

#[test]
fn a_join_on_an_items_field_is_made_twice() {
    let stage = rawdoc! { "$lookup": { "from": "shaped", "localField": "a.b", "foreignField": "c.d", "as": "found" } };
    let (rewritten, _) = rewritten(&stage).unwrap();
    let outer = rewritten.get_document("$lookup").unwrap();
    assert_eq!(outer.get_str("foreignField").unwrap(), "history.c.d");
    assert_eq!(
        outer.get_document("let").unwrap(),
        &*rawdoc! { "mongoshape_local": "$a" }
    );
    let stages = documents(get(outer, "pipeline")).unwrap();
    let inner = stages[2].get_document("$lookup").unwrap();
    assert_eq!(inner.get_str("localField").unwrap(), "local.b");
    assert_eq!(inner.get_str("foreignField").unwrap(), "c.d");
}

#[test]
fn a_position_is_not_looked_for_in_buckets() {
    let stage = rawdoc! { "$lookup": { "from": "shaped", "localField": "a", "foreignField": "0.x", "as": "found" } };
    let (rewritten, _) = rewritten(&stage).unwrap();
    let outer = rewritten.get_document("$lookup").unwrap();
    assert_eq!(get(outer, "foreignField"), None);
    assert_eq!(get(outer, "localField"), None);
}

#[test]
fn stages_without_a_pipeline_read_the_view() {
    check(
        &rawdoc! { "$graphLookup": { "from": "shaped", "as": "c" } },
        &rawdoc! { "$graphLookup": { "from": "shaped.mongoshape_items", "as": "c" } },
        &["shaped*"],
    );
    let facet = |from| rawdoc! { "$facet": { "x": [{ "$lookup": { "from": from, "localField": "a", "foreignField": "b", "as": "c" } }] } };
    check(&facet("shaped"), &facet("shaped.mongoshape_items"), &["shaped*"]);
}

#[test]
fn other_stages_are_refused() {
    let mut twice = rawdoc! { "from": "other", "pipeline": [], "as": "c" };
    twice.append(cstr!("from"), "shaped");
    for (stage, reason) in [
        (rawdoc! { "$out": "shaped" }, "$out into it"),
        (rawdoc! { "$merge": { "into": "shaped" } }, "$merge into it"),
        (rawdoc! { "$out": { "db": "d", "coll": "shaped" } }, "$out into it"),
        (rawdoc! { "$lookup": twice }, "given twice"),
        (
            rawdoc! { "$lookup": { "from": { "db": "d", "coll": "shaped" }, "as": "c" } },
            "with a database in from",
        ),
        (
            rawdoc! { "$unionWith": { "coll": "shaped", "pipeline": [{ "$collStats": {} }] } },
            "the stage $collStats",
        ),
    ] {
        let refused = rewritten(&stage).unwrap_err();
        assert!(
            refused.starts_with("d.shaped: ") && refused.contains(reason),
            "{refused}"
        );
    }
}

#[test]
fn names_given_by_the_client_are_left_alone() {
    let spec = rawdoc! { "let": { "mongoshape_local": "$x" } };
    assert_eq!(super::lookup::fresh("mongoshape_local", &spec), "mongoshape_local_");
}
