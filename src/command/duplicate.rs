//! mongod's error for a second document with the same `_id`, or the same key of another unique index.

use std::fmt::Write as _;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

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
    let is_only_id = key.iter().count() == 1 && error.code == ErrorCode::DuplicateKey.number();
    get(key, "_id").filter(|_| is_only_id)
}

/// A second document with a key of a unique index.
#[derive(Clone, Copy, Debug)]
pub struct DuplicateKey<'a> {
    /// The collection.
    pub namespace: Namespace<'a>,
    /// The name of the index.
    pub index: &'a str,
    /// Its key pattern.
    pub pattern: &'a RawDocument,
    /// The value of each field. `None`: unknown.
    pub value: Option<&'a RawDocument>,
}

/// The error for a second document with a key of a unique index.
#[must_use]
pub fn duplicate_key(duplicate: DuplicateKey<'_>) -> WriteError {
    let DuplicateKey {
        namespace,
        index,
        pattern,
        value,
    } = duplicate;
    let mut message = format!("E11000 duplicate key error collection: {namespace} index: {index}");
    let mut detail = single("keyPattern", pattern);
    if let Some(value) = value {
        let _ = write!(message, " dup key: {}", value_text(RawBsonRef::Document(value)));
        detail.append(cstr!("keyValue"), value);
    }
    WriteError {
        code: ErrorCode::DuplicateKey.number(),
        message,
        detail,
    }
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
