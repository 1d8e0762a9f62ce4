//! Commands about indexes.

use bson::{Document, doc};
use proto_tests::sides::COLLECTION;

use crate::support_matrix::probe::{Compared, Of, uuid};

/// A `createIndexes` of one index. Without another name and key, mongod would have the index already.
fn of(spec: Document) -> Document {
    let mut index = doc! { "key": { "a": 1 }, "name": "a" };
    index.extend(spec);
    doc! { "createIndexes": COLLECTION, "indexes": [index] }
}

pub(super) fn indexes() -> Of {
    let named = |name: &str, more: Document| {
        let mut sent = doc! { "createIndexes": COLLECTION, "indexes": [{ "key": { name: 1 }, "name": name }] };
        sent.extend(more);
        sent
    };
    of_other_kinds(
        Of::new("createIndexes", doc! {})
            .sent("indexes", named("a", doc! {}))
            .sent("commitQuorum", named("b", doc! { "commitQuorum": 1 }))
            .sent(
                "ignoreUnknownIndexOptions",
                named("c", doc! { "ignoreUnknownIndexOptions": true }),
            )
            .sent("indexes.key", of(doc! { "key": { "d": -1, "e": 1 }, "name": "d_e" }))
            .sent("indexes.name", of(doc! { "name": "mine", "key": { "f": 1 } }))
            .sent("indexes.v", of(doc! { "v": 2, "name": "v", "key": { "v": 1 } }))
            .sent(
                "indexes.background",
                of(doc! { "background": true, "name": "g", "key": { "g": 1 } }),
            )
            .sent(
                "indexes.hidden",
                of(doc! { "hidden": true, "name": "h", "key": { "h": 1 } }),
            )
            .sent(
                "indexes.unique",
                of(doc! { "unique": true, "name": "u", "key": { "u": 1, "_id": 1 } }),
            )
            .but("indexes.unique", of(doc! { "unique": true, "sparse": true }))
            .sent("indexes.sparse", of(doc! { "sparse": true, "name": "s" }))
            .but("indexes.sparse", of(doc! { "sparse": true, "unique": true }))
            .sent(
                "indexes.partialFilterExpression",
                of(doc! { "partialFilterExpression": { "q": 1 }, "name": "p" }),
            )
            .but(
                "indexes.partialFilterExpression",
                of(doc! { "partialFilterExpression": { "q": 1 }, "expireAfterSeconds": 5 }),
            )
            .sent(
                "indexes.expireAfterSeconds",
                of(doc! { "expireAfterSeconds": 100_000_000, "name": "e", "key": { "e": 1 } }),
            )
            .sent(
                "indexes.collation",
                of(doc! { "collation": { "locale": "de" }, "name": "de" }),
            )
            .but(
                "indexes.collation",
                of(doc! { "collation": { "locale": "de" }, "unique": true }),
            ),
    )
}

/// The options of other kinds of indexes.
fn of_other_kinds(of_indexes: Of) -> Of {
    of_indexes
        .sent("indexes.storageEngine", of(doc! { "storageEngine": {} }))
        .sent(
            "indexes.weights",
            of(doc! { "key": { "a": "text" }, "weights": { "a": 2 } }),
        )
        .sent(
            "indexes.default_language",
            of(doc! { "key": { "a": "text" }, "default_language": "german" }),
        )
        .sent(
            "indexes.language_override",
            of(doc! { "key": { "a": "text" }, "language_override": "l" }),
        )
        .sent(
            "indexes.textIndexVersion",
            of(doc! { "key": { "a": "text" }, "textIndexVersion": 3 }),
        )
        .sent(
            "indexes.2dsphereIndexVersion",
            of(doc! { "key": { "a": "2dsphere" }, "name": "sphere", "2dsphereIndexVersion": 3 }),
        )
        .sent(
            "indexes.bits",
            of(doc! { "key": { "b": "2d" }, "name": "bits", "bits": 20 }),
        )
        .sent(
            "indexes.min",
            of(doc! { "key": { "c": "2d" }, "name": "min", "min": -10 }),
        )
        .sent(
            "indexes.max",
            of(doc! { "key": { "d": "2d" }, "name": "max", "max": 10 }),
        )
        .sent(
            "indexes.wildcardProjection",
            of(doc! { "key": { "$**": 1 }, "wildcardProjection": { "x": 1 }, "name": "wild" }),
        )
}

pub(super) fn list_indexes() -> Of {
    Of::new("listIndexes", doc! { "listIndexes": COLLECTION })
        .with("cursor", doc! { "batchSize": 1 })
        .with("cursor", doc! {})
        .compared(Compared::Success)
        .with("includeBuildUUIDs", true)
        .with("includeIndexBuildInfo", true)
}

pub(super) fn drop_indexes() -> Of {
    Of::new("dropIndexes", doc! { "dropIndexes": COLLECTION })
        .with("index", "mine")
        .with("index", doc! { "d": -1, "e": 1 })
        .with("index", vec!["v", "g"])
        .with("index", "*")
        .with("index", "mongoshape_page")
        .with("collectionUUID", uuid())
}
