//! A statement by `_id` that changes nothing on the item's page is not sent to it again. A change by `_id` contains no
//! other item of the page.

use anyhow::{Result, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::stopping_relay::StoppingRelay;
use proto_tests::{Proxy, ProxyOptions, Shape, database_name, mongod};

use crate::updates::sides::{COLLECTION, Sides, at, update};

/// Commands with a statement by `_id`. Others have the client's own statement in their body, or name the collection
/// by its UUID.
fn by_id(command: &Document) -> Option<String> {
    let is_update = command.get("update").and_then(Bson::as_str) == Some(COLLECTION);
    let is_other = command.contains_key("updates") || command.contains_key("collectionUUID");
    (is_update && !is_other).then(|| command.to_string())
}

#[test]
fn a_statement_by_id_is_sent_once() -> Result<()> {
    let server = mongod::shared();
    let relay = StoppingRelay::to(server.address(), by_id)?;
    let shape = Shape {
        time: Some("at".to_owned()),
        ..Shape::new(&["k"])
    };
    let database = database_name();
    let config = shape.toml(&format!("{database}.{COLLECTION}"));
    let proxy = Proxy::start(&ProxyOptions::new(&relay.uri()).config(&config))?;
    let mut application = Connection::open(proxy.address())?;
    let mut run = |mut command: Document| -> Result<Document> {
        command.insert("$db", &database);
        relay.arm(None);
        application.command_ok(&command)
    };
    let items: Vec<Document> = (0..5)
        .map(|id| doc! { "_id": id, "k": 1, "at": at(i64::from(id)) })
        .collect();
    run(doc! { "insert": COLLECTION, "documents": items })?;
    let upsert = doc! { "q": { "_id": 9, "k": 1 }, "u": { "$set": { "at": at(9), "n": 1 } }, "upsert": true };
    for command in [
        update(doc! { "_id": 2 }, doc! { "$set": { "n": 1 } }),
        update(doc! { "_id": 2 }, doc! { "k": 1, "at": at(1), "n": 2 }),
        update(doc! { "_id": 3 }, doc! { "$set": { "at": at(20) } }),
        doc! { "update": COLLECTION, "updates": [upsert] },
    ] {
        let reply = run(command.clone())?;
        ensure!(reply.get_i32("n")? == 1, "{command}: {reply}");
        let sent = relay.commands();
        ensure!(sent.len() == 1, "{command}: {sent:?}");
    }
    Ok(())
}

/// The length of a `findAndModify`, as text.
fn length_of_change(command: &Document) -> Option<String> {
    let is_change = command
        .get_str("findAndModify")
        .is_ok_and(|collection| collection == COLLECTION);
    is_change.then(|| command.to_string().len().to_string())
}

/// A retry finds the item by its `_id`, so the command does not demand that the other items of the page are
/// unchanged.
#[test]
fn a_retryable_change_by_id_does_not_contain_other_items() -> Result<()> {
    let set = mongod::shared_replica_set();
    let relay = StoppingRelay::to(set.address(), length_of_change)?;
    let shape = Shape {
        items_change: true,
        ..Shape::new(&["k"])
    };
    let mut sides = Sides::at(shape, (relay.uri(), set.address()))?;
    let item = |id: i32| doc! { "_id": id, "k": 1, "n": id, "text": "a".repeat(10_000) };
    sides.alike(&doc! { "insert": COLLECTION, "documents": (0..10).map(item).collect::<Vec<_>>() })?;
    ensure!(sides.buckets()?.len() == 1, "the items are on several pages");
    relay.arm(None);
    let stages = bson!([{ "$set": { "m": { "$add": ["$n", 1] } } }]);
    let mut command = doc! { "findAndModify": COLLECTION, "query": { "_id": 2 }, "update": stages };
    command.extend(doc! { "lsid": lsid("length"), "txnNumber": 1_i64 });
    for _ in 0..2 {
        sides.alike(&command)?;
        sides.check()?;
    }
    let lengths = relay.commands();
    let is_short = |length: &String| length.parse::<usize>().is_ok_and(|length| length < 60_000);
    ensure!(!lengths.is_empty() && lengths.iter().all(is_short), "{lengths:?}");
    Ok(())
}
