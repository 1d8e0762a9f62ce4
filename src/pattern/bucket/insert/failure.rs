//! Classifies mongod's errors for a statement of an insert.

use crate::command::error::WriteError;
use crate::command::find::misses_own_index;
use crate::pattern::bucket::freeze::is_refused_by_freeze;
use crate::pattern::bucket::layout::path;
use crate::pattern::bucket::unique_index::{Violation, violation};
use crate::pattern::bucket::validator::is_invalid;
use crate::pattern::bucket::{index, item_index};
use crate::pattern::shapes::BucketShape;

/// The class of a statement's failure.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The page is not in the assumed state, or holds one of the `_id`s: look the page up again.
    Miss,
    /// Another writer began the page: look the page up again.
    PageTaken,
    /// Another page has the `_id`: look the page up again, and use another name.
    NameTaken,
    /// Another page holds one of the items' `_id`s.
    Duplicate,
    /// Items would have equal values in a unique index of the application.
    Violation {
        /// What mongod reports.
        violation: Violation,
        /// mongod's error.
        error: WriteError,
    },
    /// An item would not satisfy the validator of the application. mongod's error for the page.
    Invalid(WriteError),
    /// The bucket would be too large.
    TooLarge(WriteError),
    /// An index of the application cannot contain the item beside the other items of the page.
    Incompatible(WriteError),
    /// The collection is not the one that was checked: check the collection and look the page up
    /// again.
    NotReady,
    /// Any other error.
    Final(WriteError),
}

fn violated(error: WriteError) -> Failure {
    match violation(&error.detail) {
        Some(violation) => Failure::Violation { violation, error },
        None => Failure::Final(error),
    }
}

/// Whether mongod's error with this code reports a document that would be too large.
#[must_use]
pub fn is_too_large(code: i32) -> bool {
    const BSON_OBJECT_TOO_LARGE: i32 = 10334;
    const RESULT_TOO_LARGE: i32 = 17419;
    matches!(code, BSON_OBJECT_TOO_LARGE | RESULT_TOO_LARGE)
}

/// Classifies mongod's error for a statement.
#[must_use]
pub fn failure(shape: &BucketShape, error: WriteError) -> Failure {
    const BAD_VALUE: i32 = 2;
    const PATH_NOT_VIABLE: i32 = 28;
    const IMMUTABLE_FIELD: i32 = 66;
    const CONVERSION_FAILURE: i32 = 241;
    const CANNOT_INDEX_PARALLEL_ARRAYS: i32 = 171;
    const DOCUMENT_VALIDATION_FAILURE: i32 = 121;
    const QUERY_PLAN_KILLED: i32 = 175;
    const COLLECTION_UUID_MISMATCH: i32 = 361;
    const DUPLICATE_KEY: i32 = 11000;
    match error.code {
        // A close misses with the first error, a push with the second, and a push at a revision with the others.
        IMMUTABLE_FIELD | CONVERSION_FAILURE => Failure::Miss,
        BAD_VALUE if error.message.starts_with("Failed to apply $inc operations") => Failure::Miss,
        PATH_NOT_VIABLE if error.message.contains("{revision: 0}") => Failure::Miss,
        DOCUMENT_VALIDATION_FAILURE if is_refused_by_freeze(&error.detail) => Failure::NotReady,
        DOCUMENT_VALIDATION_FAILURE if is_invalid(&error.detail) => Failure::Invalid(error),
        DOCUMENT_VALIDATION_FAILURE => violated(error),
        // The collection is dropped or replaced.
        QUERY_PLAN_KILLED | COLLECTION_UUID_MISMATCH => Failure::NotReady,
        code if misses_own_index(code, &error.message) => Failure::NotReady,
        code if is_too_large(code) => Failure::TooLarge(error),
        DUPLICATE_KEY => {
            let pattern = error.detail.get_document("keyPattern").ok();
            let last = pattern.and_then(|pattern| pattern.iter().last()?.ok());
            match (last.map(|(name, _)| name.as_str()), pattern) {
                (Some("_id"), _) => Failure::NameTaken,
                (Some(path::PAGE), _) => Failure::PageTaken,
                (_, Some(pattern)) if index::is_item_id_key(shape, pattern) => Failure::Duplicate,
                _ => violated(error),
            }
        }
        // An index of the application failed. With one item in the statement, the error is the one
        // that the item has in a plain collection.
        CANNOT_INDEX_PARALLEL_ARRAYS => Failure::Final(WriteError {
            message: item_index::in_item_names(shape, &error.message),
            ..error
        }),
        _ => match item_index::location_error(&error.message) {
            Some(location) => {
                let message = location.message;
                let error = WriteError { message, ..error };
                if location.may_be_empty {
                    Failure::Incompatible(error)
                } else {
                    Failure::Final(error)
                }
            }
            None => Failure::Final(error),
        },
    }
}
