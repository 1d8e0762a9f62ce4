//! Commands about the collection.

use bson::{Bson, Document, bson, doc};
use proto_tests::sides::COLLECTION;

use super::KEPT;
use crate::support_matrix::probe::{Compared, Of};

pub(super) fn create() -> Of {
    let clustered = doc! { "key": { "_id": 1 }, "unique": true };
    let long: Vec<i32> = (0..17).collect();
    let kept = |mut sent: Document| {
        sent.insert("comment", KEPT);
        sent
    };
    let pull = doc! { "q": { "tags": 16 }, "u": { "$pull": { "tags": { "$lt": 3 } } } };
    Of::new("create", doc! { "create": COLLECTION })
        .with("capped", false)
        .but("capped", doc! { "capped": true, "size": 4096 })
        .wrong("size", doc! { "size": 4096 })
        .wrong("max", doc! { "max": 10 })
        .wrong("temp", doc! { "temp": true })
        .with("autoIndexId", true)
        .with("collation", doc! { "locale": "simple" })
        .but("collation", doc! { "collation": { "locale": "de" } })
        .with("idIndex", doc! { "key": { "_id": 1 }, "name": "_id_", "v": 2 })
        .with("changeStreamPreAndPostImages", doc! { "enabled": true })
        .with("storageEngine", doc! { "wiredTiger": {} })
        .with("indexOptionDefaults", doc! {})
        .with("validationLevel", "off")
        .with("validationAction", "warn")
        .sent(
            "clusteredIndex",
            kept(doc! { "create": COLLECTION, "clusteredIndex": clustered.clone() }),
        )
        .sent(
            "clusteredIndex",
            kept(doc! { "insert": COLLECTION, "documents": [{ "_id": "a", "tags": long }] }),
        )
        .sent("clusteredIndex", kept(doc! { "update": COLLECTION, "updates": [pull] }))
        .sent(
            "clusteredIndex",
            kept(doc! { "find": COLLECTION, "filter": { "tags": 16 } }),
        )
        .sent("clusteredIndex", doc! { "drop": COLLECTION, "comment": KEPT })
        .beside(
            "expireAfterSeconds",
            doc! { "clusteredIndex": clustered, "expireAfterSeconds": 100 },
        )
        .with("encryptedFields", doc! { "fields": [] })
        .with("flags", 1)
        .wrong_on_some("recordPreImages", doc! { "recordPreImages": true })
        .with("timeseries", doc! { "timeField": "at" })
        .with("validator", doc! { "n": 1 })
        .but("validator", doc! { "validator": { "tags": 1 } })
        .but(
            "validator",
            doc! { "validator": { "$jsonSchema": { "required": ["n"] } } },
        )
        .with("viewOn", "plain")
        .beside("pipeline", doc! { "viewOn": "plain", "pipeline": [] })
}

pub(super) fn coll_mod() -> Of {
    let index = |index: Document| doc! { "index": index };
    Of::new("collMod", doc! { "collMod": COLLECTION })
        .with("changeStreamPreAndPostImages", doc! { "enabled": true })
        .with("validationLevel", "off")
        .with("validationAction", "warn")
        .wrong("cappedSize", doc! { "cappedSize": 8192 })
        .wrong("cappedMax", doc! { "cappedMax": 8 })
        .wrong(
            "clusteredIndex",
            doc! { "clusteredIndex": doc! { "expireAfterSeconds": 10 } },
        )
        .beside(
            "dryRun",
            doc! { "index": { "name": "n_1", "prepareUnique": true }, "comment": KEPT },
        )
        .beside(
            "dryRun",
            doc! { "dryRun": true, "index": { "name": "n_1", "unique": true } },
        )
        .wrong("expireAfterSeconds", doc! { "expireAfterSeconds": 100 })
        .with("index", doc! { "name": "n_1", "hidden": true })
        .with("index", doc! { "name": "tags_1", "hidden": true })
        .with(
            "index",
            doc! { "keyPattern": { "n": 1 }, "expireAfterSeconds": 100_000 },
        )
        .with("index", doc! { "keyPattern": { "n": 1 }, "prepareUnique": true })
        .but(
            "index",
            index(doc! { "keyPattern": { "tags": 1 }, "expireAfterSeconds": 100_000 }),
        )
        .but("index", index(doc! { "name": "tags_1", "prepareUnique": true }))
        .but("index", index(doc! { "name": "tags_1", "unique": true }))
        .wrong_on_some("isTimeseriesNamespace", doc! { "isTimeseriesNamespace": true })
        .wrong_on_some("recordPreImages", doc! { "recordPreImages": true })
        .wrong("timeseries", doc! { "timeseries": doc! { "granularity": "hours" } })
        .with("validator", doc! { "n": { "$gt": 0 } })
        .but("validator", doc! { "validator": { "tags": 1 } })
        .wrong("viewOn", doc! { "viewOn": "plain" })
        .wrong("pipeline", doc! { "pipeline": [] })
}

