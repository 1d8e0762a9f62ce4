//! The `update` command.

use bson::raw::{RawArray, RawBsonRef, RawDocument};

use super::arguments::Field;
use super::error::{CommandError, ErrorCode};
use super::head::Head;
use super::insert::MAX_WRITE_BATCH_SIZE;
use super::statement_ids::StatementIds;

/// An `update`, read against the list of fields that mongod knows.
#[derive(Clone, Debug)]
pub struct Update<'a> {
    /// Its statements, from the body or from a sequence, in order.
    pub statements: Vec<UpdateStatement<'a>>,
    /// Whether the first failure ends it.
    pub ordered: bool,
    /// Given only when the client gave it.
    pub bypass_document_validation: Option<bool>,
    /// By what mongod remembers the statements of a retryable write.
    pub statement_ids: StatementIds,
    /// The variables that filters and pipelines may name.
    pub let_variables: Option<&'a RawDocument>,
}

/// One statement of an `update`.
#[derive(Clone, Copy, Debug)]
pub struct UpdateStatement<'a> {
    /// What to match.
    pub filter: &'a RawDocument,
    /// Operators or a replacement, or a pipeline.
    pub change: RawBsonRef<'a>,
    /// Whether all that match are changed.
    pub multi: bool,
    /// Whether one is made where none matches.
    pub upsert: bool,
    /// How strings compare.
    pub collation: Option<&'a RawDocument>,
    /// Which elements `$[identifier]` means.
    pub array_filters: Option<&'a RawArray>,
    /// Which index.
    pub hint: Option<RawBsonRef<'a>>,
    /// Values that the filter and a pipeline may name as variables, taken as they are.
    pub constants: Option<&'a RawDocument>,
}

impl<'a> Update<'a> {
    /// Reads an `update`.
    ///
    /// # Errors
    /// A field that `update` does not have, one of the wrong type, no or too many statements, with mongod's codes.
    pub fn parse(head: &Head<'a>) -> Result<Self, CommandError> {
        let mut update = Self {
            statements: Vec::new(),
            ordered: true,
            bypass_document_validation: None,
            statement_ids: StatementIds::default(),
            let_variables: None,
        };
        let mut given = false;
        for field in Field::all("update", head.body()) {
            let (name, field) = field?;
            match name {
                "updates" => {
                    given = true;
                    for element in field.array()?.into_iter().flatten() {
                        let element = element.map_err(|error| CommandError::invalid_bson(&error.to_string()))?;
                        let kind = super::document::type_name(element);
                        let wrong = || CommandError::wrong_type("update.updates", kind, "object");
                        let statement = element.as_document().ok_or_else(wrong)?;
                        update.statements.push(UpdateStatement::parse(statement)?);
                    }
                }
                "ordered" => update.ordered = field.flag()?,
                "bypassDocumentValidation" => update.bypass_document_validation = Some(field.flag()?),
                "let" => update.let_variables = field.document()?,
                "stmtId" => update.statement_ids = StatementIds::From(field.statement_id()?),
                "stmtIds" => update.statement_ids = StatementIds::Given(field.statement_ids()?),
                _ => return Err(field.unknown()),
            }
        }
        for sequence in &head.message.sequences {
            if sequence.identifier != "updates" {
                return Err(CommandError::unknown_field("update", sequence.identifier));
            }
            if std::mem::replace(&mut given, true) {
                return Err(CommandError::new(ErrorCode::BadValue, "update.updates is given twice"));
            }
            for statement in sequence.documents() {
                let statement = statement.map_err(|error| CommandError::invalid_bson(&error.to_string()))?;
                update.statements.push(UpdateStatement::parse(statement)?);
            }
        }
        if !given {
            return Err(missing("update.updates"));
        }
        let count = update.statements.len();
        if !(1..=MAX_WRITE_BATCH_SIZE).contains(&count) {
            let message =
                format!("Write batch sizes must be between 1 and {MAX_WRITE_BATCH_SIZE}. Got {count} operations.");
            return Err(CommandError::new(ErrorCode::InvalidLength, message));
        }
        update.statement_ids.check("update", count)?;
        Ok(update)
    }
}

impl<'a> UpdateStatement<'a> {
    fn parse(statement: &'a RawDocument) -> Result<Self, CommandError> {
        let (mut filter, mut change) = (None, None);
        let (mut multi, mut upsert) = (false, false);
        let (mut collation, mut array_filters, mut hint, mut constants) = (None, None, None, None);
        for field in Field::within("update.updates", statement) {
            let (name, field) = field?;
            match name {
                "q" => filter = field.document()?,
                "u" => change = Some(field.value()),
                "multi" => multi = field.flag()?,
                "upsert" => upsert = field.flag()?,
                "collation" => collation = field.document()?,
                "arrayFilters" => array_filters = field.array()?,
                "hint" => hint = Some(field.value()),
                "c" => constants = field.document()?,
                _ => return Err(field.unknown()),
            }
        }
        Ok(Self {
            filter: filter.ok_or_else(|| missing("update.updates.q"))?,
            change: change.ok_or_else(|| missing("update.updates.u"))?,
            multi,
            upsert,
            collation: collation.filter(|collation| !collation.is_empty()),
            array_filters,
            hint,
            constants,
        })
    }
}

fn missing(field: &str) -> CommandError {
    let message = format!("BSON field '{field}' is missing but a required field");
    CommandError::new(ErrorCode::MissingField, message)
}
