//! `getMore` and `killCursors`: commands about a cursor that is there.

use bson::raw::{RawBsonRef, RawDocument};

use super::document::{as_whole_number, get};
use super::error::{CommandError, ErrorCode};

/// The cursor that a `getMore` names.
///
/// # Errors
/// A `getMore` whose cursor is no number.
pub fn get_more_id(body: &RawDocument) -> Result<i64, CommandError> {
    get(body, "getMore")
        .and_then(as_whole_number)
        .ok_or_else(|| CommandError::wrong_type("getMore.getMore", "other", "long"))
}

/// The cursors that a `killCursors` names.
///
/// # Errors
/// A list that is missing or no list of numbers.
pub fn killed_ids(body: &RawDocument) -> Result<Vec<i64>, CommandError> {
    let Some(RawBsonRef::Array(ids)) = get(body, "cursors") else {
        let message = "BSON field 'killCursors.cursors' is missing but a required field";
        return Err(CommandError::new(ErrorCode::MissingField, message));
    };
    ids.into_iter()
        .map(|id| {
            let id = id.map_err(|error| CommandError::invalid_bson(&error.to_string()))?;
            as_whole_number(id).ok_or_else(|| CommandError::wrong_type("killCursors.cursors.0", "other", "long"))
        })
        .collect()
}

/// mongod's answer for a cursor that is not there.
#[must_use]
pub fn not_found(id: i64) -> CommandError {
    CommandError::new(ErrorCode::CursorNotFound, format!("cursor id {id} not found"))
}
