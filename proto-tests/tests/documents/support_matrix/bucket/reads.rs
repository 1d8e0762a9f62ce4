//! Reads, and cursors.

use bson::{Document, doc};
use proto_tests::sides::COLLECTION;

use crate::support_matrix::probe::{Compared, Of, uuid};

pub(super) fn find() -> Of {
    let natural = doc! { "find": COLLECTION, "filter": { "q": { "$lt": 7 } } };
    Of::new(
        "find",
        doc! { "find": COLLECTION, "sort": { "q": 1 }, "filter": { "q": { "$lt": 7 } } },
    )
    .with("filter", doc! { "k": 1, "q": { "$gt": 3 } })
    .with("sort", doc! { "q": -1 })
    .with("projection", doc! { "q": 1, "a": { "$slice": 1 } })
    .with("skip", 2)
    .with("limit", 2)
    .with("batchSize", 2)
    .beside("singleBatch", doc! { "batchSize": 2, "singleBatch": true })
    .with("hint", "q_1")
    .with("hint", doc! { "q": 1 })
    .loosely("hint", doc! { "hint": "none" })
    .with("collation", doc! { "locale": "de" })
    .beside(
        "let",
        doc! { "filter": { "$expr": { "$eq": ["$q", "$$x"] } }, "let": { "x": 3 } },
    )
    .with("allowDiskUse", true)
    .with("min", doc! { "q": 3 })
    .beside("min", doc! { "min": { "q": 3 }, "hint": { "q": 1 } })
    .beside("max", doc! { "max": { "q": 3 }, "hint": { "q": 1 } })
    .with("returnKey", true)
    .with("showRecordId", true)
    .loosely("tailable", doc! { "tailable": true })
    .loosely("awaitData", doc! { "tailable": true, "awaitData": true })
    .with("noCursorTimeout", true)
    .with("allowPartialResults", true)
    .with("oplogReplay", true)
    .with("readOnce", true)
    .sent("$_requestResumeToken", {
        let mut sent = natural.clone();
        sent.extend(doc! { "$_requestResumeToken": true, "hint": { "$natural": 1 } });
        sent
    })
    .sent("$_resumeAfter", {
        let mut sent = natural;
        sent.extend(
            doc! { "$_requestResumeToken": true, "$_resumeAfter": { "$recordId": 1_i64 }, "hint": { "$natural": 1 } },
        );
        sent
    })
    .with("term", 1_i64)
    .with("collectionUUID", uuid())
    .with("encryptionInformation", doc! { "type": 1, "schema": {} })
    .but("filter", doc! { "filter": { "$text": { "$search": "x" } } })
    .but("sort", doc! { "sort": { "$natural": 1 } })
    .but("hint", doc! { "sort": {}, "hint": { "$natural": -1 } })
    .beside("hint", doc! { "hint": { "$natural": -1 } })
    .but("projection", doc! { "projection": { "r": { "$meta": "recordId" } } })
}

pub(super) fn count() -> Of {
    Of::new("count", doc! { "count": COLLECTION })
        .with("query", doc! { "q": { "$gt": 5 } })
        .with("skip", 3)
        .with("limit", 3)
        .with("hint", "q_1")
        .with("hint", doc! { "$natural": -1 })
        .loosely("hint", doc! { "hint": "none" })
        .with("collation", doc! { "locale": "de" })
        .with("fields", doc! { "q": 1 })
        .but("query", doc! { "query": { "$text": { "$search": "x" } } })
}

pub(super) fn distinct() -> Of {
    Of::new("distinct", doc! { "distinct": COLLECTION, "key": "q" })
        .with("key", "k")
        .with("query", doc! { "q": { "$gt": 5 } })
        .loosely("collation", doc! { "collation": { "locale": "de" } })
        .loosely("hint", doc! { "hint": "q_1" })
}