pub(super) fn views() -> Of {
    let create =
        |pipeline: Bson| doc! { "create": "items_view", "viewOn": COLLECTION, "pipeline": pipeline, "comment": KEPT };
    let find = |filter: Document| doc! { "find": "items_view", "filter": filter, "sort": { "_id": 1 } };
    Of::new("views", doc! {})
        .sent("viewOn", create(bson!([])))
        .sent("viewOn", find(doc! { "tags": 19 }))
        .sent("pipeline", doc! { "collMod": "items_view", "viewOn": COLLECTION, "pipeline": [{ "$match": { "tags": 19 } }], "comment": KEPT })
        .sent("pipeline", find(doc! {}))
        .but("pipeline", doc! { "collMod": "items_view", "viewOn": COLLECTION, "pipeline": [{ "$match": { "$text": { "$search": "x" } } }] })
}

pub(super) fn statistics() -> Of {
    Of::new("collStats", doc! { "collStats": COLLECTION })
        .compared(Compared::Success)
        .with("scale", 1024)
        .with("numericOnly", true)
}

pub(super) fn data_size() -> Of {
    Of::new("dataSize", doc! { "dataSize": format!("DATABASE.{COLLECTION}") })
        .compared(Compared::Success)
        .with("estimate", true)
        .with("keyPattern", doc! { "_id": 1 })
        .beside(
            "min",
            doc! { "keyPattern": { "_id": 1 }, "min": { "_id": 1 }, "max": { "_id": 4 } },
        )
        .beside(
            "max",
            doc! { "keyPattern": { "_id": 1 }, "min": { "_id": 1 }, "max": { "_id": 4 } },
        )
}

pub(super) fn validate() -> Of {
    Of::new("validate", doc! { "validate": COLLECTION })
        .compared(Compared::Success)
        .with("full", true)
        .with("background", false)
        .with("scandata", true)
        .with("checkBSONConformance", true)
        .with("enforceFastCount", true)
        .with("fixMultikey", true)
        .with("metadata", true)
        .wrong("repair", doc! { "repair": true })
}

pub(super) fn compact() -> Of {
    Of::new("compact", doc! { "compact": COLLECTION })
        // A primary of 6.0.5 refuses it.
        .wrong_on_some("force", doc! { "force": false })
}

pub(super) fn plan_cache() -> Of {
    Of::new("planCacheClear", doc! { "planCacheClear": COLLECTION })
        .beside("query", doc! { "query": { "n": 1 } })
        .beside("projection", doc! { "query": { "n": 1 }, "projection": { "n": 1 } })
        .beside("sort", doc! { "query": { "n": 1 }, "sort": { "n": 1 } })
        .beside(
            "collation",
            doc! { "query": { "n": 1 }, "collation": { "locale": "de" } },
        )
}

pub(super) fn list_collections() -> Of {
    Of::new(
        "listCollections",
        doc! { "listCollections": 1, "filter": { "name": { "$regex": "items|extra" } }, "nameOnly": true },
    )
    .with("filter", doc! { "name": COLLECTION })
    .with("filter", doc! { "name": "extra_items" })
    .with("nameOnly", true)
    .with("authorizedCollections", true)
    .with("cursor", doc! { "batchSize": 1 })
}

pub(super) fn db_stats() -> Of {
    Of::new("dbStats", doc! { "dbStats": 1 })
        .compared(Compared::Success)
        .with("scale", 1024)
        .with("freeStorage", 1)
}

pub(super) fn rename() -> Of {
    let of = |from: &str, to: &str| doc! { "renameCollection": from, "to": to, "$db": "admin" };
    let here = format!("DATABASE.{COLLECTION}");
    let mut target = of("DATABASE.plain", &here);
    target.insert("dropTarget", true);
    Of::new("renameCollection", doc! {})
        .sent("to", of(&here, "DATABASE.others"))
        .sent("to", of("DATABASE.plain", &here))
        .sent("dropTarget", target)
}

pub(super) fn drop() -> Of {
    Of::new("drop", doc! { "drop": COLLECTION }).with("comment", "c")
}
