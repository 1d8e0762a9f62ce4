//! Clients that violate the protocol, exceed limits or stall: other clients are not affected, and the log has
//! one line for each.

mod compressed;
mod limits;
mod memory;
mod slow;
mod unread;

use std::net::{Shutdown, SocketAddr};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::frame::{self, OP_COMPRESSED, OP_MSG};
use proto_tests::proxy::Line;
use proto_tests::raw::Connection;
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::{Level, Proxy, ProxyOptions, mongod};
use rand::rngs::ChaCha8Rng;
use rand::{Rng as _, SeedableRng as _};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The maximum latency of a healthy client beside the malicious ones.
const DEADLINE: Duration = Duration::from_secs(10);
const BROKEN: &str = "the client violates the protocol";
const SLOW: &str = "the client is too slow";

fn shaped(listen: &str) -> Result<Shaped> {
    allow_many_files();
    let options = ProxyOptions::new(&mongod::shared().uri())
        .listen(listen)
        .filter("info,mongoshape=debug");
    Shaped::with("", &options)
}

/// Lets this process, and the servers that it starts from now on, have as many files as the system allows.
fn allow_many_files() {
    static ALLOWED: Once = Once::new();
    ALLOWED.call_once(|| {
        let maximum = getrlimit(Resource::Nofile).maximum;
        let current = maximum;
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).expect("up to the hard limit");
    });
}

fn ping() -> Document {
    doc! { "ping": 1, "$db": "admin" }
}

/// How often each limit was hit: as often as listed, and no other one ever.
fn check_limits(proxy: &Proxy, expected: &[(&str, u32)]) -> Result<()> {
    let all = [
        "connections",
        "message_bytes",
        "inflated_bytes",
        "handshake_timeout",
        "frame_timeout",
        "idle_timeout",
        "send_timeout",
    ];
    for name in all {
        let listed = expected.iter().find(|(listed, _)| *listed == name);
        let hits = f64::from(listed.map_or(0, |(_, hits)| *hits));
        let counted = proxy.metric(&format!("mongoshape_limits_hit_total{{limit=\"{name}\"}}"));
        ensure!((counted - hits).abs() < 0.5, "{name}: {counted}, not {hits}");
    }
    Ok(())
}

/// The log line of one client after its end.
fn line_of(proxy: &Proxy, client: SocketAddr) -> Result<Line> {
    let peer = format!("\"peer\":\"{client}\"");
    proxy.wait_for_log(&peer)?;
    let lines: Vec<_> = proxy
        .log()
        .into_iter()
        .filter(|line| line.text.contains(&peer))
        .collect();
    ensure!(lines.len() == 1, "{lines:?}");
    Ok(lines[0].clone())
}

/// Sends bytes, expects the connection to be closed and a warning.
fn check_closed(proxy: &Proxy, name: &str, bytes: &[u8]) -> Result<()> {
    let mut connection = Connection::open(proxy.address())?;
    let client = connection.stream().local_addr()?;
    connection.send(bytes)?;
    ensure!(connection.is_closed().context(name.to_owned())?, "{name}: still open");
    let line = line_of(proxy, client).context(name.to_owned())?;
    let is_expected = [BROKEN, SLOW].iter().any(|message| line.text.contains(message));
    ensure!(line.level == Level::Warn && is_expected, "{name}: {}", line.text);
    Ok(())
}

/// Runs `attack` while one healthy client keeps pinging, which must be answered in time all along.
fn beside_a_healthy_client(proxy: &Proxy, attack: impl FnOnce() -> Result<()>) -> Result<()> {
    let done = AtomicBool::new(false);
    let mut healthy = Connection::open(proxy.address())?;
    healthy.stream().set_read_timeout(Some(DEADLINE))?;
    // The attack may end before the thread begins.
    healthy.command_ok(&ping())?;
    thread::scope(|scope| {
        let pinging = scope.spawn(|| -> Result<()> {
            while !done.load(Ordering::Relaxed) {
                healthy.command_ok(&ping())?;
            }
            healthy.command_ok(&ping()).map(drop)
        });
        let attacked = attack();
        done.store(true, Ordering::Relaxed);
        pinging
            .join()
            .expect("the healthy client panicked")
            .context("the healthy client")?;
        attacked
    })
}

