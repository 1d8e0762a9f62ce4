//! Queries across all keys.

use bson::doc;

use super::{find, first};
use crate::bench::queries::messages::{KEY, TIME};
use crate::bench::queries::shape::{Order, Shape};

/// Newest and oldest messages by an index, and the pages behind a cursor.
pub(super) fn sorted() -> Vec<Shape> {
    vec![
        Shape::indexed("newest 20 of all", |a| Some(first(a, doc! {}, doc! { TIME: -1 }, 20))),
        Shape::indexed("next 20 of all", |a| {
            let filter = doc! { TIME: { "$lt": a.message.at() } };
            Some(first(a, filter, doc! { TIME: -1 }, 20))
        }),
        Shape::indexed("next 20 of all, keyset with ties", |a| {
            let (at, id) = (a.message.at(), a.message.id());
            let filter = doc! { "$or": [{ TIME: { "$lt": at } }, { TIME: at, "_id": { "$lt": id } }] };
            Some(first(a, filter, doc! { TIME: -1 }, 20))
        }),
        Shape::indexed("page 10 of all, skip 180", |a| {
            let mut command = first(a, doc! {}, doc! { TIME: -1 }, 20);
            command.insert("skip", 180);
            Some(command)
        }),
        Shape::indexed("newest 20 of all, two fields", |a| {
            let mut command = first(a, doc! {}, doc! { TIME: -1 }, 20);
            command.insert("projection", doc! { KEY: 1, TIME: 1, "_id": 0 });
            Some(command)
        }),
        Shape::indexed("newest 20 of a sender", |a| {
            Some(first(a, doc! { "from": a.message.from() }, doc! { TIME: -1 }, 20))
        }),
        Shape::indexed("next 20 of a sender", |a| {
            let filter = doc! { "from": a.message.from(), TIME: { "$lt": a.message.at() } };
            Some(first(a, filter, doc! { TIME: -1 }, 20))
        }),
        Shape::indexed("oldest 20 of a status", |a| {
            Some(first(a, doc! { "status": a.message.status }, doc! { TIME: 1 }, 20))
        }),
        Shape::indexed("newest 20 of a status", |a| {
            Some(first(a, doc! { "status": a.message.status }, doc! { TIME: -1 }, 20))
        }),
        Shape::indexed("first 20 from a key on", |a| {
            Some(first(
                a,
                doc! { KEY: { "$gte": a.message.key } },
                doc! { KEY: 1, TIME: 1 },
                20,
            ))
        }),
        Shape::indexed("newest 10 by _id", |a| Some(first(a, doc! {}, doc! { "_id": -1 }, 10))),
        Shape::indexed("next 10 by _id", |a| {
            let filter = doc! { "_id": { "$gt": a.message.id() } };
            Some(first(a, filter, doc! { "_id": 1 }, 10))
        }),
        Shape::indexed("previous 10 by _id", |a| {
            let filter = doc! { "_id": { "$lt": a.message.id() } };
            Some(first(a, filter, doc! { "_id": -1 }, 10))
        }),
    ]
}

/// Feeds, filters, single messages and exports.
pub(super) fn others() -> Vec<Shape> {
    vec![
        Shape::indexed("feed: newest 20 of five keys", |a| {
            Some(first(a, doc! { KEY: { "$in": &a.feed } }, doc! { TIME: -1 }, 20))
        }),
        Shape::indexed("newest 20 of a kind, no index on it", |a| {
            Some(first(a, doc! { "kind": a.message.kind }, doc! { TIME: -1 }, 20))
        }),
        Shape::indexed("all of a sender", |a| Some(find(a, doc! { "from": a.message.from() }))).order(Order::Any),
        Shape::indexed("a sender in a key", |a| {
            Some(find(a, doc! { KEY: a.of_key.key, "from": a.of_key.from() }))
        })
        .order(Order::Any),
        Shape::indexed("one by _id", |a| Some(find(a, doc! { "_id": a.message.id() }))),
        Shape::indexed("two by _id, $in", |a| {
            Some(find(a, doc! { "_id": { "$in": [a.message.id(), a.of_key.id()] } }))
        })
        .order(Order::Any),
        Shape::indexed("findOne of any", |a| {
            Some(doc! { "find": a.collection, "limit": 1, "singleBatch": true })
        })
        .order(Order::AnyDocuments),
        Shape::indexed("is there one of a sender", |a| {
            let command = doc! { "find": a.collection, "filter": { "from": a.message.from() }, "limit": 1 };
            Some(command)
        })
        .order(Order::AnyDocuments),
        Shape::indexed("export: all, sorted, batches of 1000", |a| {
            Some(doc! { "find": a.collection, "sort": { TIME: 1 }, "batchSize": 1000 })
        }),
        Shape::scan("export: all, batches of 1000", |a| {
            Some(doc! { "find": a.collection, "batchSize": 1000 })
        })
        .order(Order::Any),
    ]
}
