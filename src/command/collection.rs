//! `create`: which options a command gives a new collection.

use bson::raw::RawDocument;

use super::arguments::Field;
use super::error::CommandError;

/// The options of a `create` that are not everybody's, such as `capped` or `validator`.
///
/// # Errors
/// Bytes that are no BSON.
pub fn create_options(body: &RawDocument) -> Result<Vec<&str>, CommandError> {
    Field::all("create", body)
        .map(|field| field.map(|(name, _)| name))
        .collect()
}
