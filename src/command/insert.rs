//! The `insert` command.

use bson::raw::{RawBsonRef, RawDocument};

use super::arguments::{Field, is_unacknowledged};
use super::document::get;
use super::error::{CommandError, ErrorCode};
use super::head::Head;
use super::statement_ids::StatementIds;

/// The most documents one command may carry: hello's `maxWriteBatchSize`.
pub const MAX_WRITE_BATCH_SIZE: usize = 100_000;

/// An `insert`, read against the list of fields that mongod knows.
#[derive(Clone, Debug)]
pub struct Insert<'a> {
    /// The documents, from the body or from a sequence, in order.
    pub documents: Vec<&'a RawDocument>,
    /// Whether the first failure ends it.
    pub ordered: bool,
    /// Whether the client asked for no acknowledgement (`w: 0`).
    pub unacknowledged: bool,
    statement_ids: StatementIds,
}

impl<'a> Insert<'a> {
    /// Reads an `insert`.
    ///
    /// # Errors
    /// A field that `insert` does not have, one of the wrong type, no or too many documents, with mongod's codes.
    pub fn parse(head: &Head<'a>) -> Result<Self, CommandError> {
        let unacknowledged = get(head.body(), "writeConcern").is_some_and(is_unacknowledged);
        let mut insert = Self {
            documents: Vec::new(),
            ordered: true,
            unacknowledged,
            statement_ids: StatementIds::From(0),
        };
        let mut given = false;
        for field in Field::all("insert", head.body()) {
            let (name, field) = field?;
            match name {
                "documents" => {
                    given = true;
                    insert.documents = documents(field.value())?;
                }
                "ordered" => insert.ordered = field.flag()?,
                // No validator is the application's.
                "bypassDocumentValidation" => drop(field.flag()?),
                "stmtId" => insert.statement_ids = StatementIds::From(field.statement_id()?),
                "stmtIds" => insert.statement_ids = StatementIds::Given(field.statement_ids()?),
                _ => return Err(field.unknown()),
            }
        }
        for sequence in &head.message.sequences {
            if sequence.identifier != "documents" {
                return Err(CommandError::unknown_field("insert", sequence.identifier));
            }
            if std::mem::replace(&mut given, true) {
                return Err(CommandError::new(
                    ErrorCode::BadValue,
                    "insert.documents is given twice",
                ));
            }
            let documents: Result<Vec<_>, _> = sequence.documents().collect();
            insert.documents = documents.map_err(|error| CommandError::invalid_bson(&error.to_string()))?;
        }
        if !given {
            let message = "BSON field 'insert.documents' is missing but a required field";
            return Err(CommandError::new(ErrorCode::MissingField, message));
        }
        insert.check_length()?;
        insert.statement_ids.check("insert", insert.documents.len())?;
        Ok(insert)
    }

    /// What mongod remembers the document number `index` as having been stored by, in a retryable write.
    #[must_use]
    pub fn statement_id(&self, index: usize) -> i32 {
        self.statement_ids.of(index)
    }

    fn check_length(&self) -> Result<(), CommandError> {
        let count = self.documents.len();
        if (1..=MAX_WRITE_BATCH_SIZE).contains(&count) {
            return Ok(());
        }
        let message =
            format!("Write batch sizes must be between 1 and {MAX_WRITE_BATCH_SIZE}. Got {count} operations.");
        Err(CommandError::new(ErrorCode::InvalidLength, message))
    }
}

fn documents(value: RawBsonRef<'_>) -> Result<Vec<&RawDocument>, CommandError> {
    let wrong = |value| CommandError::wrong_type("insert.documents", super::document::type_name(value), "array");
    let RawBsonRef::Array(array) = value else {
        return Err(wrong(value));
    };
    array
        .into_iter()
        .map(|element| {
            let element = element.map_err(|error| CommandError::invalid_bson(&error.to_string()))?;
            element.as_document().ok_or_else(|| wrong(element))
        })
        .collect()
}
