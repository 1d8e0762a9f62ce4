//! Slow clients: before the first byte, within a message, between two messages.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::doc;
use proto_tests::frame;
use proto_tests::raw::Connection;
use proto_tests::{Level, Proxy};

use super::{SLOW, beside_a_healthy_client, check_limits, line_of, ping, shaped};

fn addresses(connections: &[Connection]) -> Result<Vec<SocketAddr>> {
    let addresses = connections.iter().map(|connection| connection.stream().local_addr());
    Ok(addresses.collect::<Result<_, _>>()?)
}

/// Each is closed, with one log line of this level that contains `message`.
fn check_all_closed(proxy: &Proxy, connections: &mut [Connection], message: &str) -> Result<()> {
    let clients = addresses(connections)?;
    for (connection, client) in connections.iter_mut().zip(clients) {
        ensure!(connection.is_closed()?, "{client} is open");
        let line = line_of(proxy, client)?;
        ensure!(line.text.contains(message), "{}", line.text);
    }
    Ok(())
}

#[test]
fn client_that_sends_nothing_is_disconnected() -> Result<()> {
    let message = "the client sent nothing in time";
    let shaped = shaped("handshake_timeout_ms = 300")?;
    shaped.proxy.expect_log(Level::Warn, message);
    beside_a_healthy_client(&shaped.proxy, || {
        let mut silent = (0..20).map(|_| shaped.application()).collect::<Result<Vec<_>>>()?;
        check_all_closed(&shaped.proxy, &mut silent, message)?;
        check_limits(&shaped.proxy, &[("handshake_timeout", 20)])
    })
}

#[test]
fn client_that_sends_byte_by_byte_is_disconnected() -> Result<()> {
    let shaped = shaped("frame_timeout_ms = 300")?;
    shaped.proxy.expect_log(Level::Warn, SLOW);
    let short = frame::command(1, 0, &ping())?;
    let long = frame::announcing(40_000_000, frame::OP_MSG, 1, &[0; 200]);
    beside_a_healthy_client(&shaped.proxy, || {
        let mut slow = (0..10).map(|_| shaped.application()).collect::<Result<Vec<_>>>()?;
        let begun = Instant::now();
        for position in 0..short.len() - 1 {
            for (number, connection) in slow.iter_mut().enumerate() {
                let bytes = if number % 2 == 0 { &short } else { &long };
                // It may be cut already.
                let _ = connection.send(&bytes[position..=position]);
            }
            if begun.elapsed() > Duration::from_millis(900) {
                break;
            }
            thread::sleep(Duration::from_millis(30));
        }
        check_all_closed(&shaped.proxy, &mut slow, SLOW)?;
        check_limits(&shaped.proxy, &[("frame_timeout", 10)])
    })
}

/// The bytes of an insert of some megabytes, in five parts.
fn large(shaped: &proto_tests::Shaped) -> Result<Vec<Vec<u8>>> {
    let documents: Vec<_> = (0..4)
        .map(|number| doc! { "_id": number, "text": "x".repeat(1 << 20) })
        .collect();
    let bytes = frame::command(
        9,
        0,
        &doc! { "insert": "plain", "documents": documents, "$db": &shaped.database },
    )?;
    Ok(bytes.chunks(bytes.len() / 4).map(<[u8]>::to_vec).collect())
}

#[test]
fn a_long_message_has_more_time_than_a_short_one() -> Result<()> {
    let shaped = shaped("frame_timeout_ms = 1000")?;
    let mut application = shaped.application()?;
    for part in large(&shaped)? {
        application.send(&part)?;
        thread::sleep(Duration::from_millis(350));
    }
    let reply = proto_tests::raw::document(&application.receive()?)?;
    ensure!(reply.get_i32("n")? == 4, "{reply}");
    check_limits(&shaped.proxy, &[])
}

/// This includes the connection of a client whose machine is gone: it receives nothing.
#[test]
fn only_clients_beyond_the_idle_timeout_are_disconnected() -> Result<()> {
    let shaped = shaped("idle_timeout_ms = 800")?;
    let mut busy = shaped.application()?;
    let fill = doc! { "insert": "one", "documents": [{ "_id": 1 }], "$db": &shaped.database };
    busy.command_ok(&fill)?;
    beside_a_healthy_client(&shaped.proxy, || {
        let mut idle = (0..10).map(|_| shaped.application()).collect::<Result<Vec<_>>>()?;
        for connection in &mut idle {
            connection.command_ok(&ping())?;
        }
        // A command that takes longer than that is no idleness.
        let filter = doc! { "$where": "sleep(1600) || true" };
        let found = busy.find(&shaped.database, "one", filter)?;
        ensure!(found.len() == 1, "{found:?}");
        check_all_closed(&shaped.proxy, &mut idle, "closed\":\"Idle")?;
        check_limits(&shaped.proxy, &[("idle_timeout", 10)])
    })
}

#[test]
fn client_in_the_middle_of_a_message_is_not_idle() -> Result<()> {
    let shaped = shaped("idle_timeout_ms = 700")?;
    let mut application = shaped.application()?;
    for part in frame::command(1, 0, &ping())?.chunks(10) {
        application.send(part).context("cut in the middle of a message")?;
        thread::sleep(Duration::from_millis(250));
    }
    proto_tests::raw::document(&application.receive()?)?;
    check_limits(&shaped.proxy, &[])
}
