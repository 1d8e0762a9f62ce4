//! Reads, and cursors.

use bson::{Bson, Document, doc};
use proto_tests::sides::COLLECTION;

use crate::support_matrix::probe::{Compared, Of, uuid};

pub(super) fn find() -> Of {
    let natural = doc! { "find": COLLECTION, "hint": { "$natural": 1 } };
    let with = |mut sent: Document, more: Document| {
        sent.extend(more);
        sent
    };
    let resume = doc! { "$_requestResumeToken": true, "$_resumeAfter": { "$recordId": Bson::Null } };
    let by_tag = |more: Document| with(doc! { "filter": { "tags": 0 } }, more);
    Of::new("find", doc! { "find": COLLECTION, "sort": { "n": 1 } })
        .with("filter", doc! { "n": { "$gt": 1 } })
        .with("filter", doc! { "n": { "$gt": 1 }, "tags": 19 })
        .with("sort", doc! { "n": -1 })
        .with("sort", doc! { "tags": 1, "_id": 1 })
        .with("projection", doc! { "n": 1 })
        .with("skip", 2)
        .beside("skip", by_tag(doc! { "skip": 1 }))
        .with("limit", 2)
        .beside("limit", by_tag(doc! { "limit": 1 }))
        .with("batchSize", 2)
        .beside("batchSize", by_tag(doc! { "batchSize": 1 }))
        .beside("singleBatch", doc! { "batchSize": 2, "singleBatch": true })
        .beside("singleBatch", by_tag(doc! { "batchSize": 1, "singleBatch": true }))
        .with("hint", "n_1")
        .beside("hint", by_tag(doc! { "hint": { "n": 1 } }))
        .beside("hint", by_tag(doc! { "hint": { "$natural": -1 } }))
        .beside("hint", by_tag(doc! { "hint": "tags_1" }))
        .wrong_loosely("hint", doc! { "hint": "none" })
        .wrong_loosely("hint", by_tag(doc! { "hint": "none" }))
        .with("collation", doc! { "locale": "de" })
        .beside("collation", doc! { "filter": { "tags": "W9" }, "collation": { "locale": "en", "strength": 2 } })
        .beside("let", doc! { "filter": { "$expr": { "$eq": ["$n", "$$x"] } }, "let": { "x": 3 } })
        .beside("let", doc! { "filter": { "$expr": { "$eq": ["$tags.x", "$$x"] } }, "let": { "x": (0..12).collect::<Vec<i32>>() } })
        .with("allowDiskUse", true)
        .beside("allowDiskUse", by_tag(doc! { "allowDiskUse": true }))
        .beside("min", doc! { "min": { "n": 3 }, "hint": { "n": 1 } })
        .beside("max", doc! { "max": { "n": 3 }, "hint": { "n": 1 } })
        .but("min", by_tag(doc! { "min": { "n": 3 }, "hint": { "n": 1 } }))
        .but("max", by_tag(doc! { "max": { "n": 3 }, "hint": { "n": 1 } }))
        .but("min", doc! { "min": { "n": 3 }, "hint": { "n": 1 }, "projection": { "tags": { "$slice": 7 } } })
        .but("showRecordId", doc! { "showRecordId": true, "projection": { "tags": { "$slice": 7 } } })
        .but("showRecordId", doc! { "showRecordId": true, "projection": { "_id": 0 } })
        .but("collectionUUID", doc! { "collectionUUID": uuid(), "projection": { "tags.x": 1 } })
        .but("min", doc! { "min": { "tags": 15 }, "hint": { "tags": 1 } })
        .but("max", doc! { "max": { "tags": 15 }, "hint": { "tags": 1 } })
        .with("returnKey", true)
        .sent("returnKey", doc! { "find": COLLECTION, "filter": { "tags": 0 }, "returnKey": true })
        .sent("showRecordId", with(natural.clone(), doc! { "showRecordId": true }))
        .but("showRecordId", by_tag(doc! { "showRecordId": true }))
        .with("tailable", false)
        .wrong("tailable", doc! { "tailable": true, "sort": {} })
        .wrong("awaitData", doc! { "tailable": true, "awaitData": true, "sort": {} })
        .but("tailable", by_tag(doc! { "tailable": true }))
        .but("awaitData", by_tag(doc! { "tailable": true, "awaitData": true }))
        .with("noCursorTimeout", true)
        .with("allowPartialResults", true)
        .with("oplogReplay", true)
        .with("readOnce", true)
        .loosely("$_requestResumeToken", with(doc! { "sort": {}, "hint": { "$natural": 1 } }, doc! { "$_requestResumeToken": true }))
        .but("$_requestResumeToken", by_tag(doc! { "$_requestResumeToken": true, "hint": { "$natural": 1 } }))
        .loosely("$_resumeAfter", with(resume.clone(), doc! { "sort": {}, "hint": { "$natural": 1 } }))
        .but("$_resumeAfter", by_tag(with(resume, doc! { "hint": { "$natural": 1 } })))
        .with("term", 1_i64)
        .wrong("collectionUUID", doc! { "collectionUUID": uuid() })
        .but("collectionUUID", by_tag(doc! { "collectionUUID": uuid() }))
        .wrong("encryptionInformation", doc! { "encryptionInformation": { "type": 1, "schema": {} } })
        .but("encryptionInformation", by_tag(doc! { "encryptionInformation": { "type": 1, "schema": {} } }))
}

