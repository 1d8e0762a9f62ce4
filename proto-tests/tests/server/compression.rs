//! OP_COMPRESSED through the proxy: relayed unchanged, inflated for shaped collections, refused if invalid.

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use mongoshape::wire::limits::MAX_MESSAGE_BYTES;
use mongoshape::wire::{Compressor, Frame, OpCode, OpCompressed};
use proto_tests::frame::{self, EXHAUST_ALLOWED, MORE_TO_COME, OP_COMPRESSED, OP_MSG};
use proto_tests::raw::{self, Connection};
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::{Level, Proxy, ProxyOptions, mongod};

fn framed(bytes: Vec<u8>) -> Result<Frame> {
    Ok(Frame::from_bytes(bytes.into())?)
}

/// A command as its sender compresses it.
fn compressed(compressor: Compressor, plain: Vec<u8>) -> Result<Vec<u8>> {
    Ok(OpCompressed::compress(&framed(plain)?, compressor)?.as_bytes().to_vec())
}

/// The document in a reply, which must be compressed so.
fn opened(compressor: Compressor, reply: Vec<u8>) -> Result<(Document, u32)> {
    let reply = framed(reply)?;
    ensure!(reply.header().op_code == OpCode::Compressed, "a plain reply");
    let reply = OpCompressed::parse(&reply, MAX_MESSAGE_BYTES)?;
    ensure!(reply.compressor == compressor, "compressed by {}", reply.compressor);
    let plain = reply.inflate()?;
    Ok((raw::document(plain.as_bytes())?, frame::flags(plain.as_bytes())))
}

/// Offers compressors, and gives those that were agreed on.
fn agree(connection: &mut Connection, offered: &[&str]) -> Result<Vec<String>> {
    let reply = connection.command_ok(&doc! { "hello": 1, "compression": offered, "$db": "admin" })?;
    let agreed = reply.get_array("compression").cloned().unwrap_or_default();
    Ok(agreed
        .iter()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect())
}

fn ask(connection: &mut Connection, compressor: Compressor, command: &Document) -> Result<Document> {
    connection.send(&compressed(compressor, frame::command(5, 0, command)?)?)?;
    let (reply, _) = opened(compressor, connection.receive()?)?;
    Ok(reply)
}

#[test]
fn compressor_known_to_client_server_and_proxy_is_negotiated() -> Result<()> {
    let shaped = Shaped::start("")?;
    for offered in [
        &["zstd", "snappy", "zlib"][..],
        &["zlib"],
        &["noop", "snappy"],
        &["lz4"],
        &[],
    ] {
        let through = agree(&mut shaped.application()?, offered)?;
        let known = |name: &&str| Compressor::from_name(name).is_some();
        let expected: Vec<_> = offered.iter().copied().filter(known).collect();
        assert_eq!(through, expected, "{offered:?}");
    }
    Ok(())
}

#[test]
fn compressed_commands_are_answered_as_plain_ones() -> Result<()> {
    for compressor in Compressor::ALL {
        let shaped = Shaped::start("")?;
        let mut application = shaped.application()?;
        agree(&mut application, &[compressor.name()])?;
        for collection in ["plain", COLLECTION] {
            let database = &shaped.database;
            let documents: Vec<_> = (0..25)
                .map(|n| doc! { "_id": n, "k": n % 2, "text": "x".repeat(500) })
                .collect();
            let insert = doc! { "insert": collection, "documents": &documents, "$db": database };
            let reply = ask(&mut application, compressor, &insert)?;
            assert_eq!(reply.get_i32("n")?, 25, "{reply}");
            let find = doc! { "find": collection, "filter": { "k": 1 }, "sort": { "_id": 1 }, "$db": database };
            let reply = ask(&mut application, compressor, &find)?;
            let found = reply.get_document("cursor")?.get_array("firstBatch")?.len();
            assert_eq!(found, 12, "{reply}");
            // Errors too.
            let reply = ask(
                &mut application,
                compressor,
                &doc! { "find": collection, "filter": 1, "$db": database },
            )?;
            assert_eq!(reply.get_i32("code")?, 14, "{reply}");
        }
        assert_eq!(shaped.stored()?.len(), 4);
    }
    Ok(())
}

#[test]
fn relaying_a_40_mb_compressed_message_does_not_inflate_it() -> Result<()> {
    let shaped = Shaped::start("")?;
    for compressor in Compressor::ALL {
        let mut application = shaped.application()?;
        agree(&mut application, &[compressor.name()])?;
        for collection in ["large", COLLECTION] {
            let ids = if collection == COLLECTION {
                4 * i32::from(compressor.id())
            } else {
                0
            };
            let documents: Vec<_> = (0..4)
                .map(|n| doc! { "_id": ids + n, "k": ids + n, "text": "x".repeat(10_000_000) })
                .collect();
            let body = doc! { "insert": format!("{collection}{}", if ids == 0 { compressor.name() } else { "" }), "$db": &shaped.database };
            let sections = [
                frame::body_section(&body)?,
                frame::sequence_section("documents", &documents)?,
            ];
            application.send(&compressed(compressor, frame::message(1, 0, &sections))?)?;
            application
                .stream()
                .set_read_timeout(Some(std::time::Duration::from_mins(1)))?;
            let (reply, _) = opened(compressor, application.receive()?)?;
            assert_eq!(reply.get_i32("n")?, 4, "{reply}");
        }
    }
    Ok(())
}

