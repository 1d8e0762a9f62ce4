//! Translates `$rename`, which mongod does not support inside arrays, to `$set` and `$unset`.

use bson::raw::{RawBson, RawBsonRef, RawDocument};

use crate::command::document::get;
use crate::pattern::unsupported::Unsupported;

/// The effect of a `$rename` on an item.
pub(super) enum RenameEffect {
    /// None: the field does not exist.
    Nothing,
    /// The new field gets this value.
    To(RawBson),
}

/// Computes the effect of a `$rename` on an item.
///
/// # Errors
/// A path through a value that is not a document. mongod refuses such paths with various messages.
pub(super) fn renamed(item: &RawDocument, from: &str, to: &str) -> Result<RenameEffect, Unsupported> {
    let Some(value) = at(item, from)? else {
        return Ok(RenameEffect::Nothing);
    };
    at(item, to)?;
    Ok(RenameEffect::To(value.into()))
}

fn at<'a>(item: &'a RawDocument, path: &str) -> Result<Option<RawBsonRef<'a>>, Unsupported> {
    let mut document = item;
    let mut parts = path.split('.').peekable();
    while let Some(part) = parts.next() {
        let Some(value) = get(document, part) else {
            return Ok(None);
        };
        if parts.peek().is_none() {
            return Ok(Some(value));
        }
        document = match value {
            RawBsonRef::Document(inner) => inner,
            _ => return Err(format!("$rename of the path '{path}' through a value that is not a document").into()),
        };
    }
    Ok(None)
}
