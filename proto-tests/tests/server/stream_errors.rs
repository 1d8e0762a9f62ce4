//! Errors of the commands that the proxy executes for a change stream.

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::mongod::Options;
use proto_tests::raw::Connection;
use proto_tests::shaped::COLLECTION;
use proto_tests::{Proxy, ProxyOptions, Shape, database_name};

/// An error of the server after which drivers resume a change stream: `ExceededTimeLimit`.
const RESUMABLE: i32 = 262;

fn fail_point(mode: &str, data: Document) -> Document {
    doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data, "$db": "admin" }
}

/// mongod has no label for these errors, because the commands do not read its change stream.
#[test]
fn a_stream_is_resumed_after_an_error_of_another_command() -> Result<()> {
    let set = Options::default().parameter("enableTestCommands=1").replica_set(1)?;
    let database = database_name();
    let shape = Shape {
        change_streams: true,
        ..Shape::new(&["k"])
    };
    let config = shape.toml(&format!("{database}.{COLLECTION}"));
    let proxy = Proxy::start(&ProxyOptions::new(&set.uri()).config(&config))?;
    let (mut application, mut direct) = (Connection::open(proxy.address())?, Connection::open(set.address())?);
    let insert = doc! { "insert": COLLECTION, "documents": [{ "_id": 1, "k": 1 }], "$db": &database };
    application.command_ok(&insert)?;
    let lookup = vec![doc! { "$changeStream": { "fullDocument": "updateLookup" } }];
    let stages = vec![doc! { "$changeStream": {} }, doc! { "$match": {} }];
    for (pipeline, target) in [(lookup, COLLECTION), (stages, "$cmd.aggregate")] {
        let open = doc! { "aggregate": COLLECTION, "pipeline": pipeline, "cursor": {}, "$db": &database };
        let id = application.command_ok(&open)?.get_document("cursor")?.get_i64("id")?;
        let update = doc! { "q": { "_id": 1 }, "u": { "$inc": { "n": 1 } } };
        application.command_ok(&doc! { "update": COLLECTION, "updates": [update], "$db": &database })?;
        let data = doc! {
            "failCommands": ["find", "aggregate"],
            "errorCode": RESUMABLE,
            "namespace": format!("{database}.{target}"),
        };
        direct.command_ok(&fail_point("alwaysOn", data))?;
        let more = doc! { "getMore": id, "collection": COLLECTION, "maxTimeMS": 5000, "$db": &database };
        let reply = application.command(&more)?;
        direct.command_ok(&fail_point("off", doc! {}))?;
        ensure!(reply.get_i32("code").ok() == Some(RESUMABLE), "{target}: {reply}");
        let labels = reply.get_array("errorLabels").ok();
        let expected = vec![Bson::from("ResumableChangeStreamError")];
        ensure!(labels == Some(&expected), "{target}: {reply}");
    }
    Ok(())
}
