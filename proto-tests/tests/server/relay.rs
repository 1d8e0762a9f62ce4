//! Commands on plain collections are relayed unchanged and in order. A connection ends when either side
//! closes it.

use std::io::Read as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::frame::{self, EXHAUST_ALLOWED, MORE_TO_COME};
use proto_tests::raw::{self, Connection};
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::{Level, Mongod, Proxy, ProxyOptions};
use rustix::process::Signal;

const LIMIT: Duration = Duration::from_secs(15);

fn filled() -> Result<Shaped> {
    let shaped = Shaped::start("")?;
    let documents: Vec<_> = (0..10).map(|number| doc! { "_id": number, "n": number % 3 }).collect();
    shaped
        .direct()?
        .command_ok(&doc! { "insert": "plain", "documents": documents, "$db": &shaped.database })?;
    Ok(shaped)
}

fn until(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    while !done()? {
        ensure!(Instant::now() < deadline, "not after {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[test]
fn replies_are_the_same_byte_for_byte() -> Result<()> {
    let shaped = filled()?;
    let commands = [
        doc! { "ping": 1 },
        doc! { "find": "plain", "sort": { "_id": 1 } },
        doc! { "find": "plain", "filter": { "n": { "$bad": 1 } } },
        doc! { "find": "missing" },
        doc! { "insert": "plain", "documents": [{ "_id": 1 }, { "_id": 2 }], "ordered": false },
        doc! { "update": "plain", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "n": 1 } } }] },
        doc! { "delete": "plain", "deletes": [{ "q": { "_id": 99 }, "limit": 1 }] },
        doc! { "findAndModify": "plain", "query": { "_id": 99 }, "remove": true },
        doc! { "count": "plain", "query": { "n": 1 } },
        doc! { "distinct": "plain", "key": "n" },
        doc! { "aggregate": "plain", "pipeline": [{ "$group": { "_id": "$n" } }, { "$sort": { "_id": 1 } }], "cursor": {} },
        doc! { "aggregate": "plain", "pipeline": [{ "$lookup": { "from": "plain", "as": "x", "pipeline": [] } }], "cursor": {} },
        doc! { "listCollections": 1, "filter": { "name": "plain" } },
        doc! { "listIndexes": "plain" },
        doc! { "getMore": 5_i64, "collection": "plain" },
        doc! { "nonsense": 1 },
        doc! { "buildInfo": 1 },
    ];
    let (mut direct, mut proxied) = (shaped.direct()?, shaped.application()?);
    for (request_id, mut command) in (7..).zip(commands) {
        command.insert("$db", shaped.database.as_str());
        for frame in [
            frame::command(request_id, 0, &command)?,
            frame::with_checksum(&frame::command(request_id, 0, &command)?),
        ] {
            let mut answers = [&mut direct, &mut proxied]
                .into_iter()
                .map(|connection| -> Result<Vec<u8>> {
                    connection.send(&frame)?;
                    let mut reply = connection.receive()?;
                    // The server's own number of its message, and with it the checksum.
                    reply[4..8].fill(0);
                    let end = reply.len()
                        - if frame::flags(&reply) & frame::CHECKSUM_PRESENT == 0 {
                            0
                        } else {
                            4
                        };
                    reply.truncate(end);
                    Ok(reply)
                });
            let (plain, relayed) = (answers.next().context("direct")??, answers.next().context("proxied")??);
            assert_eq!(plain, relayed, "{command}");
        }
    }
    Ok(())
}

#[test]
fn commands_without_a_reply_complete_before_the_next_command() -> Result<()> {
    let shaped = filled()?;
    let mut application = shaped.application()?;
    for collection in ["unanswered", COLLECTION] {
        for number in 0..50 {
            let insert = doc! {
                "insert": collection, "documents": [{ "_id": number, "k": 1 }], "writeConcern": { "w": 0 }, "$db": &shaped.database,
            };
            application.send(&frame::command(number, MORE_TO_COME, &insert)?)?;
        }
        let count = application.command_ok(&doc! { "count": collection, "$db": &shaped.database })?;
        assert_eq!(count.get_i32("n")?, 50, "{collection}");
    }
    Ok(())
}

