//! Changes that leave the pages of an outlier as they are: pushes, and `findAndModify` without the array.

use anyhow::{Context as _, Result, ensure};
use bson::oid::ObjectId;
use bson::{Document, doc};
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::stopping_relay::StoppingRelay;
use proto_tests::{Outlier, mongod};

/// The collection of pages. Names of scratch collections contain it.
const EXTRAS: &str = "extra_items";

/// Both sides with an inline document and two outliers.
fn sides() -> Result<Sides<Outlier>> {
    filled(Sides::open(shape())?)
}

fn shape() -> Outlier {
    Outlier::new("tags", (5, 7))
}

fn filled(mut sides: Sides<Outlier>) -> Result<Sides<Outlier>> {
    let document = |id: i32, length: i32| {
        let place = doc! { "type": "Point", "coordinates": [id, id] };
        doc! { "_id": id, "n": id, "place": place, "tags": (0..length).collect::<Vec<_>>() }
    };
    let documents = [document(1, 3), document(2, 20), document(3, 13)];
    sides.alike(&doc! { "insert": COLLECTION, "documents": documents })?;
    Ok(sides)
}

fn modify(query: Document, more: Document) -> Document {
    let change = doc! { "$inc": { "n": 10 }, "$set": { "last": [1, 2] } };
    let mut command = doc! { "findAndModify": COLLECTION, "query": query, "update": change };
    command.extend(more);
    command
}

fn commands() -> Vec<Document> {
    let upsert = doc! { "upsert": true, "new": true };
    vec![
        modify(doc! { "_id": 2 }, doc! {}),
        modify(doc! { "_id": 2 }, doc! { "new": true }),
        modify(doc! { "_id": 2 }, doc! { "fields": { "n": 1 } }),
        modify(doc! { "_id": 2 }, doc! { "fields": { "n": 1, "_id": 0 }, "new": true }),
        modify(doc! {}, doc! { "sort": { "n": -1 } }),
        modify(doc! {}, doc! { "sort": { "n": -1 }, "fields": { "_id": true } }),
        modify(doc! { "n": { "$gt": 2 } }, doc! { "sort": { "_id": -1 }, "new": true }),
        modify(doc! { "_id": 2, "n": -1 }, doc! {}),
        modify(doc! { "_id": 2, "n": -1 }, doc! { "fields": { "n": 1 } }),
        modify(doc! { "_id": 3 }, upsert.clone()),
        modify(doc! { "_id": 4 }, upsert),
        modify(doc! { "_id": 5 }, doc! { "upsert": true, "fields": { "n": 1 } }),
    ]
}

#[test]
fn reply_contains_the_whole_document() -> Result<()> {
    let mut sides = sides()?;
    for (number, command) in (1_i64..).zip(commands()) {
        sides.alike(&command)?;
        // The second attempt returns the recorded reply.
        let mut retryable = command;
        retryable.extend(doc! { "lsid": {}, "txnNumber": number });
        for _ in 0..2 {
            sides.alike(&retryable)?;
        }
        // The tail has elements.
        let push = doc! { "q": { "_id": 2 }, "u": { "$push": { "tags": number } } };
        sides.alike(&doc! { "update": COLLECTION, "updates": [push] })?;
    }
    sides.check()
}

/// No document is evaluated in a scratch collection, and the pages are those of the insert.
#[test]
fn pages_are_not_replaced() -> Result<()> {
    let mut sides = sides()?;
    let controls = |sides: &mut Sides<Outlier>| -> Result<Vec<Document>> {
        let field = sides.shape.control();
        let controls = sides.buckets()?.into_iter();
        Ok(controls
            .filter_map(|stored| stored.get_document(&field).ok().cloned())
            .collect())
    };
    let before = controls(&mut sides)?;
    ensure!(before.len() == 2, "{before:?}");
    for command in commands().into_iter().take(7) {
        sides.alike(&command)?;
    }
    ensure!(controls(&mut sides)? == before, "the pages are replaced");
    sides.check()
}

