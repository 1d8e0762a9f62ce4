//! The `count` command.

use bson::raw::{RawBsonRef, RawDocument};

use super::arguments::Field;
use super::document::as_whole_number;
use super::error::{CommandError, ErrorCode};

/// A `count`, read against the list of fields that mongod knows.
#[derive(Clone, Debug, Default)]
pub struct Count<'a> {
    /// What to match.
    pub query: Option<&'a RawDocument>,
    /// How many matches to pass over.
    pub skip: u64,
    /// How many to count at most; 0 for all. A negative limit counts as its absolute.
    pub limit: u64,
    /// Which index.
    pub hint: Option<RawBsonRef<'a>>,
    /// How strings compare.
    pub collation: Option<&'a RawDocument>,
}

impl<'a> Count<'a> {
    /// Reads the body of a `count`.
    ///
    /// # Errors
    /// A field that `count` does not have, or one of the wrong type, with mongod's codes.
    pub fn parse(body: &'a RawDocument) -> Result<Self, CommandError> {
        let mut count = Self::default();
        for field in Field::all("count", body) {
            let (name, field) = field?;
            match name {
                "query" => count.query = field.document()?.filter(|query| !query.is_empty()),
                "skip" => count.skip = field.size()?.unwrap_or(0),
                "limit" => count.limit = limit(field.value())?.unsigned_abs(),
                "hint" => count.hint = Some(field.value()).filter(|hint| *hint != RawBsonRef::Null),
                "collation" => count.collation = field.document()?.filter(|collation| !collation.is_empty()),
                "fields" => {}
                _ => return Err(field.unknown()),
            }
        }
        Ok(count)
    }
}

/// mongod reads this field in a way of its own (`count_request.cpp`, `countParseLimit`): fractions are an error, not cut off.
fn limit(value: RawBsonRef<'_>) -> Result<i64, CommandError> {
    let number = as_whole_number(value)
        .ok_or_else(|| CommandError::new(ErrorCode::BadValue, "limit value is not a valid number"))?;
    match value {
        RawBsonRef::Double(given) if given.fract() != 0.0 => {
            let message = format!("Expected an integer: limit: {given}");
            Err(CommandError::new(ErrorCode::FailedToParse, message))
        }
        _ if number == i64::MIN => {
            let message = "limit value for count cannot be min long";
            Err(CommandError::new(ErrorCode::BadValue, message))
        }
        _ => Ok(number),
    }
}