/// Each continues a cursor that the command before has opened.
pub(super) fn get_more() -> Of {
    let of = |more: Document| {
        let mut sent = doc! { "getMore": 0_i64, "collection": COLLECTION };
        sent.extend(more);
        sent
    };
    let open = |filter: Document| doc! { "find": COLLECTION, "filter": filter, "sort": { "_id": 1 }, "batchSize": 1 };
    Of::new("getMore", doc! {})
        .sent("collection", open(doc! {}))
        .sent("collection", of(doc! {}))
        .sent("collection", open(doc! { "tags": 0 }))
        .sent("collection", of(doc! {}))
        .sent("batchSize", open(doc! {}))
        .sent("batchSize", of(doc! { "batchSize": 2 }))
        .sent("batchSize", of(doc! { "batchSize": 2 }))
        .wrong("batchSize", of(doc! { "batchSize": -2 }))
        .sent("maxTimeMS", open(doc! {}))
        .wrong("maxTimeMS", of(doc! { "maxTimeMS": 2 }))
        .sent("term", open(doc! {}))
        .sent("term", of(doc! { "term": 1_i64 }))
        .sent("lastKnownCommittedOpTime", open(doc! {}))
        .sent(
            "lastKnownCommittedOpTime",
            of(doc! { "lastKnownCommittedOpTime": { "ts": bson::Timestamp { time: 1, increment: 1 }, "t": 1_i64 } }),
        )
}

pub(super) fn kill_cursors() -> Of {
    Of::new("killCursors", doc! {})
        .sent("cursors", doc! { "killCursors": COLLECTION, "cursors": [12_345_i64] })
        .wrong("cursors", doc! { "killCursors": COLLECTION, "cursors": ["x"] })
}

pub(super) fn count() -> Of {
    let by_tag = doc! { "tags": 0 };
    Of::new("count", doc! { "count": COLLECTION })
        .with("query", doc! { "n": { "$gt": 5 } })
        .with("query", doc! { "tags": { "$in": [19, "w9"] } })
        .with("skip", 3)
        .beside("skip", doc! { "query": by_tag.clone(), "skip": 1 })
        .with("limit", 3)
        .beside("limit", doc! { "query": by_tag.clone(), "limit": 1 })
        .with("hint", "n_1")
        .beside("hint", doc! { "query": by_tag, "hint": "tags_1" })
        .wrong_loosely("hint", doc! { "hint": "none" })
        .beside(
            "collation",
            doc! { "query": { "tags": "W9" }, "collation": { "locale": "en", "strength": 2 } },
        )
        .with("fields", doc! { "n": 1 })
        .but("query", doc! { "query": { "$where": "true" } })
}

pub(super) fn distinct() -> Of {
    Of::new("distinct", doc! { "distinct": COLLECTION, "key": "n" })
        .with("key", "s")
        .loosely("key", doc! { "key": "tags" })
        .with("key", "tags.x")
        .with("query", doc! { "n": { "$gt": 5 } })
        .with("query", doc! { "tags": 19 })
        .but("query", doc! { "query": { "tags": 19, "$where": "true" } })
        .loosely("collation", doc! { "collation": { "locale": "de" } })
        .loosely("collation", doc! { "key": "tags.z", "collation": { "locale": "de" } })
        .but(
            "collation",
            doc! { "key": "symbol", "query": { "tags": { "$exists": false } }, "collation": { "locale": "de" } },
        )
        .with("key", "loc")
        .with("key", "tags.3")
        .with("key", "tags.7.x")
        .but("key", doc! { "key": "has_extras" })
        .but("key", doc! { "key": "tags.a.b.c.d.e.f.g.h.i.j" })
        .wrong("hint", doc! { "hint": "n_1" })
}

pub(super) fn explain() -> Of {
    let of = |inner: Document| doc! { "explain": inner, "verbosity": "queryPlanner" };
    let update = |change: Document| doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 2 }, "u": change }] };
    let delete = |filter: Document| doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": 0 }] };
    Of::new("explain", doc! {})
        .compared(Compared::Success)
        .sent("find", of(doc! { "find": COLLECTION, "filter": { "n": 2 } }))
        .sent("count", of(doc! { "count": COLLECTION, "query": { "n": 2 } }))
        .sent("distinct", of(doc! { "distinct": COLLECTION, "key": "n" }))
        .sent(
            "aggregate",
            of(doc! { "aggregate": COLLECTION, "pipeline": [{ "$match": { "n": 2 } }], "cursor": {} }),
        )
        .sent("update", of(update(doc! { "$set": { "x": 1 } })))
        .sent("delete", of(delete(doc! { "n": 2 })))
        .sent(
            "findAndModify",
            of(doc! { "findAndModify": COLLECTION, "query": { "n": 2 }, "remove": true }),
        )
        .sent(
            "verbosity",
            doc! { "explain": { "find": COLLECTION }, "verbosity": "executionStats" },
        )
        .compared(Compared::Refused)
        .sent("find", of(doc! { "find": COLLECTION, "filter": { "tags": 2 } }))
        .sent("count", of(doc! { "count": COLLECTION, "query": { "tags": 2 } }))
        .sent("distinct", of(doc! { "distinct": COLLECTION, "key": "tags" }))
        .sent(
            "aggregate",
            of(doc! { "aggregate": COLLECTION, "pipeline": [{ "$unwind": "$tags" }], "cursor": {} }),
        )
        .sent("update", of(update(doc! { "$push": { "tags": 1 } })))
        .sent("delete", of(delete(doc! { "tags": 2 })))
        .sent(
            "findAndModify",
            of(doc! { "findAndModify": COLLECTION, "query": { "tags": 2 }, "remove": true }),
        )
}
