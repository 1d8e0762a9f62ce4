//! The `findAndModify` command.

use bson::raw::{RawArray, RawBsonRef, RawDocument};

use super::arguments::CommandField;
use super::concerns;
use super::error::{CommandError, ErrorCode};
use super::find::checked_hint;

/// A `findAndModify`, read against the list of fields that mongod knows.
#[derive(Clone, Debug, Default)]
pub struct FindAndModify<'a> {
    /// What to match; `None` matches all.
    pub filter: Option<&'a RawDocument>,
    /// Operators or a replacement, or a pipeline.
    pub change: Option<RawBsonRef<'a>>,
    /// Whether what is found is removed.
    pub remove: bool,
    /// Whether the document is answered as it has become.
    pub new: bool,
    /// Whether one is made where none matches.
    pub upsert: bool,
    /// Which fields are answered.
    pub projection: Option<&'a RawDocument>,
    /// Which of those that match.
    pub sort: Option<&'a RawDocument>,
    /// How strings compare.
    pub collation: Option<&'a RawDocument>,
    /// Which elements `$[identifier]` means.
    pub array_filters: Option<&'a RawArray>,
    /// Which index.
    pub hint: Option<RawBsonRef<'a>>,
    /// The variables that the filter and a pipeline may name.
    pub let_variables: Option<&'a RawDocument>,
    /// By what mongod remembers a retryable write.
    pub statement_id: Option<i32>,
}

impl<'a> FindAndModify<'a> {
    /// Reads the body of a `findAndModify`.
    ///
    /// # Errors
    /// A field that it does not have, one of the wrong type, or fields that contradict each other, with
    /// mongod's codes.
    pub fn parse(body: &'a RawDocument) -> Result<Self, CommandError> {
        let mut command = Self::default();
        for field in CommandField::all("findAndModify", body) {
            let (name, field) = field?;
            match name {
                "query" => command.filter = field.document()?,
                "update" => command.change = Some(field.value()),
                "remove" => command.remove = field.flag()?,
                "new" => command.new = field.flag()?,
                "upsert" => command.upsert = field.flag()?,
                "fields" => command.projection = field.document()?,
                "sort" => command.sort = field.document()?,
                "collation" => command.collation = field.document()?.filter(|collation| !collation.is_empty()),
                "arrayFilters" => command.array_filters = field.array()?,
                "hint" => command.hint = Some(checked_hint(field.value())?),
                // No validator is the application's.
                "bypassDocumentValidation" => drop(field.flag()?),
                "let" => command.let_variables = field.document()?,
                "stmtId" => command.statement_id = Some(field.statement_id()?),
                _ => return Err(field.unknown()),
            }
        }
        command.check()?;
        concerns::check_of_write(body)?;
        Ok(command)
    }

    fn check(&self) -> Result<(), CommandError> {
        let contradiction = match (self.change.is_some(), self.remove) {
            (true, true) => Some("Cannot specify both an update and remove=true"),
            (false, false) => Some("Either an update or remove=true must be specified"),
            (_, true) if self.upsert => Some("Cannot specify both upsert=true and remove=true"),
            (_, true) if self.new => {
                Some("Cannot specify both new=true and remove=true; 'remove' always returns the deleted document")
            }
            (_, true) if self.array_filters.is_some() => Some("Cannot specify arrayFilters and remove=true"),
            _ => None,
        };
        match contradiction {
            Some(message) => Err(CommandError::new(ErrorCode::FailedToParse, message)),
            None => Ok(()),
        }
    }
}
