//! Commands on the collection itself.

use bson::{Bson, doc};
use proto_tests::sides::COLLECTION;

use crate::support_matrix::probe::{Compared, Of};

pub(super) fn collection() -> Of {
    // It exists: mongod returns an error if it has other options, and succeeds if it has the same.
    Of::new("create", doc! { "create": COLLECTION })
        .with("capped", true)
        .with("temp", true)
        .with("autoIndexId", false)
        .but("collation", doc! { "collation": { "locale": "de" } })
        .with("collation", doc! { "locale": "simple" })
        .with("idIndex", doc! { "key": { "_id": 1 }, "name": "_id_", "v": 2 })
        .with("changeStreamPreAndPostImages", doc! { "enabled": true })
        .with("size", 4096)
        .with("max", 10)
        .with("storageEngine", doc! {})
        .with("indexOptionDefaults", doc! {})
        .with("validationLevel", "off")
        .with("validationAction", "warn")
        .compared_by(
            "clusteredIndex",
            doc! { "create": COLLECTION, "clusteredIndex": { "key": { "_id": 1 }, "unique": true } },
            Compared::WholeIfUnique,
        )
        .with("encryptedFields", doc! { "fields": [] })
        .with("expireAfterSeconds", 100)
        .with("flags", 1)
        .with("recordPreImages", true)
        .with("timeseries", doc! { "timeField": "at" })
        .with("validator", doc! { "q": 1 })
        .but("validator", doc! { "validator": { "$expr": true } })
        .with("viewOn", "plain")
        .beside("pipeline", doc! { "viewOn": "plain", "pipeline": [] })
}

pub(super) fn coll_mod() -> Of {
    Of::new("collMod", doc! { "collMod": COLLECTION })
        .with("changeStreamPreAndPostImages", doc! { "enabled": true })
        .with("changeStreamPreAndPostImages", doc! { "enabled": false })
        .with("validationLevel", "off")
        .but(
            "validationLevel",
            doc! { "validator": { "_id": 0 }, "validationLevel": "strict" },
        )
        .with("validationAction", "warn")
        .but(
            "validationAction",
            doc! { "validator": { "_id": 0 }, "validationLevel": "strict", "validationAction": "error" },
        )
        .with("cappedSize", 8192)
        .with("cappedMax", 8)
        .with("clusteredIndex", doc! { "expireAfterSeconds": 10 })
        .with("dryRun", true)
        .with("expireAfterSeconds", 100)
        .with("index", doc! { "name": "q_1", "hidden": true })
        .but(
            "index",
            doc! { "index": { "name": "q_1", "hidden": true, "expireAfterSeconds": 5 } },
        )
        .with("isTimeseriesNamespace", true)
        .with("recordPreImages", true)
        .with("timeseries", doc! { "granularity": "hours" })
        .with("validator", doc! { "k": { "$exists": true } })
        .but("validator", doc! { "validator": { "$expr": true } })
        .with("validator", doc! {})
        .with("viewOn", "plain")
        .with("pipeline", Bson::Array(Vec::new()))
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
        .with("repair", true)
}

pub(super) fn compact() -> Of {
    Of::new("compact", doc! { "compact": COLLECTION, "force": true })
        .compared(Compared::Success)
        .with("force", true)
        .with("force", false)
}

pub(super) fn plan_cache() -> Of {
    Of::new("planCacheClear", doc! { "planCacheClear": COLLECTION })
        .with("query", doc! { "q": 1 })
        .beside("projection", doc! { "projection": { "q": 1 } })
        .beside("sort", doc! { "sort": { "q": 1 } })
        .with("collation", doc! { "locale": "de" })
}

pub(super) fn list_collections() -> Of {
    Of::new(
        "listCollections",
        doc! { "listCollections": 1, "filter": { "name": COLLECTION }, "nameOnly": true },
    )
    .with("filter", doc! { "name": COLLECTION })
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
    let of = |to: &str| doc! { "renameCollection": format!("DATABASE.{COLLECTION}"), "to": to, "$db": "admin" };
    Of::new("renameCollection", of("DATABASE.items"))
        .with("to", "DATABASE.items")
        .but("to", of("DATABASE.plain"))
        .with("dropTarget", true)
}

pub(super) fn drop() -> Of {
    Of::new("drop", doc! { "drop": "nothing" }).with("comment", "c")
}
