//! The `delete` command.

use bson::raw::{RawBsonRef, RawDocument};

use super::arguments::Field;
use super::document::as_whole_number;
use super::error::{CommandError, ErrorCode};
use super::write_batch::missing;

/// One statement of a `delete`.
#[derive(Clone, Copy, Debug)]
pub struct DeleteStatement<'a> {
    /// What to match.
    pub filter: &'a RawDocument,
    /// Whether one alone of those that match is deleted.
    pub one: bool,
    /// How strings compare.
    pub collation: Option<&'a RawDocument>,
    /// Which index.
    pub hint: Option<RawBsonRef<'a>>,
}

impl<'a> DeleteStatement<'a> {
    /// Reads an element of `deletes`.
    ///
    /// # Errors
    /// A field that it does not have, one of the wrong type, or a limit that is neither 0 nor 1, with mongod's codes.
    pub fn parse(statement: &'a RawDocument) -> Result<Self, CommandError> {
        let (mut filter, mut one, mut collation, mut hint) = (None, None, None, None);
        for field in Field::within("delete.deletes", statement) {
            let (name, field) = field?;
            match name {
                "q" => filter = field.document()?,
                "limit" => one = Some(is_one(field.value())?),
                "collation" => collation = field.document()?,
                "hint" => hint = Some(field.value()),
                _ => return Err(field.unknown()),
            }
        }
        Ok(Self {
            filter: filter.ok_or_else(|| missing("delete.deletes.q"))?,
            one: one.ok_or_else(|| missing("delete.deletes.limit"))?,
            collation: collation.filter(|collation| !collation.is_empty()),
            hint,
        })
    }
}

fn is_one(limit: RawBsonRef<'_>) -> Result<bool, CommandError> {
    match as_whole_number(limit) {
        Some(0) => Ok(false),
        Some(1) => Ok(true),
        _ => {
            let message = "The limit field in delete objects must be 0 or 1. Got a different value";
            Err(CommandError::new(ErrorCode::FailedToParse, message))
        }
    }
}