#[test]
fn an_exhaust_cursor_streams_to_its_end() -> Result<()> {
    let shaped = filled()?;
    let mut application = shaped.application()?;
    let opened = application.command_ok(&doc! { "find": "plain", "batchSize": 2, "$db": &shaped.database })?;
    let id = opened.get_document("cursor")?.get_i64("id")?;
    let more = doc! { "getMore": id, "collection": "plain", "batchSize": 2, "$db": &shaped.database };
    application.send(&frame::command(3, EXHAUST_ALLOWED, &more)?)?;
    let (mut replies, mut documents) = (0, 2);
    loop {
        let reply = application.receive()?;
        replies += 1;
        documents += raw::document(&reply)?
            .get_document("cursor")?
            .get_array("nextBatch")?
            .len();
        if frame::flags(&reply) & MORE_TO_COME == 0 {
            break;
        }
    }
    assert!(
        documents == 10 && replies >= 4,
        "{documents} documents in {replies} replies"
    );
    application.command_ok(&doc! { "ping": 1, "$db": "admin" })?;
    Ok(())
}

#[test]
fn streaming_hello_continues_until_the_client_disconnects() -> Result<()> {
    let shaped = filled()?;
    let mut application = shaped.application()?;
    let hello = application.command_ok(&doc! { "hello": 1, "$db": "admin" })?;
    let version = hello.get_document("topologyVersion")?.clone();
    let streaming = doc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 100, "$db": "admin" };
    application.send(&frame::command(5, EXHAUST_ALLOWED, &streaming)?)?;
    for _ in 0..4 {
        let reply = application.receive()?;
        assert_eq!(frame::flags(&reply) & MORE_TO_COME, MORE_TO_COME);
        assert!(raw::document(&reply)?.get_bool("isWritablePrimary")?);
    }
    until("its connection is counted", || {
        Ok(shaped.proxy.metric("mongoshape_client_connections") >= 1.0)
    })?;
    drop(application);
    until("its connection is let go", || {
        Ok(shaped.proxy.metric("mongoshape_client_connections") < 1.0)
    })
}

#[test]
fn legacy_handshake_gets_op_reply_and_other_legacy_commands_are_refused() -> Result<()> {
    let shaped = filled()?;
    let mut application = shaped.application()?;
    for name in ["isMaster", "ismaster", "hello"] {
        application.send(&frame::query(11, "admin", &doc! { name: 1, "compression": ["zlib"] })?)?;
        let reply = application.receive()?;
        assert_eq!(
            (frame::header_field(&reply, 2), frame::header_field(&reply, 3)),
            (11, frame::OP_REPLY)
        );
        let hello = frame::reply_document(&reply)?;
        assert!(hello.contains_key("maxWireVersion"), "{hello}");
        assert_eq!(hello.get_array("compression")?, &[Bson::from("zlib")]);
    }
    application.send(&frame::query(12, &shaped.database, &doc! { "find": COLLECTION })?)?;
    let refusal = frame::reply_document(&application.receive()?)?;
    assert_eq!(refusal.get_i32("code")?, 352, "{refusal}");
    application.command_ok(&doc! { "ping": 1, "$db": "admin" })?;
    Ok(())
}

#[test]
fn an_http_request_gets_mongods_response() -> Result<()> {
    let shaped = Shaped::start("")?;
    let mut responses = Vec::new();
    for mut connection in [shaped.direct()?, shaped.application()?] {
        connection.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut response = String::new();
        connection.stream().read_to_string(&mut response)?;
        responses.push(response);
    }
    assert!(responses[0].contains("over HTTP"), "{}", responses[0]);
    assert_eq!(responses[0], responses[1]);
    Ok(())
}

#[test]
fn pipelined_requests_are_answered_in_their_order() -> Result<()> {
    let shaped = filled()?;
    let mut application = shaped.application()?;
    let mut frames = Vec::new();
    for request_id in (100..160).step_by(3) {
        frames.extend(frame::command(
            request_id,
            0,
            &shaped.insert(&[doc! { "_id": request_id, "k": 1 }]),
        )?);
        let find = doc! { "find": COLLECTION, "filter": { "_id": request_id }, "$db": &shaped.database };
        frames.extend(frame::command(request_id + 1, 0, &find)?);
        frames.extend(frame::command(
            request_id + 2,
            0,
            &doc! { "find": "plain", "$db": &shaped.database },
        )?);
    }
    application.send(&frames)?;
    for request_id in 100..160 {
        let reply = application.receive()?;
        assert_eq!(frame::header_field(&reply, 2), request_id);
        if let Ok(cursor) = raw::document(&reply)?.get_document("cursor") {
            assert!(!cursor.get_array("firstBatch")?.is_empty(), "{cursor}");
        }
    }
    Ok(())
}

