//! Pipelines.

use bson::{Bson, Document, doc};
use proto_tests::sides::COLLECTION;

use crate::support_matrix::probe::{Compared, Of, uuid};

pub(super) fn aggregate() -> Of {
    let by_tag = || vec![doc! { "$match": { "tags": 0 } }, doc! { "$sort": { "_id": 1 } }];
    Of::new(
        "aggregate",
        doc! { "aggregate": COLLECTION, "pipeline": [{ "$sort": { "n": 1 } }], "cursor": {} },
    )
    .with("pipeline", vec![doc! { "$sort": { "n": -1 } }])
    .with("pipeline", by_tag())
    .but(
        "pipeline",
        doc! { "pipeline": [{ "$sort": { "n": 1 } }, { "$set": { "x": { "$meta": "sortKey" } } }] },
    )
    .with("cursor", doc! { "batchSize": 2 })
    .with("allowDiskUse", true)
    .with("hint", "n_1")
    .wrong_loosely("hint", doc! { "hint": "none" })
    .beside(
        "collation",
        doc! { "pipeline": [{ "$match": { "tags": "W9" } }], "collation": { "locale": "en", "strength": 2 } },
    )
    .beside(
        "let",
        doc! { "pipeline": [{ "$match": { "$expr": { "$eq": ["$n", "$$x"] } } }], "let": { "x": 3 } },
    )
    .with("bypassDocumentValidation", true)
    .wrong("collectionUUID", doc! { "collectionUUID": uuid() })
    .compared(Compared::Success)
    .beside(
        "explain",
        doc! { "explain": true, "pipeline": [{ "$match": { "n": 2 } }, { "$project": { "n": 1 } }] },
    )
    .but("explain", doc! { "explain": true })
}

fn pipeline(stages: &[Document]) -> Document {
    doc! { "aggregate": COLLECTION, "pipeline": stages, "cursor": {} }
}

fn of(stage: Document) -> Document {
    pipeline(&[stage, doc! { "$sort": { "_id": 1, "n": 1 } }])
}

fn last(stage: Document) -> Document {
    pipeline(&[stage])
}

/// On another collection.
fn from(stage: Document) -> Document {
    let mut sent = of(stage);
    sent.insert("aggregate", "plain");
    sent
}

fn lookup(foreign: &str) -> Document {
    doc! { "$lookup": { "from": COLLECTION, "localField": "n", "foreignField": foreign, "as": "x" } }
}

/// Stages on the documents of the collection alone.
pub(super) fn stages() -> Of {
    let many = || doc! { "$size": { "$cond": [{ "$isArray": "$tags" }, "$tags", []] } };
    let sorted = |number: Document| pipeline(&[doc! { "$sort": { "_id": 1 } }, number]);
    let near = || doc! { "$geoNear": { "near": { "type": "Point", "coordinates": [2, 2] }, "distanceField": "d", "key": "loc" } };
    Of::new("stages", doc! {})
        .sent("$addFields", of(doc! { "$addFields": { "z": many() } }))
        .sent("$set", of(doc! { "$set": { "z": many() } }))
        .sent("$set", of(doc! { "$set": { "z": "$$ROOT" } }))
        .sent("$bucket", of(doc! { "$bucket": { "groupBy": many(), "boundaries": [0, 9, 1000] } }))
        .sent("$bucketAuto", of(doc! { "$bucketAuto": { "groupBy": many(), "buckets": 3 } }))
        .sent("$count", last(doc! { "$count": "n" }))
        .sent("$densify", of(doc! { "$densify": { "field": "n", "range": { "step": 1, "bounds": "full" } } }))
        .sent("$facet", last(doc! { "$facet": { "x": [{ "$match": { "tags": 19 } }, { "$sort": { "_id": 1 } }], "y": [{ "$count": "n" }] } }))
        .sent("$fill", of(doc! { "$fill": { "output": { "tags": { "value": 1 } } } }))
        .sent("$group", of(doc! { "$group": { "_id": many(), "n": { "$sum": "$n" } } }))
        .sent("$group", of(doc! { "$group": { "_id": "$n", "all": { "$push": "$$ROOT" } } }))
        .sent("$limit", sorted(doc! { "$limit": 2 }))
        .sent("$skip", sorted(doc! { "$skip": 2 }))
        .sent("$match", of(doc! { "$match": { "tags": 19 } }))
        .but("$match", of(doc! { "$match": { "$text": { "$search": "x" } } }))
        .but("$match", of(doc! { "$match": { "$text": { "$search": "x" } } }))
        .sent("$project", of(doc! { "$project": { "tags": 1 } }))
        .sent("$project", of(doc! { "$project": { "n": 1 } }))
        .sent("$project", of(doc! { "$project": { "n": 0 } }))
        .sent("$unset", of(doc! { "$unset": "n" }))
        .sent("$redact", of(doc! { "$redact": { "$cond": [{ "$eq": [{ "$ifNull": ["$x", 11] }, 11] }, "$$DESCEND", "$$PRUNE"] } }))
        .sent("$replaceRoot", of(doc! { "$replaceRoot": { "newRoot": { "_id": "$_id", "t": "$tags" } } }))
        .sent("$replaceWith", of(doc! { "$replaceWith": { "_id": "$_id", "t": "$tags" } }))
        .loosely("$sample", last(doc! { "$sample": { "size": 1000 } }))
        .sent("$setWindowFields", of(doc! { "$setWindowFields": { "sortBy": { "n": 1 }, "output": { "m": { "$sum": many() } } } }))
        .sent("$sort", of(doc! { "$sort": { "tags": -1 } }))
        .sent("$sortByCount", last(doc! { "$sortByCount": "$tags.x" }).sorted_by(doc! { "count": 1, "_id": 1 }))
        .sent("$unwind", last(doc! { "$unwind": "$tags" }).sorted_by(doc! { "_id": 1, "tags": 1 }))
        .sent("$unwind", last(doc! { "$unwind": { "path": "$tags", "includeArrayIndex": "i" } }).sorted_by(doc! { "_id": 1, "i": 1 }))
        .sent("$geoNear", pipeline(&[near(), doc! { "$project": { "n": 1 } }]))
        .but("$geoNear", last(near()))
}