pub(super) fn aggregate() -> Of {
    Of::new("aggregate", doc! { "aggregate": COLLECTION, "pipeline": [{ "$match": { "q": { "$lt": 7 } } }, { "$sort": { "q": 1 } }], "cursor": {} })
        .with("pipeline", vec![doc! { "$sort": { "q": 1 } }])
        .but("pipeline", doc! { "pipeline": [{ "$sort": { "q": 1 } }, { "$set": { "x": { "$meta": "sortKey" } } }] })
        .with("cursor", doc! { "batchSize": 2 })
        .with("allowDiskUse", true)
        .with("hint", "q_1")
        .loosely("hint", doc! { "hint": "none" })
        .with("hint", doc! { "$natural": -1 })
        .but("hint", doc! { "pipeline": [{ "$match": { "q": 3 } }, { "$limit": 1 }], "hint": { "$natural": -1 } })
        .with("collation", doc! { "locale": "de" })
        .beside("let", doc! { "pipeline": [{ "$match": { "$expr": { "$eq": ["$q", "$$x"] } } }], "let": { "x": 3 } })
        .beside("bypassDocumentValidation", doc! { "bypassDocumentValidation": true })
        .compared(Compared::Success)
        .with("explain", true)
}

pub(super) fn stages() -> Of {
    let of = |stage: Document| doc! { "aggregate": COLLECTION, "pipeline": [stage, { "$sort": { "_id": 1, "q": 1 } }], "cursor": {} };
    let last = |stage: Document| doc! { "aggregate": COLLECTION, "pipeline": [stage], "cursor": {} };
    let first = |stage: Document| doc! { "aggregate": COLLECTION, "pipeline": [stage, { "$limit": 1 }], "cursor": {} };
    Of::new("stages", doc! {})
        .sent("$addFields", of(doc! { "$addFields": { "z": "$q" } }))
        .sent("$set", of(doc! { "$set": { "z": "$q" } }))
        .sent("$bucket", of(doc! { "$bucket": { "groupBy": "$q", "boundaries": [0, 9, 1000] } }))
        .sent("$bucketAuto", of(doc! { "$bucketAuto": { "groupBy": "$q", "buckets": 3 } }))
        .sent("$count", last(doc! { "$count": "n" }))
        .sent("$densify", of(doc! { "$densify": { "field": "q", "range": { "step": 1, "bounds": "full" } } }))
        .sent("$facet", of(doc! { "$facet": { "x": [{ "$sort": { "q": 1 } }, { "$limit": 2 }] } }))
        .sent("$fill", of(doc! { "$fill": { "output": { "q": { "value": 1 } } } }))
        .loosely("$geoNear", first(doc! { "$geoNear": { "near": [0, 0], "distanceField": "d", "key": "loc" } }))
        .but("$geoNear", doc! { "aggregate": COLLECTION, "cursor": {}, "pipeline": [
            { "$geoNear": { "near": [0, 0], "distanceField": "d", "key": "loc" } },
            { "$project": { "d": { "$meta": "geoNearDistance" } } },
        ] })
        .sent("$graphLookup", of(doc! { "$graphLookup": { "from": "plain", "startWith": "$k", "connectFromField": "k", "connectToField": "k", "as": "x" } }))
        .sent("$group", of(doc! { "$group": { "_id": "$k", "n": { "$sum": "$q" } } }))
        .sent("$limit", last(doc! { "$limit": 0 }))
        .sent("$lookup", of(doc! { "$lookup": { "from": COLLECTION, "localField": "_id", "foreignField": "_id", "as": "x" } }))
        .sent("$match", of(doc! { "$match": { "q": 3 } }))
        .but("$match", of(doc! { "$match": { "$text": { "$search": "x" } } }))
        .sent("$merge", last(doc! { "$merge": { "into": "merged" } }))
        .but("$merge", doc! { "aggregate": COLLECTION, "pipeline": [{ "$merge": COLLECTION }], "cursor": { "batchSize": 0 } })
        .sent("$out", last(doc! { "$out": "out" }))
        .but("$out", last(doc! { "$out": COLLECTION }))
        .sent("$project", of(doc! { "$project": { "q": 1 } }))
        .sent("$unset", of(doc! { "$unset": "q" }))
        .sent("$redact", of(doc! { "$redact": "$$KEEP" }))
        .sent("$replaceRoot", of(doc! { "$replaceRoot": { "newRoot": { "q": "$q" } } }))
        .sent("$replaceWith", of(doc! { "$replaceWith": { "q": "$q" } }))
        .loosely("$sample", last(doc! { "$sample": { "size": 1000 } }))
        .sent("$setWindowFields", of(doc! { "$setWindowFields": { "sortBy": { "q": 1 }, "output": { "n": { "$sum": "$q" } } } }))
        .sent("$skip", of(doc! { "$skip": 0 }))
        .sent("$sort", of(doc! { "$sort": { "q": -1 } }))
        .sent("$sortByCount", of(doc! { "$sortByCount": "$k" }))
        .sent("$unionWith", of(doc! { "$unionWith": "plain" }))
        .sent("$unwind", of(doc! { "$unwind": "$a" }))
        .sent("$changeStream", doc! { "aggregate": COLLECTION, "pipeline": [{ "$changeStream": {} }], "cursor": {} })
        .sent("$indexStats", first(doc! { "$indexStats": {} }))
        .sent("$planCacheStats", first(doc! { "$planCacheStats": {} }))
        .sent("$collStats", doc! { "aggregate": COLLECTION, "pipeline": [{ "$collStats": { "count": {} } }, { "$project": { "count": 1 } }], "cursor": {} })
        .sent("$listSessions", first(doc! { "$listSessions": {} }))
        .sent("$currentOp", first(doc! { "$currentOp": {} }))
        .sent("$listLocalSessions", first(doc! { "$listLocalSessions": {} }))
}

