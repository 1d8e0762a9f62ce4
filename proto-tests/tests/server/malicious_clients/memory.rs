//! Clients that use up the memory of others: by partial messages, before authentication, or by very long
//! keys.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::frame::{self, OP_COMPRESSED, OP_MSG};
use proto_tests::mongod::Options;
use proto_tests::raw::Connection;
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::{Level, ProxyOptions, client, mongod};

use super::{BROKEN, SLOW, allow_many_files, beside_a_healthy_client};

const MIB: usize = 1 << 20;

fn shaped_within(mebibytes: u32, upstream: &str) -> Result<Shaped> {
    allow_many_files();
    let options = ProxyOptions::new(upstream).listen(&format!("memory_mib = {mebibytes}"));
    Shaped::with("", &options)
}

/// The beginning of a message of 40 MB: so many bytes of it.
fn half(op_code: i32, begun: &[u8], bytes: usize) -> Vec<u8> {
    let mut payload = begun.to_vec();
    payload.resize(bytes, 0);
    frame::announcing(40_000_000, op_code, 1, &payload)
}

/// An OP_COMPRESSED of snappy that is to become 47 MB.
fn half_compressed(bytes: usize) -> Vec<u8> {
    let mut begun = OP_MSG.to_le_bytes().to_vec();
    begun.extend_from_slice(&47_000_000_i32.to_le_bytes());
    begun.push(1);
    half(OP_COMPRESSED, &begun, bytes)
}

/// An insert into the shaped collection.
fn half_insert(shaped: &Shaped, bytes: usize) -> Result<Vec<u8>> {
    let body = frame::body_section(&doc! { "insert": COLLECTION, "$db": &shaped.database })?;
    let mut begun = 0_u32.to_le_bytes().to_vec();
    begun.extend_from_slice(&body);
    // A sequence of documents that goes on to the end.
    begun.push(1);
    let rest = i32::try_from(40_000_000 - frame::HEADER_LENGTH - begun.len())?;
    begun.extend_from_slice(&rest.to_le_bytes());
    begun.extend_from_slice(b"documents\0");
    Ok(half(OP_MSG, &begun, bytes))
}

/// Connections that each send a half, as far as it is taken within a second, and wait.
fn stalled(shaped: &Shaped, count: usize, half: &[u8]) -> Result<Vec<Connection>> {
    thread::scope(|scope| {
        let senders: Vec<_> = (0..count)
            .map(|_| {
                scope.spawn(|| -> Result<Connection> {
                    let mut connection = shaped.application()?;
                    connection.stream().set_write_timeout(Some(Duration::from_secs(1)))?;
                    // What is not taken is not sent.
                    let _ = connection.send(half);
                    Ok(connection)
                })
            })
            .collect();
        let joined = senders
            .into_iter()
            .map(|sender| sender.join().expect("a sender panicked"));
        joined.collect()
    })
}

#[test]
fn partial_compressed_message_is_charged_to_the_memory_budget() -> Result<()> {
    let shaped = shaped_within(192, &mongod::shared().uri())?;
    shaped.proxy.expect_log(Level::Warn, SLOW);
    shaped.proxy.expect_log(Level::Warn, BROKEN);
    let before = shaped.proxy.peak_kib()?;
    beside_a_healthy_client(&shaped.proxy, || {
        let _clients = stalled(&shaped, 14, &half_compressed(38_000_000))?;
        let grown = shaped.proxy.peak_kib()?.saturating_sub(before);
        ensure!(grown < 72 * 1024, "{grown} kB for 14 halves");
        Ok(())
    })
}

fn insert_of(shaped: &Shaped, bytes: usize) -> Document {
    shaped.insert(&[doc! { "k": 1, "text": "x".repeat(bytes) }])
}

#[test]
fn stalled_sender_releases_memory_to_waiting_clients() -> Result<()> {
    let shaped = shaped_within(192, &mongod::shared().uri())?;
    shaped.proxy.expect_log(Level::Warn, SLOW);
    let _stalled = stalled(&shaped, 1, &half_insert(&shaped, 38_000_000)?)?;
    let begun = Instant::now();
    shaped.application()?.command_ok(&insert_of(&shaped, MIB))?;
    ensure!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    Ok(())
}

#[tokio::test]
async fn unauthenticated_client_takes_no_memory_from_other_clients() -> Result<()> {
    let mongod = Options::default().auth().standalone()?;
    let shaped = shaped_within(192, &mongod.uri())?;
    shaped.proxy.expect_log(Level::Warn, SLOW);
    shaped.proxy.expect_log(Level::Warn, "too many long messages");
    let before = shaped.proxy.peak_kib()?;
    let _long = stalled(&shaped, 20, &half_insert(&shaped, 38_000_000)?)?;
    let _compressed = stalled(&shaped, 20, &half_compressed(38_000_000))?;
    let grown = shaped.proxy.peak_kib()?.saturating_sub(before);
    ensure!(grown < 24 * 1024, "{grown} kB for 40 strangers");
    let uri = mongod
        .uri()
        .replace(&mongod.address().to_string(), &shaped.proxy.address().to_string());
    let database = client(&uri).await?.database(&shaped.database);
    let begun = Instant::now();
    let documents = (0..8).map(|number| doc! { "_id": number, "k": number, "text": "x".repeat(MIB / 4) });
    database
        .collection::<Document>(COLLECTION)
        .insert_many(documents)
        .await?;
    ensure!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    Ok(())
}

#[test]
fn keys_of_any_length_take_bounded_memory() -> Result<()> {
    let shaped = shaped_within(192, &mongod::shared().uri())?;
    let mut application = shaped.application()?;
    let before = shaped.proxy.peak_kib()?;
    for number in 0..600 {
        let key = format!("{number} {}", "x".repeat(200_000));
        application.command_ok(&shaped.insert(&[doc! { "k": &key }]))?;
        let found = application.find(&shaped.database, COLLECTION, doc! { "k": key })?;
        ensure!(found.len() == 1, "{} found", found.len());
    }
    let grown = shaped.proxy.peak_kib()?.saturating_sub(before);
    ensure!(grown < 100 * 1024, "{grown} kB for 600 keys");
    Ok(())
}
