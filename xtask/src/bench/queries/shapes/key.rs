//! Queries of one key.

use bson::doc;

use super::{find, first};
use crate::bench::queries::messages::{KEY, TIME};
use crate::bench::queries::shape::{Order, Shape};

/// Items of a page of an application.
const PAGE: i32 = 10;

/// Pages of ten by their number, from either end.
pub(super) fn pages() -> Vec<Shape> {
    vec![
        page("page 1 of a key", 1, 1),
        page("page 2 of a key", 2, 1),
        page("page 5 of a key", 5, 1),
        page("page 1 of a key, newest first", 1, -1),
        page("page 2 of a key, newest first", 2, -1),
        page("page 5 of a key, newest first", 5, -1),
        page_of_long("page 10 of 3000 items", 10, 1),
        page_of_long("page 100 of 3000 items", 100, 1),
        page_of_long("page 1 of 3000 items, newest first", 1, -1),
        page_of_long("page 10 of 3000 items, newest first", 10, -1),
        Shape::indexed("page 1000 of 12,000 items", |a| {
            let mut command = first(a, doc! { KEY: a.longest? }, doc! { TIME: 1 }, PAGE);
            command.insert("skip", 999 * PAGE);
            Some(command)
        }),
    ]
}

fn page(name: &'static str, number: i32, direction: i32) -> Shape {
    Shape::indexed(name, move |a| {
        let mut command = first(a, doc! { KEY: a.of_key.key }, doc! { TIME: direction }, PAGE);
        command.insert("skip", (number - 1) * PAGE);
        Some(command)
    })
}

fn page_of_long(name: &'static str, number: i32, direction: i32) -> Shape {
    Shape::indexed(name, move |a| {
        let mut command = first(a, doc! { KEY: a.long.as_ref()?.key }, doc! { TIME: direction }, PAGE);
        command.insert("skip", (number - 1) * PAGE);
        Some(command)
    })
}

/// Cursors and ranges.
pub(super) fn ranges() -> Vec<Shape> {
    vec![
        Shape::indexed("next 10 of a key", |a| {
            let filter = doc! { KEY: a.of_key.key, TIME: { "$lt": a.of_key.at() } };
            Some(first(a, filter, doc! { TIME: -1 }, PAGE))
        }),
        Shape::indexed("previous 10 of a key", |a| {
            let filter = doc! { KEY: a.of_key.key, TIME: { "$gt": a.of_key.at() } };
            Some(first(a, filter, doc! { TIME: 1 }, PAGE))
        }),
        Shape::indexed("next 10 of 3000 items", |a| {
            let long = a.long.as_ref()?;
            let filter = doc! { KEY: long.key, TIME: { "$lt": long.range_of_300.start } };
            Some(first(a, filter, doc! { TIME: -1 }, PAGE))
        }),
        Shape::indexed("next 10 of a key, keyset with ties", |a| {
            let (at, id) = (a.of_key.at(), a.of_key.id());
            let ties = [doc! { TIME: { "$lt": at } }, doc! { TIME: at, "_id": { "$lt": id } }];
            let filter = doc! { KEY: a.of_key.key, "$or": ties.to_vec() };
            Some(first(a, filter, doc! { TIME: -1 }, PAGE))
        }),
        Shape::indexed("range of 10 of a key", |a| {
            let range = doc! { "$gte": a.range_of_10.start, "$lt": a.range_of_10.end };
            let mut command = find(a, doc! { KEY: a.of_key.key, TIME: range });
            command.insert("sort", doc! { TIME: 1 });
            Some(command)
        }),
        Shape::indexed("range of 10 of 3000 items", |a| {
            let long = a.long.as_ref()?;
            let range = doc! { "$gte": long.range_of_10.start, "$lt": long.range_of_10.end };
            let mut command = find(a, doc! { KEY: long.key, TIME: range });
            command.insert("sort", doc! { TIME: 1 });
            Some(command)
        }),
        Shape::indexed("range of 300 of 3000 items", |a| {
            let long = a.long.as_ref()?;
            let range = doc! { "$gte": long.range_of_300.start, "$lt": long.range_of_300.end };
            let mut command = find(a, doc! { KEY: long.key, TIME: range });
            command.insert("sort", doc! { TIME: 1 });
            Some(command)
        }),
    ]
}

/// Whole keys, single messages and searches.
pub(super) fn others() -> Vec<Shape> {
    vec![
        Shape::indexed("whole key of 100", |a| {
            let mut command = find(a, doc! { KEY: a.of_key.key });
            command.insert("sort", doc! { TIME: 1 });
            Some(command)
        }),
        Shape::indexed("whole key of 3000", |a| {
            let mut command = find(a, doc! { KEY: a.long.as_ref()?.key });
            command.insert("sort", doc! { TIME: 1 });
            Some(command)
        }),
        Shape::indexed("newest of a key", |a| {
            Some(first(a, doc! { KEY: a.of_key.key }, doc! { TIME: -1 }, 1))
        }),
        Shape::indexed("findOne of a key", |a| {
            Some(doc! { "find": a.collection, "filter": { KEY: a.of_key.key }, "limit": 1, "singleBatch": true })
        })
        .order(Order::AnyDocuments),
        Shape::indexed("a key, two fields", |a| {
            let mut command = find(a, doc! { KEY: a.of_key.key });
            command.insert("sort", doc! { TIME: 1 });
            command.insert("projection", doc! { "from": 1, "n": 1, "_id": 0 });
            Some(command)
        }),
        Shape::indexed("newest 10 of a status in a key", |a| {
            let filter = doc! { KEY: a.of_key.key, "status": a.message.status };
            Some(first(a, filter, doc! { TIME: -1 }, PAGE))
        }),
        Shape::indexed("is there a pending one in a key", |a| {
            let filter = doc! { KEY: a.of_key.key, "status": "pending" };
            Some(doc! { "find": a.collection, "filter": filter, "limit": 1, "singleBatch": true })
        })
        .order(Order::AnyDocuments),
    ]
}
