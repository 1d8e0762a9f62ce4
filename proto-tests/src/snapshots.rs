//! Snapshot sessions, as drivers have them.

use anyhow::{Context as _, Result};
use bson::{Bson, Document, doc};

use crate::raw::Connection;
use crate::sessions::lsid;
use crate::sides::{COLLECTION, Pattern, Sides};

/// A snapshot session: the time at which it reads is that which the server has answered its first read with.
#[derive(Debug)]
pub struct SnapshotSession<'c> {
    /// The connection of its commands.
    pub connection: &'c mut Connection,
    /// The database of its commands.
    pub database: String,
    /// The time at which it reads. `None`: it has not read yet.
    pub time: Option<Bson>,
}

impl<'c> SnapshotSession<'c> {
    /// A session on one of two sides.
    pub fn new<P: Pattern>(sides: &'c mut Sides<P>, is_shaped: bool, time: Option<Bson>) -> Self {
        let database = if is_shaped {
            sides.shaped_database()
        } else {
            sides.plain_database()
        };
        let connection = if is_shaped { &mut sides.shaped } else { &mut sides.plain };
        Self {
            connection,
            database,
            time,
        }
    }

    /// Runs a read. Fails if it is the first one and the reply has no time.
    pub fn run(&mut self, mut command: Document) -> Result<Document> {
        let mut concern = doc! { "level": "snapshot" };
        if let Some(time) = &self.time {
            concern.insert("atClusterTime", time);
        }
        if !command.contains_key("getMore") {
            command.insert("readConcern", concern);
        }
        command.insert("lsid", lsid(&self.database));
        command.insert("$db", &self.database);
        let reply = self.connection.command_ok(&command)?;
        let of_cursor = reply
            .get_document("cursor")
            .ok()
            .and_then(|cursor| cursor.get("atClusterTime"));
        let time = reply.get("atClusterTime").or(of_cursor);
        if self.time.is_none() {
            self.time = Some(time.context("no time")?.clone());
        }
        Ok(reply)
    }

    /// The documents of all batches, or the values of a `distinct`.
    pub fn all(&mut self, command: Document) -> Result<Vec<Bson>> {
        let mut reply = self.run(command)?;
        if let Ok(values) = reply.get_array("values") {
            return Ok(values.clone());
        }
        let mut all = Vec::new();
        loop {
            let cursor = reply.get_document("cursor")?;
            let batch = cursor
                .get_array("firstBatch")
                .or_else(|_| cursor.get_array("nextBatch"))?;
            all.extend(batch.iter().cloned());
            let id = cursor.get_i64("id")?;
            if id == 0 {
                return Ok(all);
            }
            reply = self.run(doc! { "getMore": id, "collection": COLLECTION, "batchSize": 1 })?;
        }
    }
}
