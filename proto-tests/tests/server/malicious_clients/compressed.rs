//! Compressed messages that inflate to far more than their size, or declare wrong lengths.

use std::thread;

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use mongoshape::wire::limits::MAX_MESSAGE_BYTES;
use mongoshape::wire::{Compressor, Frame, OpCode, OpCompressed};
use proto_tests::frame::{self, OP_COMPRESSED, OP_MSG};
use proto_tests::raw::{self, Connection};
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::{Level, Proxy};

use super::{BROKEN, beside_a_healthy_client, check_limits, line_of, ping, shaped};

fn compressed(compressor: Compressor, plain: Vec<u8>) -> Result<Vec<u8>> {
    let plain = Frame::from_bytes(plain.into())?;
    Ok(OpCompressed::compress(&plain, compressor)?.as_bytes().to_vec())
}

/// A connection that has agreed on every compressor.
fn agreed(proxy: &Proxy) -> Result<Connection> {
    let mut connection = Connection::open(proxy.address())?;
    let hello = doc! { "hello": 1, "compression": ["zstd", "zlib", "snappy"], "$db": "admin" };
    ensure!(connection.command_ok(&hello)?.get_array("compression")?.len() == 3);
    Ok(connection)
}

/// The document of a reply, compressed or not.
fn answer(connection: &mut Connection) -> Result<Document> {
    let reply = Frame::from_bytes(connection.receive()?.into())?;
    if reply.header().op_code != OpCode::Compressed {
        return raw::document(reply.as_bytes());
    }
    raw::document(OpCompressed::parse(&reply, MAX_MESSAGE_BYTES)?.inflate()?.as_bytes())
}

/// What a bomb is made of, and whether it is a message at all.
fn bombs(shaped: &Shaped) -> Result<[(Vec<u8>, bool); 2]> {
    let zeros = frame::of(OP_MSG, 1, &vec![0; 47_000_000]);
    let large = bson::Binary {
        subtype: bson::spec::BinarySubtype::Generic,
        bytes: vec![0; 15_000_000],
    };
    let filter = doc! { "k": 1, "large": large.clone(), "larger": large.clone(), "largest": large };
    let find = frame::command(
        1,
        0,
        &doc! { "find": COLLECTION, "filter": filter, "$db": &shaped.database },
    )?;
    Ok([(zeros, false), (find, true)])
}

const CLIENTS: usize = 7;
/// Four of the longest messages, each up to five times: as opened, in a buffer that grows, rewritten, encoded
/// for mongod, and compressed. All at once would take half as much again.
const MOST_KILOBYTES: u64 = 1_100_000;

/// A third of a gigabyte at once, and up to five times that while it is rewritten, from a few megabytes or
/// much less.
#[test]
fn bombs_of_each_compressor_take_bounded_memory() -> Result<()> {
    for compressor in Compressor::ALL {
        let shaped = shaped("")?;
        shaped.proxy.expect_log(Level::Warn, BROKEN);
        shaped.application()?.command_ok(&shaped.insert(&[doc! { "k": 1 }]))?;
        let before = shaped.proxy.peak_kib()?;
        for (plain, is_message) in bombs(&shaped)? {
            let bomb = compressed(compressor, plain)?;
            beside_a_healthy_client(&shaped.proxy, || throw(&shaped, &bomb, is_message))?;
        }
        let grown = shaped.proxy.peak_kib()?.saturating_sub(before);
        ensure!(grown < MOST_KILOBYTES, "{compressor}: {grown} kB for {CLIENTS} bombs");
        check_limits(&shaped.proxy, &[])?;
    }
    Ok(())
}

fn throw(shaped: &Shaped, bomb: &[u8], is_message: bool) -> Result<()> {
    // A payload that is no message closes the connection: two are enough to check the log.
    let clients = if is_message { CLIENTS } else { 2 };
    let connections = (0..clients)
        .map(|_| agreed(&shaped.proxy))
        .collect::<Result<Vec<_>>>()?;
    thread::scope(|scope| {
        let thrown: Vec<_> = connections
            .into_iter()
            .map(|mut connection| {
                scope.spawn(move || -> Result<()> {
                    let limit = Some(std::time::Duration::from_mins(1));
                    connection.stream().set_read_timeout(limit)?;
                    connection.stream().set_write_timeout(limit)?;
                    connection.send(bomb)?;
                    if is_message {
                        let reply = answer(&mut connection)?;
                        ensure!(reply.get_f64("ok")? < 0.5, "{reply}");
                        return Ok(());
                    }
                    ensure!(connection.is_closed()?, "open");
                    let line = line_of(&shaped.proxy, connection.stream().local_addr()?)?;
                    ensure!(line.text.contains(BROKEN), "{}", line.text);
                    Ok(())
                })
            })
            .collect();
        thrown
            .into_iter()
            .try_for_each(|one| one.join().expect("a client panicked"))
    })
}