pub(super) fn explain() -> Of {
    let of = |inner: Document| doc! { "explain": inner, "verbosity": "queryPlanner" };
    Of::new("explain", doc! {})
        .compared(Compared::Success)
        .sent("find", of(doc! { "find": COLLECTION }))
        .sent("count", of(doc! { "count": COLLECTION }))
        .sent("distinct", of(doc! { "distinct": COLLECTION, "key": "q" }))
        .sent("aggregate", of(doc! { "aggregate": COLLECTION, "pipeline": [], "cursor": {} }))
        .sent("update", of(doc! { "update": COLLECTION, "updates": [{ "q": {}, "u": { "$set": { "x": 1 } } }] }))
        .sent("delete", of(doc! { "delete": COLLECTION, "deletes": [{ "q": {}, "limit": 0 }] }))
        .sent("findAndModify", of(doc! { "findAndModify": COLLECTION, "query": {}, "remove": true }))
        .sent("mapReduce", of(doc! { "mapReduce": COLLECTION, "map": "function() {}", "reduce": "function() {}", "out": { "inline": 1 } }))
        .sent("verbosity", doc! { "explain": { "find": COLLECTION }, "verbosity": "executionStats" })
}

pub(super) fn cursors() -> Of {
    let of = |more: Document| {
        let mut sent = doc! { "getMore": 12_345_i64, "collection": COLLECTION };
        sent.extend(more);
        sent
    };
    Of::new("getMore", doc! {})
        .sent("collection", of(doc! {}))
        .sent("batchSize", of(doc! { "batchSize": 2 }))
        .sent("batchSize", of(doc! { "batchSize": -2 }))
        .sent("maxTimeMS", of(doc! { "maxTimeMS": 2 }))
        .sent("term", of(doc! { "term": 1_i64 }))
        .sent(
            "lastKnownCommittedOpTime",
            of(doc! { "lastKnownCommittedOpTime": { "ts": bson::Timestamp { time: 1, increment: 1 }, "t": 1_i64 } }),
        )
}

pub(super) fn kill_cursors() -> Of {
    Of::new("killCursors", doc! {})
        .sent("cursors", doc! { "killCursors": COLLECTION, "cursors": [12_345_i64] })
        .sent("cursors", doc! { "killCursors": COLLECTION, "cursors": [] })
        .sent("cursors", doc! { "killCursors": COLLECTION, "cursors": ["x"] })
        .sent("cursors", doc! { "killCursors": COLLECTION })
}
