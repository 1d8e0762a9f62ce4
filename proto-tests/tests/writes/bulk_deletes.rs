//! Several deletions by `_id` in one command.

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::replies::first_code;
use proto_tests::sessions::lsid;
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::stopping_relay::StoppingRelay;
use proto_tests::{ItemIds, Shape, mongod};
use rand::SeedableRng as _;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom as _;

const ITEMS: i32 = 600;

fn shape(max_items: usize) -> Shape {
    Shape {
        max_items,
        items_change: true,
        ..Shape::new(&["k"])
    }
}

/// Items of three keys.
fn insert(sides: &mut Sides) -> Result<()> {
    let items: Vec<Document> = (0..ITEMS).map(|id| doc! { "_id": id, "k": id % 3 }).collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    Ok(())
}

fn delete(ids: impl IntoIterator<Item = i32>) -> Document {
    let statements = ids.into_iter().map(|id| doc! { "q": { "_id": id }, "limit": 1 });
    doc! { "delete": COLLECTION, "deletes": statements.collect::<Vec<_>>() }
}

/// The name of a command on the collection.
fn of_collection(command: &Document) -> Option<String> {
    let (name, collection) = command.iter().next()?;
    (collection.as_str() == Some(COLLECTION)).then(|| name.clone())
}

#[test]
fn deletions_by_id_are_one_command() -> Result<()> {
    for mongod in [mongod::shared(), mongod::shared_replica_set()] {
        let relay = StoppingRelay::to(mongod.address(), of_collection)?;
        let mut sides = Sides::at(shape(50), (relay.uri(), mongod.address()))?;
        insert(&mut sides)?;
        let mut number = 0;
        for (is_ordered, is_retryable) in [(true, false), (false, false), (true, true), (false, true)] {
            if is_retryable && !mongod.is_replica_set() {
                continue;
            }
            let mut command = delete(number * 100..(number + 1) * 100);
            number += 1;
            command.insert("ordered", is_ordered);
            if is_retryable {
                command.extend(doc! { "lsid": lsid("together"), "txnNumber": i64::from(number) });
            }
            relay.arm(None);
            let reply = sides.alike(&command)?;
            ensure!(reply.get_i32("n")? == 100, "{reply}");
            let commands = relay.commands();
            ensure!(commands == ["update"], "{commands:?}");
            if is_retryable {
                sides.alike(&command)?;
            } else {
                // None of them exists any more. One query confirms it, where items can move.
                relay.arm(None);
                let reply = sides.alike(&command)?;
                ensure!(reply.get_i32("n")? == 0, "{reply}");
                let commands = relay.commands();
                ensure!(
                    commands.len() == 1 + usize::from(mongod.is_replica_set()),
                    "{commands:?}"
                );
            }
            sides.check()?;
        }
    }
    Ok(())
}

#[test]
fn the_last_items_of_pages_are_deleted_with_others() -> Result<()> {
    for mongod in [mongod::shared(), mongod::shared_replica_set()] {
        for is_ordered in [true, false] {
            let mut sides = Sides::at(shape(4), (mongod.uri(), mongod.address()))?;
            insert(&mut sides)?;
            let mut ids: Vec<i32> = (0..ITEMS).chain(0..20).chain(ITEMS..ITEMS + 20).collect();
            ids.shuffle(&mut ChaCha8Rng::seed_from_u64(3));
            for part in ids.chunks(200) {
                let mut command = delete(part.iter().copied());
                command.insert("ordered", is_ordered);
                sides.alike(&command)?;
                sides.check()?;
            }
            ensure!(sides.buckets()?.is_empty(), "pages are left");
        }
    }
    Ok(())
}

#[test]
fn statements_of_other_kinds_are_executed_in_their_order() -> Result<()> {
    for item_ids in [ItemIds::Unique, ItemIds::UniqueInKey, ItemIds::Stored] {
        for is_ordered in [true, false] {
            let mut sides = Sides::open(Shape { item_ids, ..shape(4) })?;
            insert(&mut sides)?;
            let by_id = |id: i32| doc! { "q": { "_id": id, "k": id % 3 }, "limit": 1 };
            let collation = doc! { "locale": "en" };
            let statements = vec![
                by_id(3),
                by_id(4),
                doc! { "q": { "k": 1, "_id": { "$lt": 20 } }, "limit": 0 },
                by_id(4),
                by_id(7),
                doc! { "q": { "_id": 30 }, "limit": 0 },
                doc! { "q": { "_id": 33 }, "limit": 1, "collation": collation },
                doc! { "q": { "_id": 36, "k": 2 }, "limit": 1 },
                doc! { "q": { "_id": 37 }, "limit": 1, "hint": "nope" },
                by_id(39),
                by_id(40),
            ];
            let command = doc! { "delete": COLLECTION, "deletes": statements, "ordered": is_ordered };
            // The errors have other texts.
            let mut outcomes = Vec::new();
            for reply in sides.run(&command)? {
                let errors = reply.get_array("writeErrors")?.iter().filter_map(Bson::as_document);
                let positions: Vec<_> = errors.map(|error| error.get("index").cloned()).collect();
                outcomes.push((reply.get_i32("n")?, first_code(&reply), positions));
            }
            ensure!(outcomes[0] == outcomes[1], "{outcomes:?} {command} {item_ids:?}");
            sides.check()?;
        }
    }
    Ok(())
}
