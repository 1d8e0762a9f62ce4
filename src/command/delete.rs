//! The `delete` command.

use bson::raw::{RawBsonRef, RawDocument};

use super::arguments::CommandField;
use super::concerns;
use super::error::{CommandError, ErrorCode};
use super::find::checked_hint;
use super::header::CommandHeader;
use super::statement_ids::StatementIds;
use super::write_batch::{WriteBatch, missing};

/// A parsed `delete`.
#[derive(Clone, Debug)]
pub struct Delete<'a> {
    /// The statements, from the body or from a sequence, in order.
    pub statements: Vec<DeleteStatement<'a>>,
    /// Whether the first failure ends the command.
    pub ordered: bool,
    /// Whether the write is unacknowledged (`w: 0`).
    pub unacknowledged: bool,
    /// The `stmtId`s of a retryable write.
    pub statement_ids: StatementIds,
    /// The variables of the filters.
    pub let_variables: Option<&'a RawDocument>,
}

impl<'a> Delete<'a> {
    /// Parses a `delete`.
    ///
    /// # Errors
    /// An unknown field, a wrong type, no or too many statements, with mongod's codes.
    pub fn parse(header: &CommandHeader<'a>) -> Result<Self, CommandError> {
        let mut let_variables = None;
        let batch = WriteBatch::parse(header, "delete", "delete.deletes", |name, field| {
            match name {
                "let" => let_variables = field.document()?,
                // A deletion validates nothing.
                "bypassDocumentValidation" => drop(field.flag()?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let statements = batch.statements.iter();
        let statements = statements.map(|statement| DeleteStatement::parse(statement));
        let statements = statements.collect::<Result<_, _>>()?;
        concerns::check_of_write(header.body())?;
        Ok(Self {
            statements,
            ordered: batch.ordered,
            unacknowledged: batch.unacknowledged,
            statement_ids: batch.statement_ids,
            let_variables,
        })
    }
}

/// One statement of a `delete`.
#[derive(Clone, Copy, Debug)]
pub struct DeleteStatement<'a> {
    /// The filter.
    pub filter: &'a RawDocument,
    /// Whether only one matching document is deleted.
    pub one: bool,
    /// The collation.
    pub collation: Option<&'a RawDocument>,
    /// The index hint.
    pub hint: Option<RawBsonRef<'a>>,
}

impl<'a> DeleteStatement<'a> {
    /// Parses an element of `deletes`.
    ///
    /// # Errors
    /// An unknown field, one of the wrong type, or a limit that is a number other than 0 and 1,
    /// with mongod's codes.
    pub fn parse(statement: &'a RawDocument) -> Result<Self, CommandError> {
        let (mut filter, mut one, mut collation, mut hint) = (None, None, None, None);
        for field in CommandField::within("delete.deletes", statement) {
            let (name, field) = field?;
            match name {
                "q" => filter = field.document()?,
                "limit" => one = Some(is_one(field.value())?),
                "collation" => collation = field.document()?,
                "hint" => hint = Some(checked_hint(field.value())?),
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

/// mongod treats any value that is not a number as 0 (`write_ops_parsers.cpp`,
/// `readMultiDeleteProperty`).
fn is_one(limit: RawBsonRef<'_>) -> Result<bool, CommandError> {
    let number = match limit {
        RawBsonRef::Double(number) => number,
        RawBsonRef::Decimal128(number) => number.to_string().parse().unwrap_or(f64::NAN),
        RawBsonRef::Int32(number) => f64::from(number),
        #[expect(
            clippy::cast_precision_loss,
            reason = "0 and 1 are exact, and no other number becomes one of them"
        )]
        RawBsonRef::Int64(number) => number as f64,
        _ => return Ok(false),
    };
    if number == 0.0 {
        return Ok(false);
    }
    if number - 1.0 == 0.0 {
        return Ok(true);
    }
    let message = format!("The limit field in delete objects must be 0 or 1. Got {number}");
    Err(CommandError::new(ErrorCode::FailedToParse, message))
}

#[cfg(test)]
mod tests {
    use bson::raw::RawBson;
    use bson::rawdoc;

    use super::*;

    #[test]
    fn a_limit_is_exactly_0_or_1_or_no_number() {
        let one = |limit: RawBson| {
            let statement = rawdoc! { "q": {}, "limit": limit };
            DeleteStatement::parse(&statement).ok().map(|statement| statement.one)
        };
        assert_eq!(one(RawBson::Int32(0)), Some(false));
        assert_eq!(one(RawBson::Int64(1)), Some(true));
        assert_eq!(one(RawBson::Double(-0.0)), Some(false));
        for limit in [0.5, 1.5, f64::NAN, f64::INFINITY, -1.0] {
            assert_eq!(one(RawBson::Double(limit)), None, "{limit}");
        }
        assert_eq!(one(RawBson::Decimal128("0.4".parse().unwrap())), None);
        assert_eq!(one(RawBson::Decimal128("1.0".parse().unwrap())), Some(true));
        for limit in [RawBson::Null, RawBson::Boolean(true), RawBson::String("x".to_owned())] {
            assert_eq!(one(limit), Some(false));
        }
    }
}
