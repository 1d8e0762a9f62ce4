//! Logical sessions with random ids, as drivers create them, and their transactions.

use anyhow::Result;
use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};

use crate::raw::Connection;

/// The `lsid` of a session of this name: the same for the same name, and of another name another.
#[must_use]
pub fn lsid(name: &str) -> Document {
    let mix = |sum: u128, byte: u8| sum.wrapping_mul(1_000_003).wrapping_add(byte.into());
    let id = Binary {
        subtype: BinarySubtype::Uuid,
        bytes: name.bytes().fold(7, mix).to_le_bytes().to_vec(),
    };
    doc! { "id": id }
}

/// The first transaction of a session.
#[derive(Debug)]
pub struct Transaction {
    fields: Document,
    begun: bool,
}

impl Transaction {
    /// Of the session of this name, on a database.
    #[must_use]
    pub fn new(session: &str, database: &str) -> Self {
        let fields = doc! { "lsid": lsid(session), "txnNumber": 1_i64, "autocommit": false, "$db": database };
        Self { fields, begun: false }
    }

    /// Runs a command within it; the first begins it.
    pub fn run(&mut self, connection: &mut Connection, command: &Document) -> Result<Document> {
        let mut command = command.clone();
        for (name, value) in &self.fields {
            command.entry(name.clone()).or_insert(value.clone());
        }
        if !std::mem::replace(&mut self.begun, true) {
            command.insert("startTransaction", true);
        }
        connection.command(&command)
    }

    /// Ends it, by the command of that name.
    pub fn end(&mut self, connection: &mut Connection, how: &str) -> Result<Document> {
        let mut command = doc! { how: 1 };
        command.extend(self.fields.clone());
        command.insert("$db", "admin");
        connection.command(&command)
    }
}
