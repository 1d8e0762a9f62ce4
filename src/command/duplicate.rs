//! mongod's error for a second document with an `_id` that is taken.

use bson::raw::{RawBsonRef, RawDocumentBuf, cstr};

use super::document::single;
use super::error::{ErrorCode, WriteError};
use super::namespace::Namespace;
use super::value_text::value_text;

/// The error of an insert whose `_id` another document of the namespace has.
#[must_use]
pub fn duplicate_id(namespace: Namespace<'_>, id: RawBsonRef<'_>) -> WriteError {
    let key = value_text(id);
    let mut detail = RawDocumentBuf::new();
    detail.append(cstr!("keyPattern"), single("_id", 1));
    detail.append(cstr!("keyValue"), single("_id", id));
    let message = format!("E11000 duplicate key error collection: {namespace} index: _id_ dup key: {{ _id: {key} }}");
    WriteError {
        code: ErrorCode::DuplicateKey.number(),
        message,
        detail,
    }
}
