//! Checks the layout of the shaped collections.

use anyhow::{Context as _, Result, ensure};
use bson::doc;
use proto_tests::{Mongod, invariants, raw};

use super::{Pattern, Shaping};

/// Fails unless all collections that a run has left, and that are shaped as buckets, hold buckets and nothing
/// else. Where tests have data there must be some: where nothing was shaped, nothing was tested.
pub(in crate::pymongo) fn check(shaping: &Shaping, mongod: &Mongod) -> Result<()> {
    let mut primary = primary(mongod)?;
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
fn primary(mongod: &Mongod) -> Result<raw::Connection> {
    for address in mongod.addresses() {
        let mut connection = raw::Connection::open(address)?;
        let hello = connection.command_ok(&doc! { "hello": 1, "$db": "admin" })?;
        if hello.get_bool("isWritablePrimary")? {
            return Ok(connection);
        }
    }
    None.context("no member is the primary")
}
