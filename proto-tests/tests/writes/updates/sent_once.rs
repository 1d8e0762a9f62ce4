//! A statement by `_id` that changes nothing on the item's page is not sent to it again.

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::stopping_relay::StoppingRelay;
use proto_tests::{Proxy, ProxyOptions, Shape, database_name, mongod};

use crate::updates::sides::{COLLECTION, at, update};

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
