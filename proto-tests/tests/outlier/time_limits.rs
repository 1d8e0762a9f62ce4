//! The time limit and the comment of a write are those of the internal commands that may take long.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::stopping_relay::StoppingRelay;
use proto_tests::{Outlier, mongod};

/// Describes a query that selects documents, or an evaluation in a scratch collection.
fn described(command: &Document) -> Option<String> {
    let (name, collection) = command.iter().next()?;
    let collection = collection.as_str()?;
    let is_scratch = collection.starts_with("extra_items_scratch_");
    let projection = command.get_document("projection");
    let selects = match name.as_str() {
        "aggregate" => true,
        "find" => projection.is_ok_and(|projection| *projection == doc! { "_id": 1 }),
        _ => false,
    };
    let kind = match name.as_str() {
        _ if selects && collection == COLLECTION => "selection",
        "update" | "findAndModify" if is_scratch => "evaluation",
        _ => return None,
    };
    let limit = command.get_i32("maxTimeMS").unwrap_or_default();
    let comment = command.get_str("comment").unwrap_or_default();
    Some(format!("{kind} {limit} {comment}"))
}

#[test]
fn selections_and_evaluations_have_the_limit_and_the_comment_of_the_command() -> Result<()> {
    let mongod = mongod::shared();
    let relay = StoppingRelay::to(mongod.address(), described)?;
    let mut sides = Sides::at(Outlier::new("tags", (5, 7)), (relay.uri(), mongod.address()))?;
    let document = |id: i32| doc! { "_id": id, "n": id, "tags": (0..20).collect::<Vec<i32>>() };
    let documents: Vec<Document> = (0..6).map(document).collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": documents })?;
    let update = |filter: Document, change: Document, multi: bool| {
        doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change, "multi": multi }] }
    };
    let delete = |filter: Document, limit: i32| {
        doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": limit }] }
    };
    let pull = doc! { "$pull": { "tags": 3 } };
    let commands = [
        (
            update(doc! { "tags": 12 }, doc! { "$set": { "a": 1 } }, true),
            "selection",
        ),
        (update(doc! { "n": { "$gt": 3 } }, pull.clone(), true), "evaluation"),
        (update(doc! { "n": 1 }, pull.clone(), false), "selection"),
        (
            doc! { "findAndModify": COLLECTION, "query": { "n": 2 }, "update": pull },
            "evaluation",
        ),
        (delete(doc! { "n": 0 }, 1), "selection"),
        (delete(doc! { "tags": 12, "n": 4 }, 0), "selection"),
    ];
    for (mut command, kind) in commands {
        command.extend(doc! { "maxTimeMS": 60_000, "comment": "nightly" });
        relay.arm(None);
        sides.alike(&command)?;
        let seen = relay.commands();
        let are_marked = seen.iter().all(|seen| seen.ends_with(" 60000 nightly"));
        let is_there = seen.iter().any(|seen| seen.starts_with(kind));
        ensure!(are_marked && is_there, "{command}: {seen:?}");
    }
    sides.check()
}
