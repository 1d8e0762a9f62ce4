//! mongod's errors for a statement, and what they mean for its items.

use crate::command::error::WriteError;
use crate::command::find::misses_own_index;
use crate::pattern::bucket::{index, item_index};
use crate::pattern::shapes::BucketShape;

/// What a failed statement means.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The page is not as it was known, or holds one of the `_id`s: look again.
    Miss,
    /// Another writer has begun that page: look again.
    PageTaken,
    /// Another page has that `_id`: look again, and take another name.
    NameTaken,
    /// Another page holds one of the items' `_id`s.
    Duplicate,
    /// The bucket would be too large.
    TooLarge(WriteError),
    /// The collection is not the one that was made ready: make it ready and look again.
    NotReady,
    /// Anything else.
    Final(WriteError),
}

/// Reads what mongod said of a statement.
#[must_use]
pub fn failure(shape: &BucketShape, error: WriteError) -> Failure {
    const IMMUTABLE_FIELD: i32 = 66;
    const CONVERSION_FAILURE: i32 = 241;
    const CANNOT_INDEX_PARALLEL_ARRAYS: i32 = 171;
    const DOCUMENT_VALIDATION_FAILURE: i32 = 121;
    const QUERY_PLAN_KILLED: i32 = 175;
    const COLLECTION_UUID_MISMATCH: i32 = 361;
    const BSON_OBJECT_TOO_LARGE: i32 = 10334;
    const DUPLICATE_KEY: i32 = 11000;
    const RESULT_TOO_LARGE: i32 = 17419;
    match error.code {
        // A close that misses, and a push.
        IMMUTABLE_FIELD | CONVERSION_FAILURE => Failure::Miss,
        // Frozen, dropped or replaced.
        DOCUMENT_VALIDATION_FAILURE | QUERY_PLAN_KILLED | COLLECTION_UUID_MISMATCH => Failure::NotReady,
        code if misses_own_index(code, &error.message) => Failure::NotReady,
        BSON_OBJECT_TOO_LARGE | RESULT_TOO_LARGE => Failure::TooLarge(error),
        DUPLICATE_KEY => {
            let pattern = error.detail.get_document("keyPattern").ok();
            let first = pattern.and_then(|pattern| pattern.iter().next()?.ok());
            match first.map(|(name, _)| name.as_str()) {
                Some("_id") => Failure::NameTaken,
                Some(field) if field == index::item_id_path(shape) => Failure::Duplicate,
                _ => Failure::PageTaken,
            }
        }
        // By an index of the application's; alone with it, the item has the error that it has in a naive
        // collection.
        CANNOT_INDEX_PARALLEL_ARRAYS => Failure::Final(WriteError {
            message: item_index::in_item_names(shape, &error.message),
            ..error
        }),
        _ => Failure::Final(error),
    }
}
