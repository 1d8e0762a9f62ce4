//! Counts, distinct values, groups and joins.

use bson::doc;

use super::{CONVERSATIONS, aggregate, count_documents};
use crate::bench::queries::messages::{KEY, TIME};
use crate::bench::queries::shape::{Order, Shape};

/// Counts and distinct values.
pub(super) fn counts() -> Vec<Shape> {
    vec![
        Shape::indexed("estimatedDocumentCount", |a| Some(doc! { "count": a.collection })),
        Shape::indexed("count of a status", |a| {
            Some(doc! { "count": a.collection, "query": { "status": a.message.status } })
        }),
        Shape::indexed("count of a sender", |a| {
            Some(doc! { "count": a.collection, "query": { "from": a.message.from() } })
        }),
        Shape::indexed("count of a key", |a| {
            Some(doc! { "count": a.collection, "query": { KEY: a.of_key.key } })
        }),
        Shape::indexed("countDocuments of a key", |a| {
            Some(count_documents(a, &doc! { KEY: a.of_key.key }))
        }),
        Shape::indexed("countDocuments of 3000 items", |a| {
            Some(count_documents(a, &doc! { KEY: a.long.as_ref()?.key }))
        }),
        Shape::indexed("count of a range of a key", |a| {
            let range = doc! { "$gte": a.range_of_10.start, "$lt": a.range_of_10.end };
            Some(doc! { "count": a.collection, "query": { KEY: a.of_key.key, TIME: range } })
        }),
        Shape::indexed("count of a range of 3000 items", |a| {
            let long = a.long.as_ref()?;
            let range = doc! { "$gte": long.range_of_10.start, "$lt": long.range_of_10.end };
            Some(doc! { "count": a.collection, "query": { KEY: long.key, TIME: range } })
        }),
        Shape::indexed("countDocuments of a day", |a| {
            let from = a.message.at();
            let until = bson::DateTime::from_millis(from.timestamp_millis() + 86_400_000);
            Some(count_documents(a, &doc! { TIME: { "$gte": from, "$lt": until } }))
        }),
        Shape::scan("countDocuments of all", |a| Some(count_documents(a, &doc! {}))),
        Shape::indexed("distinct keys", |a| Some(doc! { "distinct": a.collection, "key": KEY })).order(Order::Any),
        Shape::indexed("distinct statuses", |a| {
            Some(doc! { "distinct": a.collection, "key": "status" })
        })
        .order(Order::Any),
        Shape::scan("distinct kinds, no index", |a| {
            Some(doc! { "distinct": a.collection, "key": "kind" })
        })
        .order(Order::Any),
        Shape::indexed("distinct senders of a key", |a| {
            Some(doc! { "distinct": a.collection, "key": "from", "query": { KEY: a.of_key.key } })
        })
        .order(Order::Any),
    ]
}

/// Groups and joins.
pub(super) fn groups() -> Vec<Shape> {
    let mut shapes = groups_by_key();
    shapes.extend([
        Shape::scan("dashboard: count by status", |a| {
            Some(aggregate(
                a,
                &[doc! { "$group": { "_id": "$status", "n": { "$sum": 1 } } }],
            ))
        }),
        Shape::scan("dashboard: count by day", |a| {
            let day = doc! { "$dateTrunc": { "date": "$at", "unit": "day" } };
            Some(aggregate(a, &[doc! { "$group": { "_id": day, "n": { "$sum": 1 } } }]))
        }),
        Shape::scan("sum by kind", |a| {
            Some(aggregate(
                a,
                &[doc! { "$group": { "_id": "$kind", "sum": { "$sum": "$n" } } }],
            ))
        }),
        Shape::indexed("count by kind of a range of 3000 items", |a| {
            let long = a.long.as_ref()?;
            let range = doc! { "$gte": long.range_of_300.start, "$lt": long.range_of_300.end };
            let group = doc! { "$group": { "_id": "$kind", "n": { "$sum": 1 } } };
            Some(aggregate(
                a,
                &[doc! { "$match": { KEY: long.key, TIME: range } }, group],
            ))
        }),
        Shape::indexed("count by status of a key", |a| {
            let group = doc! { "$group": { "_id": "$status", "n": { "$sum": 1 } } };
            Some(aggregate(a, &[doc! { "$match": { KEY: a.of_key.key } }, group]))
        }),
        Shape::indexed("count by kind of a sender", |a| {
            let group = doc! { "$group": { "_id": "$kind", "n": { "$sum": 1 } } };
            Some(aggregate(a, &[doc! { "$match": { "from": a.message.from() } }, group]))
        }),
    ]);
    shapes.extend(joins());
    shapes.into_iter().map(|shape| shape.order(Order::Any)).collect()
}

fn joins() -> Vec<Shape> {
    vec![
        Shape::indexed("$lookup of a conversation's messages", |a| {
            let lookup = doc! { "from": a.collection, "localField": "_id", "foreignField": KEY, "as": "messages" };
            let pipeline = [
                doc! { "$match": { "_id": a.of_key.key } },
                doc! { "$lookup": lookup },
                doc! { "$unwind": "$messages" },
            ];
            Some(doc! { "aggregate": CONVERSATIONS, "pipeline": pipeline.to_vec(), "cursor": {} })
        }),
        Shape::indexed("inbox: newest of 20 conversations, $lookup", |a| {
            let newest = [
                doc! { "$match": { "$expr": { "$eq": ["$conv", "$$key"] } } },
                doc! { "$sort": { TIME: -1 } },
                doc! { "$limit": 1 },
            ];
            let lookup =
                doc! { "from": a.collection, "let": { "key": "$_id" }, "pipeline": newest.to_vec(), "as": "newest" };
            let pipeline = [
                doc! { "$match": { "_id": { "$gte": a.first_of_20 } } },
                doc! { "$sort": { "_id": 1 } },
                doc! { "$limit": 20 },
                doc! { "$lookup": lookup },
            ];
            Some(doc! { "aggregate": CONVERSATIONS, "pipeline": pipeline.to_vec(), "cursor": {} })
        }),
    ]
}

fn groups_by_key() -> Vec<Shape> {
    vec![
        // mongod skips from key to key in the index for $first, and not for $last.
        Shape::indexed("newest of each key, $sort and $first", |a| {
            let group = doc! { "$group": { "_id": "$conv", "newest": { "$first": "$$ROOT" } } };
            Some(aggregate(a, &[doc! { "$sort": { KEY: -1, TIME: -1 } }, group]))
        }),
        Shape::scan("newest of each key, $sort and $last", |a| {
            let group = doc! { "$group": { "_id": "$conv", "newest": { "$last": "$$ROOT" } } };
            Some(aggregate(a, &[doc! { "$sort": { KEY: 1, TIME: 1 } }, group]))
        }),
        Shape::scan("newest of each key, $top", |a| {
            let top = doc! { "$top": { "sortBy": { TIME: -1 }, "output": ["$at", "$n"] } };
            Some(aggregate(a, &[doc! { "$group": { "_id": "$conv", "newest": top } }]))
        }),
        Shape::scan("newest time of each key, $max", |a| {
            Some(aggregate(
                a,
                &[doc! { "$group": { "_id": "$conv", "newest": { "$max": "$at" } } }],
            ))
        }),
        Shape::scan("sum of each key", |a| {
            Some(aggregate(
                a,
                &[doc! { "$group": { "_id": "$conv", "n": { "$sum": 1 }, "sum": { "$sum": "$n" } } }],
            ))
        }),
    ]
}
