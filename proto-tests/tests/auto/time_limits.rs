//! The time limits that a proxy gives a `findAndModify` on plain documents.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::mongod::Options;
use proto_tests::stopping_relay::StoppingRelay;

use super::fixture::{COLLECTION, Fixture, item};

/// mongod's code for a command that has reached its time limit.
const MAX_TIME_EXPIRED: i32 = 50;

/// The time limit of a `findAndModify`.
fn limit(command: &Document) -> Option<String> {
    let is_modify = command.get_str("findAndModify").is_ok_and(|name| name == COLLECTION);
    let limit = command.get("maxTimeMS").map(ToString::to_string);
    is_modify.then(|| limit.unwrap_or_else(|| "none".to_owned()))
}

#[test]
fn a_slow_find_and_modify_has_no_limit_at_last() -> Result<()> {
    let mongod = Options::default().parameter("enableTestCommands=1").replica_set(1)?;
    let relay = StoppingRelay::to(mongod.address(), limit)?;
    let fixture = Fixture::behind(&mongod, &relay.uri())?;
    fixture.store_plain(&[item(1, 1, 1)])?;
    let namespace = format!("{}.{COLLECTION}", fixture.database);
    let data = doc! { "failCommands": ["findAndModify"], "errorCode": MAX_TIME_EXPIRED, "namespace": namespace };
    let mode = doc! { "times": 2 };
    let fail = doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data, "$db": "admin" };
    fixture.direct()?.command_ok(&fail)?;
    relay.arm(None);
    let update = doc! { "$inc": { "n": 1 } };
    let modify = doc! { "findAndModify": COLLECTION, "query": { "_id": 1 }, "update": update, "new": true };
    let reply = fixture.run(0, modify)?;
    ensure!(reply.get_document("value")?.get_i32("n")? == 1, "{reply}");
    let limits = relay.commands();
    ensure!(limits == ["100", "800", "none"], "{limits:?}");
    Ok(())
}