#[test]
fn a_push_of_many_elements_does_not_replace_pages() -> Result<()> {
    let mut sides = sides()?;
    let generation = |sides: &mut Sides<Outlier>| -> Result<ObjectId> {
        let field = sides.shape.control();
        let mut stored = sides.buckets()?.into_iter();
        let outlier = stored.find(|stored| stored.get_i32("_id").is_ok_and(|id| id == 2));
        let outlier = outlier.context("no outlier")?;
        Ok(outlier.get_document(field)?.get_object_id("generation")?)
    };
    let before = generation(&mut sides)?;
    let push = |id: i32, length: i32| {
        let each = doc! { "$each": (0..length).collect::<Vec<_>>() };
        let change = doc! { "$push": { "tags": each }, "$inc": { "n": 10 } };
        doc! { "update": COLLECTION, "updates": [{ "q": { "_id": id }, "u": change, "upsert": true }] }
    };
    for length in [6, 5, 7, 8, 30, 500] {
        // An inline document, the outlier, and one that the push inserts.
        for id in [1, 2, 100 + length] {
            sides.alike(&push(id, length))?;
        }
    }
    ensure!(generation(&mut sides)? == before, "the pages are replaced");
    sides.check()
}

/// Names a command on a scratch collection or on pages.
fn beside_the_collection(command: &Document) -> Option<String> {
    let (name, collection) = command.iter().next()?;
    let collection = collection.as_str()?;
    collection.contains(EXTRAS).then(|| format!("{name} {collection}"))
}

#[test]
fn a_document_that_does_not_match_is_not_evaluated() -> Result<()> {
    let set = mongod::shared_replica_set();
    let relay = StoppingRelay::to(set.address(), beside_the_collection)?;
    let mut sides = filled(Sides::at(shape(), (relay.uri(), set.address()))?)?;
    let update = |id: i32, change: Document| {
        let statement = doc! { "q": { "_id": id, "n": -1 }, "u": change };
        doc! { "update": COLLECTION, "updates": [statement] }
    };
    let mut number = 0_i64;
    for id in [1, 2, 9] {
        for command in [
            update(id, doc! { "$push": { "tags": 1 } }),
            update(id, doc! { "$pull": { "tags": 1 } }),
            update(id, doc! { "$set": { "tags.2": 1 } }),
            update(id, doc! { "$set": { "tags.20": 1 } }),
            update(id, doc! { "$push": { "tags": { "$each": [1, 2, 3, 4, 5, 6] } } }),
            modify(doc! { "_id": id, "n": -1 }, doc! {}),
            modify(doc! { "_id": id, "n": -1 }, doc! { "new": true }),
        ] {
            number += 1;
            let mut retryable = command.clone();
            retryable.extend(doc! { "lsid": {}, "txnNumber": number });
            for command in [command, retryable] {
                relay.arm(None);
                sides.alike(&command)?;
                let beside = relay.commands();
                // The index of pages is listed again from time to time.
                let is_read = |command: &String| command.starts_with("find ") || command.starts_with("listIndexes ");
                let is_evaluated = !beside.iter().all(is_read);
                ensure!(!is_evaluated, "{command}: {beside:?}");
            }
        }
    }
    sides.check()
}

/// Names a command on the collection or on pages.
fn on_documents(command: &Document) -> Option<String> {
    let (name, collection) = command.iter().next()?;
    let collection = collection.as_str()?;
    let is_counted = [COLLECTION, EXTRAS].contains(&collection);
    is_counted.then(|| format!("{name} {collection}"))
}

#[test]
fn find_and_modify_reads_an_outlier_once() -> Result<()> {
    let set = mongod::shared_replica_set();
    let relay = StoppingRelay::to(set.address(), on_documents)?;
    let mut sides = filled(Sides::at(shape(), (relay.uri(), set.address()))?)?;
    let [change, base, pages] = ["findAndModify items", "find items", "find extra_items"];
    for (n, expected) in [
        (2, vec![change, base, pages, change]),
        // No document matches.
        (-1, vec![change, base, change]),
    ] {
        relay.arm(None);
        sides.alike(&modify(doc! { "_id": 2, "n": n }, doc! {}))?;
        let commands = relay.commands();
        ensure!(commands == expected, "{n}: {commands:?}");
    }
    sides.check()
}

#[test]
fn nearest_document_is_found_by_its_index() -> Result<()> {
    let mut sides = sides()?;
    let indexes = [doc! { "key": { "place": "2dsphere" }, "name": "by_place" }];
    sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": indexes })?;
    let center = doc! { "type": "Point", "coordinates": [3, 3] };
    let near = doc! { "place": { "$near": { "$geometry": center } } };
    for more in [doc! {}, doc! { "new": true }, doc! { "fields": { "n": 1 } }] {
        sides.alike(&modify(near.clone(), more))?;
    }
    sides.check()
}
