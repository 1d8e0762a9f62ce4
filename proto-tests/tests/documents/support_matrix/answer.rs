//! The fields of a reply that are comparable between two servers.

use std::fmt;

use anyhow::Result;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use proto_tests::replies::without_uuids;
use proto_tests::sides::{Pattern, Sides};

/// What every answer has for the drivers alone, or what no two cursors have in common.
const OF_SERVER: [&str; 5] = ["$clusterTime", "operationTime", "electionId", "opTime", "commitQuorum"];

/// A reply without what is a server's or a database's own.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer(Document);

impl Answer {
    /// Its error's code, also that of a first write error; `None`: it succeeded.
    pub(crate) fn code(&self) -> Option<i32> {
        let of_statement = || {
            let errors = self.0.get_array("writeErrors").ok()?;
            errors.first()?.as_document()?.get_i32("code").ok()
        };
        // Some of mongod's errors have none.
        let without = || self.is_error().then_some(0);
        self.0.get_i32("code").ok().or_else(of_statement).or_else(without)
    }

    /// Whether nothing has been done.
    pub(crate) fn is_error(&self) -> bool {
        self.0.get("ok").and_then(Bson::as_f64) != Some(1.0)
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The cursors of both sides that were last opened.
pub(crate) type Cursors = [i64; 2];

/// What both sides answer. A cursor 0 is the one that was last opened.
pub(crate) fn of_both<P: Pattern>(
    sides: &mut Sides<P>,
    command: &Document,
    cursors: &mut Cursors,
) -> Result<[Answer; 2]> {
    let databases = [
        (sides.plain_database(), cursors[0]),
        (sides.shaped_database(), cursors[1]),
    ];
    let [of_plain, of_shaped] = databases.map(|(database, cursor)| (prepared(command, &database, cursor), database));
    let plain = sides.plain.command(&of_plain.0)?;
    let shaped = sides.shaped.command(&of_shaped.0)?;
    *cursors = [&plain, &shaped].map(cursor);
    Ok([comparable(&plain, &of_plain.1), comparable(&shaped, &of_shaped.1)])
}

/// The cursor that a reply opens; 0: none.
pub(crate) fn cursor(reply: &Document) -> i64 {
    let cursor = reply.get_document("cursor");
    cursor.and_then(|cursor| cursor.get_i64("id")).unwrap_or_default()
}

/// The command as it is sent to a database. A cursor 0 is `cursor`.
pub(crate) fn prepared(command: &Document, database: &str, cursor: i64) -> Document {
    let mut command = with_database(command, database);
    if command.get_i64("getMore").is_ok_and(|id| id == 0) {
        command.insert("getMore", cursor);
    }
    if !command.contains_key("$db") {
        command.insert("$db", database);
    }
    if command.contains_key("lsid") {
        command.insert("lsid", session(database));
    }
    command
}

/// A session of a database's own.
fn session(database: &str) -> Document {
    let mut bytes: Vec<u8> = database.bytes().rev().take(16).collect();
    bytes.resize(16, 0);
    let id = Binary {
        subtype: BinarySubtype::Uuid,
        bytes,
    };
    doc! { "id": id }
}

/// The command with the database's name for `DATABASE`.
fn with_database(command: &Document, database: &str) -> Document {
    let in_place = |value: &Bson| replaced(value, "DATABASE", database);
    command
        .iter()
        .map(|(name, value)| (name.clone(), in_place(value)))
        .collect()
}

fn comparable(reply: &Document, database: &str) -> Answer {
    let fields = reply.iter().filter(|(name, _)| !OF_SERVER.contains(&name.as_str()));
    Answer(
        fields
            .map(|(name, value)| (name.clone(), replaced(value, database, "DATABASE")))
            .collect(),
    )
}

fn replaced(value: &Bson, from: &str, to: &str) -> Bson {
    match value {
        Bson::String(text) => Bson::String(without_uuids(text).replace(from, to)),
        Bson::Document(document) => Bson::Document(
            document
                .iter()
                // When a snapshot was taken.
                .filter(|(name, _)| *name != "atClusterTime")
                .map(|(name, value)| {
                    // No two cursors have the same.
                    let is_cursor = name == "id" && matches!(value, Bson::Int64(id) if *id != 0);
                    let value = if is_cursor {
                        Bson::Int64(1)
                    } else {
                        replaced(value, from, to)
                    };
                    (name.clone(), value)
                })
                .collect(),
        ),
        Bson::Array(array) => Bson::Array(array.iter().map(|value| replaced(value, from, to)).collect()),
        other => other.clone(),
    }
}
