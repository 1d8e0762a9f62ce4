//! The time limit and the comment of a write are those of the queries that select its items.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::stopping_relay::StoppingRelay;
use proto_tests::{Shape, mongod};

/// Describes a query.
fn described(command: &Document) -> Option<String> {
    let (name, collection) = command.iter().next()?;
    let is_query = ["find", "aggregate"].contains(&name.as_str()) && collection.as_str() == Some(COLLECTION);
    let limit = command.get_i32("maxTimeMS").unwrap_or_default();
    let comment = command.get_str("comment").unwrap_or_default();
    is_query.then(|| format!("{limit} {comment}"))
}

#[test]
fn selections_have_the_limit_and_the_comment_of_the_command() -> Result<()> {
    let mongod = mongod::shared();
    let relay = StoppingRelay::to(mongod.address(), described)?;
    let shape = Shape {
        items_change: true,
        ..Shape::new(&["k"])
    };
    let mut sides = Sides::at(shape, (relay.uri(), mongod.address()))?;
    let items: Vec<Document> = (0..20).map(|id| doc! { "_id": id, "k": id % 3, "n": id }).collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    let change = doc! { "$set": { "a": 1 } };
    let update = |filter: Document, multi: bool| {
        doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": &change, "multi": multi }] }
    };
    let delete = |filter: Document, limit: i32| {
        doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": limit }] }
    };
    for mut command in [
        update(doc! { "n": { "$gt": 12 } }, true),
        update(doc! { "n": 5 }, false),
        doc! { "findAndModify": COLLECTION, "query": { "n": 7 }, "update": &change },
        doc! { "findAndModify": COLLECTION, "query": { "n": 8 }, "remove": true },
        delete(doc! { "n": 9 }, 1),
        delete(doc! { "n": { "$gt": 15 } }, 0),
        delete(doc! { "k": 1 }, 0),
    ] {
        command.extend(doc! { "maxTimeMS": 60_000, "comment": "nightly" });
        relay.arm(None);
        sides.alike(&command)?;
        let seen = relay.commands();
        let is_marked = !seen.is_empty() && seen.iter().all(|seen| seen == "60000 nightly");
        ensure!(is_marked, "{command}: {seen:?}");
    }
    sides.check()
}
