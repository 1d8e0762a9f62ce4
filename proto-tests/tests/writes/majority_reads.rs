//! Writes act on the newest state, also if the cluster's default read concern is `majority`.

use std::time::Duration;

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::mongod::Options;
use proto_tests::raw::Connection;
use proto_tests::{Outlier, Proxy, ProxyOptions, Shape, database_name};

const COLLECTION: &str = "items";
const OUTLIERS: &str = "sales";

#[test]
fn writes_find_items_that_the_majority_does_not_have() -> Result<()> {
    let set = Options::default().parameter("enableTestCommands=1").replica_set(1)?;
    let mut direct = Connection::open(set.address())?;
    let database = database_name();
    let shapes = Shape::new(&["k"]).toml(&format!("{database}.{COLLECTION}"))
        + &Outlier::new("tags", (5, 7)).toml(&format!("{database}.{OUTLIERS}"));
    let proxy = Proxy::start(&ProxyOptions::new(&set.uri()).config(&shapes))?;
    let mut application = Connection::open(proxy.address())?;
    let mut run = |command: Document| {
        let mut command = command;
        command.insert("$db", &database);
        application.command_ok(&command)
    };
    run(doc! { "insert": COLLECTION, "documents": [{ "_id": 0, "k": 0, "n": 0 }] })?;
    let outlier = |id: i32| doc! { "_id": id, "tags": (0..20).collect::<Vec<i32>>() };
    run(doc! { "insert": OUTLIERS, "documents": [outlier(0)] })?;
    let majority = doc! { "level": "majority" };
    direct.command_ok(&doc! { "setDefaultRWConcern": 1, "defaultReadConcern": majority, "$db": "admin" })?;
    let stop = |mode: &str| doc! { "configureFailPoint": "disableSnapshotting", "mode": mode, "$db": "admin" };
    direct.command_ok(&stop("alwaysOn"))?;
    // The defaults are cached.
    std::thread::sleep(Duration::from_millis(200));
    let items: Vec<Document> = (1..7).map(|n| doc! { "_id": n, "k": n, "n": n }).collect();
    run(doc! { "insert": COLLECTION, "documents": items, "writeConcern": { "w": 1 } })?;
    let change = doc! { "$inc": { "m": 1 } };
    let update = |filter: Document, multi: bool| {
        let statement = doc! { "q": filter, "u": &change, "multi": multi, "upsert": true };
        doc! { "update": COLLECTION, "updates": [statement], "writeConcern": { "w": 1 } }
    };
    let delete = |filter: Document, limit: i32| {
        doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": limit }], "writeConcern": { "w": 1 } }
    };
    let count = |reply: &Document| reply.get_i32("n").ok().filter(|_| !reply.contains_key("upserted"));
    for command in [
        update(doc! { "k": 1, "n": 1 }, false),
        update(doc! { "n": 1 }, true),
        update(doc! { "_id": 1, "k": 1 }, false),
        delete(doc! { "n": 2 }, 1),
        delete(doc! { "k": 3 }, 0),
        delete(doc! { "n": 4 }, 0),
    ] {
        let reply = run(command.clone())?;
        ensure!(count(&reply) == Some(1), "{command}: {reply}");
    }
    let removal = doc! { "findAndModify": COLLECTION, "query": { "n": 5 }, "remove": true, "writeConcern": { "w": 1 } };
    let reply = run(removal)?;
    ensure!(reply.get_document("value")?.get_i32("_id")? == 5, "{reply}");
    let repeated = doc! { "insert": OUTLIERS, "documents": [outlier(1), outlier(1)], "ordered": false, "writeConcern": { "w": 1 } };
    let reply = run(repeated)?;
    ensure!(reply.get_i32("n")? == 1, "{reply}");
    let found = run(doc! { "find": OUTLIERS, "filter": { "_id": 1 }, "readConcern": { "level": "local" } })?;
    let found = found.get_document("cursor")?.get_array("firstBatch")?;
    let tags = found
        .first()
        .and_then(|first| first.as_document()?.get_array("tags").ok());
    ensure!(tags.is_some_and(|tags| tags.len() == 20), "{found:?}");
    direct.command_ok(&stop("off")).map(drop)
}
