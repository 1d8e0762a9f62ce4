//! More clients, and longer messages, than the limits allow.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use bson::doc;
use proto_tests::Level;
use proto_tests::frame::{self, OP_MSG};
use proto_tests::measure::is_full;
use proto_tests::raw::Connection;
use rustix::process::{Resource, getrlimit};

use super::{BROKEN, DEADLINE, allow_many_files, beside_a_healthy_client, check_limits, line_of, ping, shaped};

const FULL: &str = "the limit listen.max_connections is reached";

#[test]
fn connections_beyond_the_limit_are_refused_while_those_within_are_served() -> Result<()> {
    let shaped = shaped("max_connections = 3")?;
    shaped.proxy.expect_log(Level::Warn, FULL);
    let mut within = (0..2).map(|_| shaped.application()).collect::<Result<Vec<_>>>()?;
    for connection in &mut within {
        connection.command_ok(&ping())?;
    }
    beside_a_healthy_client(&shaped.proxy, || {
        // The healthy client has the third place as soon as its first ping is answered.
        shaped.proxy.wait_for_log("serving")?;
        while shaped.proxy.metric("mongoshape_client_connections") < 3.0 {}
        for _ in 0..5 {
            let mut beyond = shaped.application()?;
            ensure!(beyond.is_closed()?, "a fourth connection is open");
        }
        for connection in &mut within {
            connection.command_ok(&ping())?;
        }
        Ok(())
    })?;
    // A place that is given back is taken again.
    drop(within);
    let deadline = Instant::now() + DEADLINE;
    while shaped.application()?.command(&ping()).is_err() {
        ensure!(Instant::now() < deadline, "no place became free");
    }
    Ok(())
}

/// Files that this process needs for other things, other tests included.
const OTHER_FILES: u64 = 500;

/// An ordinary run opens three thousand connections. The limit is a thousand.
/// `MONGOSHAPE_CRASHES=full` opens ten thousand.
#[test]
fn only_a_thousand_connections_are_served() -> Result<()> {
    allow_many_files();
    let wanted = if is_full("MONGOSHAPE_CRASHES") { 10_000 } else { 3_000 };
    // Where the system allows fewer files than that, as many as it does, and half of them or fewer are
    // within.
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let all = files.saturating_sub(OTHER_FILES).min(wanted);
    let most = all.div_ceil(2).min(1_000);
    let shaped = shaped(&format!("max_connections = {most}"))?;
    shaped.proxy.expect_log(Level::Warn, FULL);
    let before = shaped.proxy.peak_kib()?;
    let begun = Instant::now();
    let mut within = (0..most).map(|_| shaped.application()).collect::<Result<Vec<_>>>()?;
    let serve = |within: &mut Vec<Connection>| -> Result<()> {
        within
            .iter_mut()
            .try_for_each(|connection| connection.command_ok(&ping()).map(|_| ()))
    };
    serve(&mut within)?;
    let mut beyond = (most..all).map(|_| shaped.application()).collect::<Result<Vec<_>>>()?;
    for connection in &mut beyond {
        ensure!(connection.is_closed()?, "one too many is open");
    }
    serve(&mut within)?;
    check_limits(&shaped.proxy, &[("connections", u32::try_from(all - most)?)])?;
    // One at once, and then one in ten seconds.
    let lines = shaped
        .proxy
        .log()
        .iter()
        .filter(|line| line.text.contains(FULL))
        .count();
    let most_lines = 1 + usize::try_from(begun.elapsed().as_secs() / 10)?;
    ensure!(
        (1..=most_lines).contains(&lines),
        "{lines} lines for {} connections",
        all - most
    );
    let grown = shaped.proxy.peak_kib()?.saturating_sub(before);
    ensure!(grown < 64 * 1024, "{grown} kB for {most} clients");
    Ok(())
}

#[test]
fn message_size_limit_applies_to_clients_and_not_to_servers() -> Result<()> {
    let shaped = shaped("max_message_bytes = 65536")?;
    shaped.proxy.expect_log(Level::Warn, BROKEN);
    let mut application = shaped.application()?;
    let documents: Vec<_> = (0..10)
        .map(|number| doc! { "_id": number, "k": 1, "text": "x".repeat(40_000) })
        .collect();
    for collection in ["plain", proto_tests::shaped::COLLECTION] {
        for document in &documents {
            let insert = doc! { "insert": collection, "documents": [document], "$db": &shaped.database };
            application.command_ok(&insert)?;
        }
        // The answer is six times as long as a request may be.
        let found = application.find(&shaped.database, collection, doc! {})?;
        ensure!(found == documents, "{} in {collection}", found.len());
    }
    let client = application.stream().local_addr()?;
    application.send(&frame::announcing(65_537, OP_MSG, 1, &[0; 5]))?;
    ensure!(application.is_closed()?, "too long a message was taken");
    ensure!(
        line_of(&shaped.proxy, client)
            .context("too long")?
            .text
            .contains(BROKEN)
    );
    check_limits(&shaped.proxy, &[("message_bytes", 1)])?;
    Ok(())
}
