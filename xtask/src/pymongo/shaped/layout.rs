//! Checks the layout of the shaped collections.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use bson::doc;
use proto_tests::{invariants, raw};

use super::{Pattern, Shaping};

/// Fails unless all collections that a run has left, and that are shaped as buckets, hold buckets and nothing
/// else. Where tests have data there must be some: where nothing was shaped, nothing was tested.
pub(in crate::pymongo) fn check(shaping: &Shaping, servers: &[SocketAddr]) -> Result<()> {
    let mut primary = primary(servers)?;
    let shape = shaping.shape();
    let mut filled = 0;
    for namespace in shaping.shaped() {
        let (database, collection) = (&namespace.database, &namespace.collection);
        // No document of these tests is an outlier.
        if shaping.pattern == Pattern::Bucket {
            invariants::check(&mut primary, database, collection, &shape)?;
        }
        let found = primary.command_ok(&doc! { "find": collection, "limit": 1, "$db": database })?;
        let is_empty = found.get_document("cursor")?.get_array("firstBatch")?.is_empty();
        filled += usize::from(!is_empty);
    }
    ensure!(
        filled > 0 || !shaping.part.namespaces.has_data(),
        "no shaped collection holds anything"
    );
    Ok(())
}

/// A connection to the server that has all that was written.
fn primary(servers: &[SocketAddr]) -> Result<raw::Connection> {
    for address in servers {
        let mut connection = raw::Connection::open(*address)?;
        let hello = connection.command_ok(&doc! { "hello": 1, "$db": "admin" })?;
        if hello.get_bool("isWritablePrimary")? {
            return Ok(connection);
        }
    }
    None.context("no server is the primary")
}