#[test]
fn compressed_commands_support_no_reply_and_exhaust_replies() -> Result<()> {
    let shaped = Shaped::start("")?;
    let mut application = shaped.application()?;
    agree(&mut application, &["zlib"])?;
    let zlib = Compressor::Zlib;
    for collection in ["plain", COLLECTION] {
        let documents: Vec<_> = (0..9).map(|n| doc! { "_id": n, "k": n }).collect();
        let insert =
            doc! { "insert": collection, "documents": documents, "writeConcern": { "w": 0 }, "$db": &shaped.database };
        application.send(&compressed(zlib, frame::command(1, MORE_TO_COME, &insert)?)?)?;
        let count = ask(
            &mut application,
            zlib,
            &doc! { "count": collection, "$db": &shaped.database },
        )?;
        assert_eq!(count.get_i32("n")?, 9, "{count}");
    }
    let find = ask(
        &mut application,
        zlib,
        &doc! { "find": "plain", "batchSize": 2, "$db": &shaped.database },
    )?;
    let id = find.get_document("cursor")?.get_i64("id")?;
    let more = doc! { "getMore": id, "collection": "plain", "batchSize": 2, "$db": &shaped.database };
    application.send(&compressed(zlib, frame::command(6, EXHAUST_ALLOWED, &more)?)?)?;
    let mut read = 2;
    loop {
        let (reply, flags) = opened(zlib, application.receive()?)?;
        read += reply.get_document("cursor")?.get_array("nextBatch")?.len();
        if flags & MORE_TO_COME == 0 {
            break;
        }
    }
    assert_eq!(read, 9);
    // And the connection goes on.
    assert!(ask(&mut application, zlib, &doc! { "ping": 1, "$db": "admin" })?.get_f64("ok")? > 0.0);
    Ok(())
}

#[test]
fn a_compressed_handshake_is_edited_too() -> Result<()> {
    let proxy = Proxy::start(&ProxyOptions::new(&mongod::shared_replica_set().uri()))?;
    let mut connection = Connection::open(proxy.address())?;
    agree(&mut connection, &["snappy"])?;
    connection.send(&compressed(
        Compressor::Snappy,
        frame::command(3, 0, &doc! { "hello": 1, "$db": "admin" })?,
    )?)?;
    let reply = connection.receive()?;
    let shown = match frame::header_field(&reply, 3) {
        OP_MSG => raw::document(&reply)?,
        _ => opened(Compressor::Snappy, reply)?.0,
    };
    assert_eq!(shown.get_str("msg")?, "isdbgrid");
    assert!(!shown.contains_key("hosts"), "{shown}");
    Ok(())
}

#[test]
fn unnegotiated_or_invalid_compression_is_refused() -> Result<()> {
    let shaped = Shaped::start("")?;
    shaped.proxy.expect_log(Level::Warn, "the client violates the protocol");
    let ping = || frame::command(1, 0, &doc! { "ping": 1, "$db": "admin" });
    for agreed in [&[][..], &["snappy"]] {
        let mut application = shaped.application()?;
        agree(&mut application, agreed)?;
        application.send(&compressed(Compressor::Zstd, ping()?)?)?;
        let reply = raw::document(&application.receive()?)?;
        assert!(reply.get_str("errmsg")?.contains("zstd was not negotiated"), "{reply}");
        assert!(application.is_closed()?);
    }
    let inside = |compressor: u8, size: i32, data: &[u8]| {
        let mut payload = OP_MSG.to_le_bytes().to_vec();
        payload.extend(size.to_le_bytes());
        payload.push(compressor);
        payload.extend(data);
        frame::of(OP_COMPRESSED, 1, &payload)
    };
    let bomb = compressed(Compressor::Zstd, frame::of(OP_MSG, 1, &vec![0; 40_000_000]))?;
    let mut liar = bomb.clone();
    liar[20..24].copy_from_slice(&100_i32.to_le_bytes());
    let cases = [
        ("noop", inside(0, 4, &[0; 4]), 0.0),
        ("an unknown compressor", inside(9, 4, &[0; 4]), 0.0),
        ("no data", inside(3, 4, &[]), 1.0),
        ("garbage", inside(2, 30, &[7; 30]), 0.0),
        ("a size that is too large", inside(2, 48_000_000, &[7; 30]), 1.0),
        ("a size that is negative", inside(2, -1, &[7; 30]), 1.0),
        ("a size that cannot be", inside(1, 40_000_000, &[7; 30]), 1.0),
        ("more than its size", liar, 0.0),
    ];
    for (name, bytes, counted) in cases {
        let series = "mongoshape_limits_hit_total{limit=\"inflated_bytes\"}";
        let before = shaped.proxy.metric(series);
        let mut application = shaped.application()?;
        agree(&mut application, &["zstd", "zlib", "snappy"])?;
        application.send(&bytes)?;
        ensure!(application.is_closed().context(name)?, "{name}: open");
        assert!((shaped.proxy.metric(series) - before - counted).abs() < 0.5, "{name}");
    }
    Ok(())
}
