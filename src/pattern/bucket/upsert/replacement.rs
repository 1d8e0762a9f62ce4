//! The document of a replacement upsert, with its own `_id` or the filter's.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::{UpsertError, compare, equalities, with_id_first};
use crate::command::document::{get, single};
use crate::command::error::ErrorCode;
use crate::command::value_text::value_text;
use crate::pattern::bucket::item::{IdSource, with_timestamp};
use crate::pattern::bucket::update_by_id::UpdateRequest;

/// The document that mongod would insert, with empty timestamps replaced.
pub(super) fn build(
    request: UpdateRequest<'_>,
    replacement: &RawDocument,
    mint: &mut dyn IdSource,
) -> Result<RawDocumentBuf, UpsertError> {
    let demanded = equalities::id(request)?;
    let own = get(replacement, "_id");
    // mongod skips this check for a replacement without a change, and checks the `_id` at the end.
    let changes = demanded.is_none_or(|demanded| single("_id", demanded).as_bytes() != replacement.as_bytes());
    if changes && own.or(demanded).is_some_and(|id| id.as_array().is_some()) {
        return Err(found_to_be_an_array());
    }
    if let (Some(demanded), Some(own)) = (demanded, own)
        && !compare::equal(demanded, own)?
    {
        return Err(altered(own));
    }
    if replacement
        .iter()
        .flatten()
        .filter(|(name, _)| name.as_str() == "_id")
        .count()
        > 1
    {
        return Err(UpsertError::unsupported("a replacement with several `_id`s"));
    }
    let mut filled = RawDocumentBuf::new();
    for (name, value) in replacement.iter().flatten() {
        filled.append(name, with_timestamp(name.as_str(), value, mint));
    }
    with_id_first(&filled, own.or(demanded), mint)
}

/// mongod's error for an `_id` that differs from the filter's.
pub(super) fn altered(id: RawBsonRef<'_>) -> UpsertError {
    let id = value_text(id);
    let message =
        format!("After applying the update, the (immutable) field '_id' was found to have been altered to _id: {id}");
    UpsertError::mongod(ErrorCode::ImmutableField, message)
}

/// mongod's error for an `_id` that is an array.
pub(super) fn found_to_be_an_array() -> UpsertError {
    let message = "After applying the update to the document, the (immutable) field '_id' was found to be an array or \
                   array descendant.";
    UpsertError::mongod(ErrorCode::NotSingleValueField, message)
}
