//! The labels of a retryable write's error are those that mongod gave it: a driver retries an error with the label
//! `RetryableWriteError`, and only such an error.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::mongod::Options;
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::{ProxyOptions, Shaped};

const COLLECTION: &str = "items";
/// A collection without a shape.
const PLAIN: &str = "plain";

/// Retryable writes, each by another access path.
fn writes() -> Vec<Document> {
    let add = doc! { "$inc": { "n": 1 } };
    let update = |filter: Document, change: Document| doc! { "update": "", "updates": [{ "q": filter, "u": change }] };
    let (id, other) = (doc! { "_id": 1 }, doc! { "n": { "$lt": 100 } });
    vec![
        doc! { "insert": "", "documents": [{ "_id": 10, "k": 1 }] },
        update(id.clone(), add.clone()),
        update(other.clone(), add.clone()),
        update(id.clone(), doc! { "k": 1, "n": 7 }),
        update(other.clone(), doc! { "k": 1, "n": 7 }),
        doc! { "delete": "", "deletes": [{ "q": &id, "limit": 1 }] },
        doc! { "delete": "", "deletes": [{ "q": &other, "limit": 1 }] },
        doc! { "findAndModify": "", "query": &id, "update": &add },
        doc! { "findAndModify": "", "query": &other, "update": &add },
        doc! { "findAndModify": "", "query": &id, "remove": true },
        doc! { "findAndModify": "", "query": &other, "remove": true },
    ]
}

/// Has mongod fail the next write with `ExceededTimeLimit`, a retryable error.
fn fail_next(server: &mut Connection, labels: Option<&[&str]>) -> Result<()> {
    let mut data = doc! { "failCommands": ["insert", "update", "delete", "findAndModify"], "errorCode": 262 };
    if let Some(labels) = labels {
        data.insert("errorLabels", labels);
    }
    let fail = doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data, "$db": "admin" };
    server.command_ok(&fail)?;
    Ok(())
}

/// Sends a write that fails. Returns the code and the labels of its error.
fn error(client: &mut Connection, write: &Document, collection: &str, number: i64) -> Result<(i32, Option<Bson>)> {
    let mut command = write.clone();
    let name = command.keys().next().context("a command has a name")?.clone();
    command.insert(name, collection);
    command.insert("lsid", lsid(collection));
    command.insert("txnNumber", number);
    let reply = client.command(&command)?;
    let code = reply.get_i32("code").with_context(|| reply.to_string())?;
    Ok((code, reply.get("errorLabels").cloned()))
}

#[test]
fn an_error_of_a_retryable_write_has_the_labels_of_mongod() -> Result<()> {
    let server = Options::default().parameter("enableTestCommands=1").replica_set(1)?;
    let shaped = Shaped::with("", &ProxyOptions::new(&server.uri()))?;
    let database = &shaped.database;
    let labels = [None, Some(&[][..]), Some(&["RetryableWriteError"][..])];
    let writes = labels
        .iter()
        .flat_map(|labels| writes().into_iter().map(move |write| (labels, write)));
    for (number, (labels, mut write)) in (1..).zip(writes) {
        write.insert("$db", database);
        let mut errors = Vec::new();
        for (address, collection) in [(server.address(), PLAIN), (shaped.proxy.address(), COLLECTION)] {
            let mut client = Connection::open(address)?;
            let items: Vec<Document> = (0..3).map(|id| doc! { "_id": id, "k": 1, "n": id }).collect();
            client.command_ok(&doc! { "delete": collection, "deletes": [{ "q": {}, "limit": 0 }], "$db": database })?;
            client.command_ok(&doc! { "insert": collection, "documents": items, "$db": database })?;
            fail_next(&mut Connection::open(server.address())?, *labels)?;
            errors.push(error(&mut client, &write, collection, number)?);
        }
        ensure!(errors[0] == errors[1], "{write} with {labels:?}: {errors:?}");
    }
    Ok(())
}