/// Stages that read other collections, or the statistics of this one.
pub(super) fn others() -> Of {
    let database = doc! { "$lookup": { "from": { "db": "DATABASE", "coll": COLLECTION }, "localField": "n", "foreignField": "n", "as": "x" } };
    let graph = |of: &str| doc! { "$graphLookup": { "from": of, "startWith": "$n", "connectFromField": "n", "connectToField": "n", "as": "x" } };
    let is_in = doc! { "$in": ["$$t", { "$cond": [{ "$isArray": "$tags" }, "$tags", []] }] };
    let by_expression = doc! { "$lookup": { "from": COLLECTION, "let": { "t": "$t" }, "pipeline": [{ "$match": { "$expr": is_in } }], "as": "x" } };
    let counted = [
        doc! { "$collStats": { "count": {} } },
        doc! { "$project": { "count": 1 } },
    ];
    let mut then_all = counted.to_vec();
    then_all.push(doc! { "$lookup": { "from": COLLECTION, "pipeline": [{ "$sort": { "_id": 1 } }], "as": "x" } });
    Of::new("stages", doc! {})
        .sent(
            "$facet",
            last(doc! { "$facet": { "x": [lookup("n"), { "$sort": { "_id": 1 } }] } }),
        )
        .sent("$lookup", of(lookup("_id")))
        .sent("$lookup", of(lookup("n")))
        .sent("$lookup", from(lookup("n")))
        .sent("$lookup", from(by_expression))
        .but("$lookup", from(lookup("tags")))
        .but("$lookup", from(lookup("has_extras")))
        .but("$lookup", from(database))
        .sent("$graphLookup", of(graph("plain")))
        .but("$graphLookup", from(graph(COLLECTION)))
        .sent("$unionWith", of(doc! { "$unionWith": "plain" }))
        .sent("$unionWith", from(doc! { "$unionWith": COLLECTION }))
        .sent(
            "$unionWith",
            from(doc! { "$unionWith": { "coll": COLLECTION, "pipeline": [{ "$match": { "tags": 19 } }] } }),
        )
        .sent("$unionWith", of(doc! { "$unionWith": COLLECTION }))
        .sent("$merge", last(doc! { "$merge": { "into": "merged" } }))
        .sent(
            "$merge",
            doc! { "aggregate": "merged", "pipeline": [{ "$sort": { "_id": 1 } }], "cursor": {} },
        )
        .but("$merge", from(doc! { "$merge": { "into": COLLECTION } }).unsorted())
        .but("$merge", last(doc! { "$merge": { "into": COLLECTION } }))
        .sent("$out", last(doc! { "$out": "out" }))
        .sent(
            "$out",
            doc! { "aggregate": "out", "pipeline": [{ "$sort": { "_id": 1 } }], "cursor": {} },
        )
        .but("$out", from(doc! { "$out": COLLECTION }).unsorted())
        .but("$out", last(doc! { "$out": COLLECTION }))
        .sent("$collStats", pipeline(&counted))
        .sent("$collStats", pipeline(&then_all))
        .sent("$changeStream", last(doc! { "$changeStream": {} }))
        .sent(
            "$changeStream",
            doc! { "aggregate": 1, "pipeline": [{ "$changeStream": {} }], "cursor": {} },
        )
        .loosely("$indexStats", last(doc! { "$indexStats": {} }))
        .loosely("$planCacheStats", last(doc! { "$planCacheStats": {} }))
        .wrong("$listSessions", last(doc! { "$listSessions": {} }))
        .wrong("$currentOp", last(doc! { "$currentOp": {} }))
        .wrong("$listLocalSessions", last(doc! { "$listLocalSessions": {} }))
        .sent("has_extras", of(doc! { "$project": { "n": "$has_extras" } }))
        .sent("has_extras", of(doc! { "$match": { "has_extras": true, "n": 2 } }))
}

trait Order {
    fn sorted_by(self, sort: Document) -> Document;
    fn unsorted(self) -> Document;
}

impl Order for Document {
    fn sorted_by(mut self, sort: Document) -> Document {
        if let Ok(pipeline) = self.get_array_mut("pipeline") {
            pipeline.push(Bson::Document(doc! { "$sort": sort }));
        }
        self
    }

    /// With nothing behind its first stage.
    fn unsorted(mut self) -> Document {
        if let Ok(pipeline) = self.get_array_mut("pipeline") {
            pipeline.truncate(1);
        }
        self
    }
}
