//! What mongod says of a statement that failed, and what it means for the item.

use bson::raw::RawDocumentBuf;

use crate::command::document::single;
use crate::command::error::WriteError;
use crate::pattern::bucket::index;
use crate::pattern::shapes::BucketShape;

/// What a failed statement means.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The page is not as it was known: look again.
    Miss,
    /// Another page has that `_id`: look again, and take another name.
    NameTaken,
    /// The collection is not the one that was made ready: make it ready and look again.
    NotReady,
    /// The application's own error.
    Final(WriteError),
}

/// Reads what mongod said of a statement.
#[must_use]
pub fn failure(shape: &BucketShape, error: WriteError) -> Failure {
    const BAD_VALUE: i32 = 2;
    const IMMUTABLE_FIELD: i32 = 66;
    const COLLECTION_UUID_MISMATCH: i32 = 361;
    const DUPLICATE_KEY: i32 = 11000;
    match error.code {
        IMMUTABLE_FIELD => Failure::Miss,
        COLLECTION_UUID_MISMATCH => Failure::NotReady,
        BAD_VALUE
            if error
                .message
                .contains("hint provided does not correspond to an existing index") =>
        {
            Failure::NotReady
        }
        DUPLICATE_KEY => {
            let pattern = error.detail.get_document("keyPattern").ok();
            match pattern
                .and_then(|pattern| pattern.iter().next()?.ok())
                .map(|(name, _)| name.as_str())
            {
                Some("_id") => Failure::NameTaken,
                Some(field) if field == index::item_id_path(shape) => Failure::Final(as_naive_duplicate(shape, &error)),
                _ => Failure::Miss,
            }
        }
        _ => Failure::Final(error),
    }
}

/// A duplicate in the items' index, told as the naive collection's index on `_id` would.
fn as_naive_duplicate(shape: &BucketShape, error: &WriteError) -> WriteError {
    let path = index::item_id_path(shape);
    let message = error
        .message
        .replacen(&format!("index: {}", index::ITEM_ID), "index: _id_", 1)
        .replacen(&format!("dup key: {{ {path}:"), "dup key: { _id:", 1);
    let mut detail = RawDocumentBuf::new();
    for (name, value) in error.detail.iter().flatten() {
        match (
            name.as_str(),
            value
                .as_document()
                .and_then(|document| document.get(&path).ok().flatten()),
        ) {
            ("keyPattern" | "keyValue", Some(value)) => detail.append(name, single("_id", value)),
            _ => detail.append(name, value),
        }
    }
    WriteError {
        code: error.code,
        message,
        detail,
    }
}
