//! The connections of one side: one to each proxy, or the one to mongod.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document, Timestamp};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};

use super::sides::field;
use crate::raw;
use crate::replies::with_later_name;

/// One of so many commands takes a random connection, the others that of the command before: a proxy's
/// caches are used as well as outdated.
const COMMANDS_BETWEEN_CHOICES: u32 = 4;

/// Connections to several proxies before the same mongod. A command takes any of them, also within a
/// transaction and when it is resent. A cursor is read where it was opened.
#[derive(Debug)]
pub(super) struct Routes {
    connections: Vec<raw::Connection>,
    current: usize,
    /// The connection of the next command, if it is given.
    next: Option<usize>,
    /// The connection of each cursor.
    cursors: BTreeMap<i64, usize>,
    rng: ChaCha8Rng,
}

impl Routes {
    /// Connects to each address. The seed determines the connection of each command.
    pub(super) fn open(addresses: &[SocketAddr], seed: u64) -> Result<Self> {
        let connections = addresses.iter().map(|address| raw::Connection::open(*address));
        Ok(Self {
            connections: connections.collect::<Result<_>>()?,
            current: 0,
            next: None,
            cursors: BTreeMap::new(),
            rng: ChaCha8Rng::seed_from_u64(seed),
        })
    }

    /// Any of the connections.
    pub(super) fn any(&mut self) -> &mut raw::Connection {
        if self.rng.random_range(0..COMMANDS_BETWEEN_CHOICES) == 0 {
            self.current = self.rng.random_range(0..self.connections.len());
        }
        &mut self.connections[self.current]
    }

    /// Sends the next command through this one of the proxies.
    pub(super) fn send_next_through(&mut self, proxy: usize) {
        self.next = Some(proxy % self.connections.len());
    }

    /// Sends a command to each proxy but that of the last command.
    pub(super) fn on_others(&mut self, command: &Document) -> Result<()> {
        let request = raw::request(0, command)?;
        for (number, connection) in self.connections.iter_mut().enumerate() {
            if number != self.current {
                send(connection, &request)?;
            }
        }
        Ok(())
    }

    /// Sets the connection of the next command.
    fn choose(&mut self, command: &Document) {
        let of_cursor = cursor_of_request(command).and_then(|cursor| self.cursors.get(&cursor));
        if let Some(route) = self.next.take().or(of_cursor.copied()) {
            self.current = route;
        } else if generates(command) {
            // Values of two proxies are not in the order of their generation.
            self.current = 0;
        } else {
            self.any();
        }
    }

    /// Sends a command and returns the reply.
    pub(super) fn command_raw(&mut self, command: &Document) -> Result<RawDocumentBuf> {
        self.exchange(command, &raw::request(0, command)?)
    }

    /// Sends the bytes of a command and returns the reply.
    pub(super) fn exchange(&mut self, command: &Document, request: &[u8]) -> Result<RawDocumentBuf> {
        self.choose(command);
        let reply = send(&mut self.connections[self.current], request)?;
        if command.contains_key("createIndexes") && !command.contains_key("autocommit") {
            // A proxy that sees the command reads the list of indexes again.
            self.on_others(command)?;
        }
        if let Some(cursor) = cursor_of_reply(&reply) {
            self.cursors.insert(cursor, self.current);
        }
        Ok(reply)
    }
}

fn send(connection: &mut raw::Connection, request: &[u8]) -> Result<RawDocumentBuf> {
    connection.send(request)?;
    let mut frame = Vec::new();
    connection.read_frame(&mut frame)?;
    let reply = RawDocumentBuf::from_bytes(raw::body(&frame)?.to_vec()).context("a reply")?;
    Ok(with_later_name(reply))
}

/// Whether the server may generate an `_id` or a timestamp.
fn generates(command: &Document) -> bool {
    let is_empty = |value: &Bson| *value == Bson::Timestamp(Timestamp { time: 0, increment: 0 });
    let is_incomplete = |document: &Bson| {
        let document = document.as_document();
        document.is_some_and(|document| !document.contains_key("_id") || document.values().any(is_empty))
    };
    let list = |name| command.get_array(name).into_iter().flatten();
    let is_upsert = |statement: &Document| {
        statement
            .get("upsert")
            .is_some_and(|upsert| *upsert != Bson::from(false))
    };
    list("documents").any(is_incomplete)
        || is_upsert(command)
        || list("updates").filter_map(Bson::as_document).any(is_upsert)
        || command.to_string().contains("$merge")
}

/// The cursor that a command continues or ends.
fn cursor_of_request(command: &Document) -> Option<i64> {
    match command.iter().next()? {
        (name, Bson::Int64(cursor)) if name == "getMore" => Some(*cursor),
        (name, _) if name == "killCursors" => command.get_array("cursors").ok()?.first()?.as_i64(),
        _ => None,
    }
}

/// The cursor that a reply opens.
fn cursor_of_reply(reply: &RawDocument) -> Option<i64> {
    let cursor = field(reply, "cursor").and_then(RawBsonRef::as_document)?;
    field(cursor, "id")?.as_i64().filter(|cursor| *cursor != 0)
}
