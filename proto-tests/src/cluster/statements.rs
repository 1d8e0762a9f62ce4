//! Fields of commands and replies.

use bson::{Bson, Document};

/// A number of any type. 0 if there is none.
pub(super) fn number(document: &Document, name: &str) -> i64 {
    match document.get(name) {
        Some(Bson::Int32(number)) => i64::from(*number),
        Some(Bson::Int64(number)) => *number,
        #[expect(clippy::cast_possible_truncation, reason = "counts and limits are small")]
        Some(Bson::Double(number)) => *number as i64,
        _ => 0,
    }
}

/// A count as servers return it: as an int if it fits.
pub(super) fn count(number: i64) -> Bson {
    i32::try_from(number).map_or(Bson::Int64(number), Bson::Int32)
}

/// Whether a flag is set, as a boolean or a number.
pub(super) fn is_set(document: &Document, name: &str) -> bool {
    document.get_bool(name).unwrap_or_else(|_| number(document, name) != 0)
}

/// Whether a reply is `ok: 1`.
pub(super) fn is_ok(reply: &Document) -> bool {
    is_set(reply, "ok")
}

/// The documents of an array.
pub(super) fn documents(document: &Document, name: &str) -> Vec<Document> {
    let values = document.get_array(name).map(Vec::as_slice).unwrap_or_default();
    values.iter().filter_map(|value| value.as_document().cloned()).collect()
}

/// An embedded document. An empty one if there is none.
pub(super) fn document(outer: &Document, name: &str) -> Document {
    outer.get_document(name).cloned().unwrap_or_default()
}

/// The name of a command: its first field.
pub(super) fn name(command: &Document) -> &str {
    command.keys().next().map_or("", String::as_str)
}

/// The database of a command.
pub(super) fn database(command: &Document) -> &str {
    command.get_str("$db").unwrap_or("")
}

/// The namespace that the first field names. `None`: it names no collection.
pub(super) fn namespace(command: &Document) -> Option<String> {
    let collection = command.get_str(name(command)).ok()?;
    Some(format!("{}.{collection}", database(command)))
}

/// The session of a command.
pub(super) fn session_id(command: &Document) -> Option<Vec<u8>> {
    match command.get_document("lsid").ok()?.get("id") {
        Some(Bson::Binary(id)) => Some(id.bytes.clone()),
        _ => None,
    }
}

/// Copies the database, and the fields that name the session, the transaction and the API version.
pub(super) fn copy_session(from: &Document, to: &mut Document) {
    let api = ["apiVersion", "apiStrict", "apiDeprecationErrors"];
    for name in ["lsid", "txnNumber", "autocommit", "$db"].into_iter().chain(api) {
        if let Some(value) = from.get(name) {
            to.insert(name, value.clone());
        }
    }
}

/// The command without these fields.
pub(super) fn without(command: &Document, names: &[&str]) -> Document {
    let kept = command.iter().filter(|(name, _)| !names.contains(&name.as_str()));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}
