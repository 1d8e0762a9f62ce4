//! A `findAndModify` on plain documents waits for its write concern as long as the client allows.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::mongod::Options;
use proto_tests::raw::Connection;
use proto_tests::{Proxy, ProxyOptions, database_name};

use super::fixture::{COLLECTION, automatic, item, shape};

/// mongod's code for a write concern that was not satisfied in time.
const WRITE_CONCERN_FAILED: i32 = 64;
/// Longer than the first time limit that the proxy gives the command.
const DELAY: Duration = Duration::from_millis(600);

/// A member that replicates nothing. It goes on when this is dropped.
struct Paused(Connection);

impl Paused {
    fn new(member: SocketAddr) -> Result<Self> {
        let mut connection = Connection::open(member)?;
        connection.command_ok(&fail_point("alwaysOn"))?;
        Ok(Self(connection))
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        let _ = self.0.command_ok(&fail_point("off"));
    }
}

/// Stops and continues the application of the oplog.
fn fail_point(mode: &str) -> Document {
    doc! { "configureFailPoint": "rsSyncApplyStop", "mode": mode, "$db": "admin" }
}

/// The code of the error of the write concern.
fn concern(reply: &Document) -> Option<i32> {
    reply.get_document("writeConcernError").ok()?.get_i32("code").ok()
}

#[test]
fn a_find_and_modify_waits_for_its_write_concern() -> Result<()> {
    let mongod = Options::default().parameter("enableTestCommands=1").replica_set(2)?;
    let primary = mongod.primary()?;
    let secondary = mongod.addresses()[1 - primary];
    let database = database_name();
    let table = automatic(&shape(), &format!("{database}.{COLLECTION}"));
    let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(&table))?;
    let mut direct = Connection::open(mongod.addresses()[primary])?;
    let documents = [item(1, 1, 1), item(2, 1, 2)];
    direct.command_ok(&doc! { "insert": COLLECTION, "documents": documents.to_vec(), "$db": &database })?;
    let mut proxied = Connection::open(proxy.address())?;
    let modify = |id: i32, concern: Document| {
        let update = doc! { "$inc": { "n": 1 } };
        doc! {
            "findAndModify": COLLECTION, "query": { "_id": id }, "update": update, "new": true, "upsert": true,
            "writeConcern": concern, "$db": &database,
        }
    };
    let paused = Paused::new(secondary)?;
    let limited = doc! { "w": 2, "wtimeout": 400 };
    for (id, connection) in [(1, &mut direct), (2, &mut proxied)] {
        let reply = connection.command_ok(&modify(id, limited.clone()))?;
        ensure!(concern(&reply) == Some(WRITE_CONCERN_FAILED), "{id}: {reply}");
    }
    drop(paused);
    let paused = Paused::new(secondary)?;
    let reply = thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(DELAY);
            drop(paused);
        });
        proxied.command_ok(&modify(2, doc! { "w": 2 }))
    })?;
    ensure!(!reply.contains_key("writeConcernError"), "{reply}");
    ensure!(reply.get_document("value")?.get_i32("n")? == 2, "{reply}");
    let stored = direct.find(&database, COLLECTION, doc! {})?;
    let numbers: Vec<i32> = stored.iter().filter_map(|one| one.get_i32("n").ok()).collect();
    ensure!(numbers == [1, 2], "{stored:?}");
    Ok(())
}
