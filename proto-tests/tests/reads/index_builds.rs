//! Reads while mongod builds an index of the application.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use bson::{Document, doc};
use proto_tests::mongod::Options;
use proto_tests::raw::Connection;
use proto_tests::sessions::Transaction;
use proto_tests::{Proxy, ProxyOptions, Shape, database_name};

const COLLECTION: &str = "items";
const MAX_WAIT: Duration = Duration::from_secs(30);

#[test]
fn a_transaction_does_not_use_an_index_that_is_being_built() -> Result<()> {
    let set = Options::default().parameter("enableTestCommands=1").replica_set(1)?;
    let database = database_name();
    let shape = Shape::new(&["k"]).toml(&format!("{database}.{COLLECTION}"));
    let options = ProxyOptions::new(&set.uri()).config(&shape);
    let proxy = Proxy::start(&options)?;
    let mut application = Connection::open(proxy.address())?;
    let items: Vec<Document> = (0..40).map(|n| doc! { "_id": n, "k": n % 4, "n": 40 - n }).collect();
    application.command_ok(&doc! { "insert": COLLECTION, "documents": items, "$db": &database })?;
    let mut direct = Connection::open(set.address())?;
    let hang = |mode: &str| doc! { "configureFailPoint": "hangAfterStartingIndexBuild", "mode": mode, "$db": "admin" };
    direct.command_ok(&hang("alwaysOn"))?;
    let create = {
        let index = doc! { "key": { "n": 1 }, "name": "n_1" };
        let create = doc! { "createIndexes": COLLECTION, "indexes": [index], "$db": &database };
        let address = proxy.address();
        thread::spawn(move || Connection::open(address)?.command_ok(&create))
    };
    let list = doc! { "listIndexes": COLLECTION, "includeBuildUUIDs": true, "$db": &database };
    let begun = Instant::now();
    while !direct.all(&list)?.iter().any(|index| index.contains_key("buildUUID")) {
        ensure!(begun.elapsed() < MAX_WAIT, "no index is being built");
        thread::sleep(Duration::from_millis(50));
    }
    // It knows no list of indexes from before.
    let fresh = Proxy::start(&options)?;
    let mut reader = Connection::open(fresh.address())?;
    let mut transaction = Transaction::new("reader", &database);
    for command in [
        doc! { "find": COLLECTION, "sort": { "n": 1 }, "limit": 3 },
        doc! { "distinct": COLLECTION, "key": "n" },
    ] {
        let reply = transaction.run(&mut reader, &command)?;
        ensure!(reply.get_f64("ok")? > 0.0, "{command}: {reply}");
    }
    transaction.end(&mut reader, "commitTransaction")?;
    direct.command_ok(&hang("off"))?;
    create.join().map_err(|_| anyhow!("the creator panicked"))?.map(drop)
}
