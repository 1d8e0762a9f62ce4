//! mongod's error for a second document with the same `_id`.

use bson::raw::{RawBsonRef, RawDocumentBuf, cstr};

use super::document::{get, single};
use super::error::{ErrorCode, WriteError};
use super::namespace::Namespace;
use super::value_text::value_text;

/// The error of an insert with the `_id` of another document.
#[must_use]
pub fn duplicate_id(namespace: Namespace<'_>, id: RawBsonRef<'_>) -> WriteError {
    error(&format!("{namespace} index: _id_"), id)
}

/// The same error for a clustered collection, which has no index on `_id`.
#[must_use]
pub fn duplicate_id_in_clustered(namespace: Namespace<'_>, id: RawBsonRef<'_>) -> WriteError {
    error(&namespace.to_string(), id)
}

/// The `_id` in such an error.
#[must_use]
pub fn duplicate_of(error: &WriteError) -> Option<RawBsonRef<'_>> {
    let key = error.detail.get_document("keyValue").ok()?;
    get(key, "_id").filter(|_| error.code == ErrorCode::DuplicateKey.number())
}

fn error(place: &str, id: RawBsonRef<'_>) -> WriteError {
    let key = value_text(id);
    let mut detail = RawDocumentBuf::new();
    detail.append(cstr!("keyPattern"), single("_id", 1));
    detail.append(cstr!("keyValue"), single("_id", id));
    WriteError {
        code: ErrorCode::DuplicateKey.number(),
        message: format!("E11000 duplicate key error collection: {place} dup key: {{ _id: {key} }}"),
        detail,
    }
}
