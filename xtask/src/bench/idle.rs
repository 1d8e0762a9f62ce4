//! The memory of idle connections. Applications keep thousands of them.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use bson::doc;
use proto_tests::raw::Connection;

use super::process::resident_kilobytes;

/// How long the process has to settle before it is measured.
const SETTLE: Duration = Duration::from_secs(2);

/// Resident memory of a process for each of so many connections, in kB, that have sent `hello` and one command
/// and now wait.
#[expect(clippy::cast_precision_loss, reason = "kilobytes and connections are far below 2^52")]
pub(super) fn kilobytes_per_connection(address: SocketAddr, process: u32, connections: usize) -> Result<f64> {
    let before = resident_kilobytes(process)?;
    let mut open = Vec::with_capacity(connections);
    for _ in 0..connections {
        let mut connection = Connection::open(address)?;
        connection.command_ok(&doc! { "hello": 1, "$db": "admin" })?;
        connection.command_ok(&doc! { "ping": 1, "$db": "admin" })?;
        open.push(connection);
    }
    thread::sleep(SETTLE);
    let grown = resident_kilobytes(process)?.saturating_sub(before);
    Ok(grown as f64 / connections as f64)
}
