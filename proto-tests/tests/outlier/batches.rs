//! Reads a cursor batch by batch.

use anyhow::Result;
use bson::{Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sides::COLLECTION;

/// A batch, and whether its cursor is open.
#[derive(Debug, PartialEq)]
pub(crate) struct Batch {
    pub(crate) documents: Vec<Document>,
    is_open: bool,
}

/// The batches of a command that opens a cursor. Each `getMore` has the next of these sizes.
pub(crate) fn batches(
    connection: &mut Connection,
    command: &Document,
    sizes: impl IntoIterator<Item = i32>,
) -> Result<Vec<Batch>> {
    let mut reply = connection.command_ok(command)?;
    let mut batches = Vec::new();
    let mut sizes = sizes.into_iter();
    loop {
        let cursor = reply.get_document("cursor")?;
        let batch = cursor
            .get_array("firstBatch")
            .or_else(|_| cursor.get_array("nextBatch"))?;
        let documents = batch.iter().filter_map(|document| document.as_document().cloned());
        let id = cursor.get_i64("id")?;
        batches.push(Batch {
            documents: documents.collect(),
            is_open: id != 0,
        });
        let Some(size) = sizes.next().filter(|_| id != 0) else {
            return Ok(batches);
        };
        let database = command.get_str("$db")?;
        reply = connection.command_ok(&doc! {
            "getMore": id, "collection": COLLECTION, "batchSize": size, "$db": database,
        })?;
    }
}
