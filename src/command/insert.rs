//! The `insert` command.

use bson::raw::RawDocument;

use super::concerns;
use super::error::CommandError;
use super::header::CommandHeader;
use super::statement_ids::StatementIds;
use super::write_batch::WriteBatch;

/// A parsed `insert`.
#[derive(Clone, Debug)]
pub struct Insert<'a> {
    /// The documents, from the body or from a sequence, in order.
    pub documents: Vec<&'a RawDocument>,
    /// Whether the first failure ends the command.
    pub ordered: bool,
    /// Whether the write is unacknowledged (`w: 0`).
    pub unacknowledged: bool,
    statement_ids: StatementIds,
}

impl<'a> Insert<'a> {
    /// Parses an `insert`.
    ///
    /// # Errors
    /// A field that `insert` does not have, one of the wrong type, no or too many documents, with
    /// mongod's codes.
    pub fn parse(head: &CommandHeader<'a>) -> Result<Self, CommandError> {
        let batch = WriteBatch::parse(head, "insert", "insert.documents", |name, field| {
            match name {
                // The application has no validator.
                "bypassDocumentValidation" => drop(field.flag()?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        concerns::check_of_write(head.body())?;
        Ok(Self {
            documents: batch.statements,
            ordered: batch.ordered,
            unacknowledged: batch.unacknowledged,
            statement_ids: batch.statement_ids,
        })
    }

    /// The `stmtId` of document number `index` in a retryable write.
    #[must_use]
    pub fn statement_id(&self, index: usize) -> i32 {
        self.statement_ids.of(index)
    }
}
