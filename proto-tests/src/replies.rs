//! Whether a reply is an error, and its fields that are comparable between servers or databases.

use anyhow::{Result, ensure};
use bson::raw::{RawBson, RawDocumentBuf};
use bson::{Bson, Document};

/// The fields of the replies to writes whose values do not depend on the server.
pub const WRITE_RESULTS: [&str; 8] = [
    "n",
    "nModified",
    "upserted",
    "value",
    "lastErrorObject",
    "writeErrors",
    "ok",
    "code",
];

/// The reply, of a command that succeeded.
///
/// # Errors
/// The server's error.
pub fn succeeded(reply: Document) -> Result<Document> {
    ensure!(
        reply.get_f64("ok").is_ok_and(|ok| ok > 0.0),
        "the server refused: {reply}"
    );
    Ok(reply)
}

/// A message without the values of UUIDs. From 7.0 on, mongod's error for a collection that exists has its UUID.
#[must_use]
pub fn without_uuids(text: &str) -> String {
    const BEGIN: &str = "UUID(\"";
    let mut parts = text.split(BEGIN);
    let mut without = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (_, after) = part.split_once('"').unwrap_or_default();
        without += BEGIN;
        without.push('"');
        without += after;
    }
    without
}

/// The same reply. From 6.0.27 on, mongod has names for two codes that had none, an unknown field and a missing one.
/// The proxy has these names.
#[must_use]
pub fn with_later_name(reply: RawDocumentBuf) -> RawDocumentBuf {
    let later = match reply.get_str("codeName") {
        Ok("Location40414") => "IDLFailedToParse",
        Ok("Location40415") => "IDLUnknownField",
        _ => return reply,
    };
    let fields = reply.iter().flatten();
    let named = fields.map(|(name, value)| match name.as_str() {
        "codeName" => (name, RawBson::from(later.to_owned())),
        _ => (name, value.into()),
    });
    named.collect()
}

/// The code of a reply's first error, also of a write error. 0 without one.
#[must_use]
pub fn first_code(reply: &Document) -> i32 {
    let errors = reply.get_array("writeErrors").map(Vec::as_slice).unwrap_or_default();
    let error = errors.first().and_then(Bson::as_document).unwrap_or(reply);
    error.get_i32("code").unwrap_or(0)
}

/// The fields of these names, in the reply's order, without the database's name in the texts of `writeErrors`.
#[must_use]
pub fn comparable(reply: &Document, names: &[&str], database: &str) -> Document {
    let fields = reply.iter().filter(|(name, _)| names.contains(&name.as_str()));
    let mut comparable: Document = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
    for error in comparable.get_array_mut("writeErrors").into_iter().flatten() {
        if let Some(error) = error.as_document_mut() {
            let text = error.get_str("errmsg").unwrap_or_default();
            let text = text.replace(database, "DATABASE");
            error.insert("errmsg", text);
        }
    }
    comparable
}