/// A document of so many documents in each other.
fn nested(depth: usize) -> Document {
    (1..depth).fold(doc! { "leaf": 1 }, |inner, _| doc! { "a": inner })
}

#[test]
fn nesting_limit_inside_compressed_messages_equals_mongods() -> Result<()> {
    let shaped = shaped("")?;
    shaped.application()?.command_ok(&shaped.insert(&[doc! { "k": 1 }]))?;
    // 200 is the deepest that mongod reads; what is stored lies two deeper in a bucket.
    for (depth, taken) in [(100, true), (190, true), (200, false), (250, false)] {
        for collection in ["plain", COLLECTION] {
            let insert = doc! { "insert": collection, "documents": [{ "k": nested(depth) }], "$db": &shaped.database };
            let plain = frame::command(1, 0, &insert)?;
            let mut direct = shaped.direct()?;
            let reference =
                doc! { "insert": "reference", "documents": [{ "k": nested(depth) }], "$db": &shaped.database };
            let reference = direct.command(&reference)?;
            ensure!((reference.get_f64("ok")? > 0.5) == taken, "{depth}: {reference}");
            for compressor in Compressor::ALL {
                let mut application = agreed(&shaped.proxy)?;
                application.send(&compressed(compressor, plain.clone())?)?;
                let reply = answer(&mut application).with_context(|| format!("{collection}, {depth}"))?;
                for field in ["ok", "n", "code"] {
                    ensure!(
                        reply.get(field) == reference.get(field),
                        "{collection}, {depth}: {reply}, not {reference}"
                    );
                }
                application.command_ok(&ping())?;
            }
        }
    }
    check_limits(&shaped.proxy, &[])
}

#[test]
fn wrong_lengths_inside_compressed_messages_store_nothing() -> Result<()> {
    let shaped = shaped("")?;
    shaped.proxy.expect_log(Level::Warn, BROKEN);
    shaped.application()?.command_ok(&shaped.insert(&[doc! { "k": 1 }]))?;
    let before = shaped.stored()?;
    let item = doc! { "k": 2, "sub": { "text": "marker" } };
    let body = doc! { "insert": COLLECTION, "$db": &shaped.database };
    let whole = frame::command(1, 0, &shaped.insert(std::slice::from_ref(&item)))?;
    let apart = frame::message(
        1,
        0,
        &[
            frame::body_section(&body)?,
            frame::sequence_section("documents", &[item])?,
        ],
    );
    for compressor in Compressor::ALL {
        for plain in [&whole, &apart] {
            let at = plain
                .windows(6)
                .position(|window| window == b"marker")
                .context("no marker")?;
            let mut lying = plain.clone();
            // The low byte of the string's length.
            lying[at - 4] = 200;
            let mut application = agreed(&shaped.proxy)?;
            application.send(&compressed(compressor, lying)?)?;
            let reply = answer(&mut application)?;
            ensure!(reply.get_i32("code").ok() == Some(22), "{reply}");
            application.command_ok(&ping())?;
        }
        for lying in lies(compressor, &whole)? {
            let mut application = agreed(&shaped.proxy)?;
            let client = application.stream().local_addr()?;
            application.send(&lying)?;
            ensure!(application.is_closed()?, "{compressor}: open");
            let line = line_of(&shaped.proxy, client)?;
            ensure!(line.level == Level::Warn && line.text.contains(BROKEN), "{}", line.text);
        }
    }
    ensure!(shaped.stored()? == before, "something was stored");
    check_limits(&shaped.proxy, &[])
}

/// Messages with a wrong length outside the documents.
fn lies(compressor: Compressor, plain: &[u8]) -> Result<Vec<Vec<u8>>> {
    let honest = compressed(compressor, plain.to_vec())?;
    let with_size = |difference: i32| {
        let mut lying = honest.clone();
        let size = i32::try_from(plain.len() - frame::HEADER_LENGTH).expect("short") + difference;
        lying[20..24].copy_from_slice(&size.to_le_bytes());
        lying
    };
    let cut = |bytes: usize| frame::of(OP_COMPRESSED, 1, &honest[frame::HEADER_LENGTH..honest.len() - bytes]);
    let longer = frame::of(OP_COMPRESSED, 1, &[&honest[frame::HEADER_LENGTH..], &[0; 3]].concat());
    // The first section is longer than the message.
    let mut section = plain.to_vec();
    section[frame::HEADER_LENGTH + 7] = 1;
    let mut inside = honest.clone();
    inside[16..20].copy_from_slice(&OP_COMPRESSED.to_le_bytes());
    Ok(vec![
        with_size(1),
        with_size(-1),
        cut(1),
        cut(8),
        longer,
        compressed(compressor, section)?,
        inside,
    ])
}