#[test]
fn message_of_40_mb_is_relayed() -> Result<()> {
    let shaped = filled()?;
    let mut application = shaped.application()?;
    // On a busy machine mongod takes its time to write that much.
    application.stream().set_read_timeout(Some(Duration::from_mins(1)))?;
    application.stream().set_write_timeout(Some(Duration::from_mins(1)))?;
    for collection in ["large", COLLECTION] {
        let documents: Vec<_> = (0..4)
            .map(|number| doc! { "_id": number, "k": number, "text": "x".repeat(10_000_000) })
            .collect();
        let body = doc! { "insert": collection, "$db": &shaped.database };
        let sections = [
            frame::body_section(&body)?,
            frame::sequence_section("documents", &documents)?,
        ];
        application.send(&frame::message(1, 0, &sections))?;
        let reply = raw::document(&application.receive()?)?;
        assert_eq!(reply.get_i32("n")?, 4, "{reply}");
        let found = application.find(&shaped.database, collection, doc! { "k": 3 })?;
        assert_eq!(found, documents[3..]);
    }
    Ok(())
}

/// A `find` that takes this long, and how to recognise it.
fn slow(shaped: &Shaped, milliseconds: u32) -> Document {
    let script = format!("sleep({milliseconds}) || true");
    doc! { "find": "plain", "filter": { "_id": 1, "$where": script }, "comment": &shaped.database, "$db": &shaped.database }
}

/// Whether mongod executes the command of [`slow`]. While it looks up stored functions for `$where`, it shows
/// a `find` of `system.js` with the same comment in its place.
fn is_running(shaped: &Shaped) -> Result<bool> {
    let pipeline = [
        doc! { "$currentOp": {} },
        doc! { "$match": { "command.comment": &shaped.database } },
    ];
    let pipeline: Vec<_> = pipeline.into_iter().map(Bson::from).collect();
    let found = shaped
        .direct()?
        .all(&doc! { "aggregate": 1, "pipeline": pipeline, "cursor": {}, "$db": "admin" })?;
    Ok(!found.is_empty())
}

#[test]
fn client_disconnect_ends_its_long_command() -> Result<()> {
    let shaped = filled()?;
    let mut application = shaped.application()?;
    application.send(&frame::command(1, 0, &slow(&shaped, 60_000))?)?;
    until("the command runs", || is_running(&shaped))?;
    drop(application);
    until("the command ends", || Ok(!is_running(&shaped)?))
}

#[test]
fn upstream_disconnect_closes_its_client_connections() -> Result<()> {
    let mut mongod = Mongod::standalone()?;
    let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()))?;
    proxy.expect_log(Level::Warn, "the upstream is not available");
    let mut connection = Connection::open(proxy.address())?;
    connection.command_ok(&doc! { "ping": 1, "$db": "admin" })?;
    mongod.kill(0)?;
    assert!(connection.is_closed()?);
    proxy.wait_for_log("the upstream is not available")?;
    let mut late = Connection::open(proxy.address())?;
    late.send(&frame::command(1, 0, &doc! { "ping": 1, "$db": "admin" })?)?;
    assert!(late.is_closed()?);
    Ok(())
}

#[test]
fn a_drain_lets_commands_finish_and_closes_idle_connections() -> Result<()> {
    let mut shaped = filled()?;
    let (mut busy, mut idle) = (shaped.application()?, shaped.application()?);
    idle.command_ok(&doc! { "ping": 1, "$db": "admin" })?;
    busy.send(&frame::command(1, 0, &slow(&shaped, 1_000))?)?;
    until("the command runs", || is_running(&shaped))?;
    shaped.proxy.signal(Signal::TERM)?;
    assert!(idle.is_closed()?, "an idle connection is open");
    assert!(is_running(&shaped)?, "the idle connection was closed too late");
    let reply = raw::document(&busy.receive()?)?;
    assert_eq!(
        reply.get_document("cursor")?.get_array("firstBatch")?.len(),
        1,
        "{reply}"
    );
    assert!(busy.is_closed()?, "a finished connection is open");
    assert!(shaped.application().is_err(), "a new connection is accepted");
    // Fails unless it ends with 0.
    shaped.proxy.stop()
}
