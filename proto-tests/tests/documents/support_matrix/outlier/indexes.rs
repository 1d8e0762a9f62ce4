//! Indexes.

use bson::{Document, doc};
use proto_tests::sides::COLLECTION;

use crate::support_matrix::probe::{Compared, Of, uuid};

fn of(key: Document, more: Document) -> Document {
    let mut index = doc! { "key": key, "name": "x" };
    index.extend(more);
    doc! { "createIndexes": COLLECTION, "indexes": [index] }
}

fn and(more: Document) -> Document {
    of(doc! { "m": 1 }, more)
}

fn on_tags(more: Document) -> Document {
    of(doc! { "tags": 1 }, more)
}

fn in_tags(more: Document) -> Document {
    of(doc! { "tags.x": 1 }, more)
}

fn text(more: Document) -> Document {
    of(doc! { "s": "text" }, more)
}

pub(super) fn create() -> Of {
    let command = |more: Document| {
        let mut sent = and(doc! {});
        sent.extend(more);
        sent
    };
    Of::new("createIndexes", doc! {})
        .sent("indexes", and(doc! {}))
        .sent("commitQuorum", command(doc! { "commitQuorum": 1 }))
        .sent(
            "ignoreUnknownIndexOptions",
            command(doc! { "ignoreUnknownIndexOptions": true }),
        )
        .sent("indexes.key", of(doc! { "tags": -1, "m": 1 }, doc! {}))
        .sent("indexes.key", in_tags(doc! {}))
        .sent("indexes.key", of(doc! { "m": "hashed" }, doc! {}))
        .sent("indexes.key", of(doc! { "$**": 1 }, doc! {}))
        .sent("indexes.name", and(doc! { "name": "mine" }))
        .sent("indexes.v", and(doc! { "v": 2 }))
        .sent("indexes.background", and(doc! { "background": true }))
        .sent("indexes.hidden", and(doc! { "hidden": true }))
        .sent("indexes.collation", and(doc! { "collation": { "locale": "de" } }))
        .sent(
            "indexes.storageEngine",
            and(doc! { "storageEngine": { "wiredTiger": {} } }),
        )
        .sent("indexes.unique", of(doc! { "n": 1 }, doc! { "unique": true }))
        .but("indexes.unique", on_tags(doc! { "unique": true }))
        .but(
            "indexes.unique",
            of(doc! { "n": 1, "tags.x": 1 }, doc! { "unique": true }),
        )
        .but("indexes.unique", in_tags(doc! { "prepareUnique": true }))
        .sent("indexes.sparse", and(doc! { "sparse": true }))
        .sent("indexes.sparse", on_tags(doc! { "sparse": true }))
        .but("indexes.sparse", in_tags(doc! { "sparse": true }))
        .sent(
            "indexes.partialFilterExpression",
            and(doc! { "partialFilterExpression": { "n": 1 } }),
        )
        .but(
            "indexes.partialFilterExpression",
            and(doc! { "partialFilterExpression": { "tags": 1 } }),
        )
        .sent(
            "indexes.expireAfterSeconds",
            and(doc! { "expireAfterSeconds": 100_000_000 }),
        )
        .but(
            "indexes.expireAfterSeconds",
            in_tags(doc! { "expireAfterSeconds": 100_000_000 }),
        )
}

/// Those of text and of places.
pub(super) fn create_others() -> Of {
    let sphere = doc! { "loc": "2dsphere", "m": 1 };
    let plane = |more: Document| of(doc! { "loc": "2d" }, more);
    Of::new("createIndexes", doc! {})
        .sent("indexes.key", text(doc! {}))
        .but("indexes.key", of(doc! { "tags": "text" }, doc! {}))
        .but("indexes.key", of(doc! { "tags.z": "text" }, doc! {}))
        .but("indexes.key", of(doc! { "$**": "text" }, doc! {}))
        .sent("indexes.weights", text(doc! { "weights": { "s": 2 } }))
        .but("indexes.weights", text(doc! { "weights": { "tags": 2 } }))
        .sent("indexes.default_language", text(doc! { "default_language": "german" }))
        .sent("indexes.language_override", text(doc! { "language_override": "l" }))
        .sent("indexes.textIndexVersion", text(doc! { "textIndexVersion": 3 }))
        .sent(
            "indexes.2dsphereIndexVersion",
            of(sphere, doc! { "2dsphereIndexVersion": 3 }),
        )
        .sent("indexes.bits", plane(doc! { "bits": 20 }))
        .sent("indexes.min", plane(doc! { "min": -100 }))
        .sent("indexes.max", plane(doc! { "max": 100 }))
        .sent(
            "indexes.wildcardProjection",
            of(doc! { "$**": 1 }, doc! { "wildcardProjection": { "m": 1 } }),
        )
}

pub(super) fn list() -> Of {
    Of::new("listIndexes", doc! { "listIndexes": COLLECTION })
        .with("cursor", doc! { "batchSize": 1 })
        .with("cursor", doc! {})
        .compared(Compared::Success)
        .with("includeBuildUUIDs", true)
        .with("includeIndexBuildInfo", true)
}

pub(super) fn drop() -> Of {
    Of::new("dropIndexes", doc! { "dropIndexes": COLLECTION })
        .with("index", "n_1")
        .with("index", doc! { "tags": 1 })
        .with("index", vec!["n_1", "tags_1"])
        .with("index", "*")
        .wrong("collectionUUID", doc! { "index": "n_1", "collectionUUID": uuid() })
}