#[test]
fn invalid_message_closes_only_its_own_connection() -> Result<()> {
    let shaped = shaped("frame_timeout_ms = 200")?;
    shaped.proxy.expect_log(Level::Warn, BROKEN);
    shaped.proxy.expect_log(Level::Warn, SLOW);
    let ping = frame::command(1, 0, &doc! { "ping": 1, "$db": "admin" })?;
    let body = frame::body_section(&doc! { "ping": 1, "$db": "admin" })?;
    let mut long_body = body.clone();
    long_body[1] += 1;
    let mut cases = vec![
        ("half a frame", ping[..20].to_vec()),
        ("half a length", ping[..2].to_vec()),
        ("an unknown kind", frame::of(9999, 1, &[0; 20])),
        ("a reply", frame::of(frame::OP_REPLY, 1, &[0; 20])),
        ("no flags", frame::of(OP_MSG, 1, &[])),
        ("compressed", frame::of(OP_COMPRESSED, 1, &[0; 20])),
        (
            "unknown required flags",
            frame::command(1, 1 << 5, &doc! { "ping": 1, "$db": "admin" })?,
        ),
        ("a body longer than its message", frame::message(1, 0, &[long_body])),
        ("an empty OP_QUERY", frame::of(frame::OP_QUERY, 1, &[])),
    ];
    for length in [0, -1, 15, 48_000_001, i32::MIN, i32::MAX] {
        cases.push(("a wrong length", frame::announcing(length, OP_MSG, 1, &[0; 5])));
    }
    for seed in 0..50 {
        let mut bytes = vec![0; 600];
        ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
        cases.push(("random bytes", bytes));
    }
    beside_a_healthy_client(&shaped.proxy, || {
        cases
            .iter()
            .try_for_each(|(name, bytes)| check_closed(&shaped.proxy, name, bytes))
    })
}

#[test]
fn client_disconnect_logs_no_warning() -> Result<()> {
    let shaped = shaped("")?;
    let ping = frame::command(1, 0, &doc! { "ping": 1, "$db": "admin" })?;
    beside_a_healthy_client(&shaped.proxy, || {
        for bytes in [&[][..], &ping[..2], &ping[..20]] {
            let mut connection = Connection::open(shaped.proxy.address())?;
            let client = connection.stream().local_addr()?;
            connection.send(bytes)?;
            connection.stream().shutdown(Shutdown::Write)?;
            ensure!(connection.is_closed()?, "still open");
            let line = line_of(&shaped.proxy, client)?;
            ensure!(line.text.contains("\"level\":\"DEBUG\""), "{}", line.text);
        }
        Ok(())
    })
}

#[test]
fn checksums_are_verified_where_the_proxy_itself_reads() -> Result<()> {
    let shaped = shaped("")?;
    shaped.proxy.expect_log(Level::Warn, BROKEN);
    let good = frame::with_checksum(&frame::command(1, 0, &shaped.insert(&[doc! { "_id": 1, "k": 1 }]))?);
    let mut bad = frame::with_checksum(&frame::command(1, 0, &shaped.insert(&[doc! { "_id": 2, "k": 1 }]))?);
    *bad.last_mut().context("empty")? ^= 1;
    check_closed(&shaped.proxy, "a bad checksum", &bad)?;
    assert!(shaped.stored()?.is_empty());
    let mut application = shaped.application()?;
    application.send(&good)?;
    let reply = proto_tests::raw::document(&application.receive()?)?;
    assert_eq!(reply.get_i32("n")?, 1, "{reply}");
    assert_eq!(
        application.find(&shaped.database, COLLECTION, doc! {})?,
        [doc! { "_id": 1, "k": 1 }]
    );
    Ok(())
}

#[test]
fn declared_length_allocates_no_memory() -> Result<()> {
    let shaped = shaped("")?;
    let before = shaped.proxy.peak_kib()?;
    let announced = frame::announcing(48_000_000, OP_MSG, 1, &[0; 84]);
    beside_a_healthy_client(&shaped.proxy, || {
        let clients = (0..200).map(|_| -> Result<Connection> {
            let mut connection = Connection::open(shaped.proxy.address())?;
            connection.send(&announced)?;
            Ok(connection)
        });
        let _clients = clients.collect::<Result<Vec<_>>>()?;
        let deadline = Instant::now() + Duration::from_secs(20);
        // And the healthy one.
        while shaped.proxy.metric("mongoshape_client_connections") < 201.0 {
            ensure!(Instant::now() < deadline, "not all clients were accepted");
        }
        let grown = shaped.proxy.peak_kib()?.saturating_sub(before);
        ensure!(grown < 64 * 1024, "{grown} kB for 200 clients");
        Ok(())
    })
}
