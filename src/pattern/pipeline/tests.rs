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
    // mongod matches the stored path, too, and uses an index for both.
    assert_eq!(
        stages[0],
        &*rawdoc! { "$match": { "$and": [{ "control.v": { "$gte": 1, "$lte": 1 } }, { "count": { "$gt": 0 } }] } }
    );
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
    let stages = documents(get(outer, "pipeline")).unwrap();
    let shape = BucketShape::new(options()).unwrap();
    assert_eq!(stages[0], &*BucketPredicate::of(&shape, None).bucket_match());
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
    assert_eq!(super::lookup::local_variable(&spec), "mongoshape_local00000000");
}

/// The rewritten arguments of a `$lookup` in a collection with a time.
fn with_time(lookup: &RawDocument, place: PipelinePosition) -> RawDocumentBuf {
    let options = BucketOptions {
        time: Some("at".to_owned()),
        ..options()
    };
    let shapes = Shapes::new(vec![Shape::Bucket(BucketShape::new(options).unwrap())]).unwrap();
    let mut pipelines = Pipelines::new(&shapes, "d");
    let stages = pipelines.stages(&[&single("$lookup", lookup)], place).unwrap();
    assert_eq!(pipelines.into_reached().len(), 1);
    stages[0].get_document("$lookup").unwrap().to_owned()
}

#[test]
fn the_newest_items_of_a_key_come_from_its_last_pages() {
    let newest = || rawdoc! { "$sort": { "at": -1 } };
    let by_fields = rawdoc! { "from": "shaped", "localField": "a.b", "foreignField": "k", "pipeline": [newest(), { "$limit": 1 }], "as": "c" };
    let equal = rawdoc! { "$match": { "$expr": { "$eq": ["$k", "$$v"] } } };
    let by_variable =
        rawdoc! { "from": "shaped", "let": { "v": "$a" }, "pipeline": [equal, newest(), { "$limit": 1 }], "as": "c" };
    for lookup in [&by_fields, &by_variable] {
        let rewritten = with_time(lookup, PipelinePosition::Open);
        assert_eq!(get(&rewritten, "from"), None);
        assert_eq!(get(&rewritten, "localField"), None);
        assert_eq!(rewritten.get_str("as").unwrap(), "c");
        let first = documents(get(&rewritten, "pipeline")).unwrap()[0];
        assert_eq!(first_field(first).unwrap().0, "$documents");
        let in_facet = with_time(lookup, PipelinePosition::InFacet);
        assert_eq!(in_facet.get_str("from").unwrap(), "shaped");
    }
    let variables = with_time(&by_fields, PipelinePosition::Open);
    assert_eq!(
        variables.get_document("let").unwrap(),
        &*rawdoc! { "mongoshape_local": "$a" }
    );
}

#[test]
fn other_lookups_by_key_read_all_of_its_pages() {
    let sorted = || [rawdoc! { "$sort": { "at": -1 } }, rawdoc! { "$limit": 1 }];
    let with_filter = |filter: RawDocumentBuf| {
        let stages = array_of(&[vec![single("$match", filter)], sorted().to_vec()].concat());
        rawdoc! { "from": "shaped", "let": { "v": "$a" }, "pipeline": stages, "as": "c" }
    };
    let by_fields = |local: &str, foreign: &str| {
        rawdoc! { "from": "shaped", "localField": local, "foreignField": foreign, "pipeline": array_of(&sorted()), "as": "c" }
    };
    for lookup in [
        with_filter(rawdoc! { "$expr": { "$eq": ["$k", "$$v"] }, "a": 1 }),
        with_filter(rawdoc! { "$expr": { "$gt": ["$k", "$$v"] } }),
        with_filter(rawdoc! { "$expr": { "$eq": ["$a", "$$v"] } }),
        with_filter(rawdoc! { "$expr": { "$eq": ["$k", "$$ROOT"] } }),
        with_filter(rawdoc! { "k": 1 }),
        by_fields("a", "k.x"),
        by_fields("a", "b"),
        by_fields("a.$id", "k"),
        rawdoc! { "from": "shaped", "pipeline": array_of(&sorted()), "as": "c" },
        rawdoc! { "from": "shaped", "localField": "a", "foreignField": "k", "as": "c" },
    ] {
        let rewritten = with_time(&lookup, PipelinePosition::Open);
        assert_eq!(rewritten.get_str("from").unwrap(), "shaped", "{lookup:?}");
    }
}
