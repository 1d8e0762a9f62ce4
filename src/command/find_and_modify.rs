//! The `findAndModify` command.

use bson::raw::{RawArray, RawBsonRef, RawDocument};

use super::arguments::CommandField;
use super::concerns;
use super::error::{CommandError, ErrorCode};
use super::find::checked_hint;
use super::update::checked_change;

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
                "update" => command.change = Some(checked_change(field.value())?),
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
            (true, true) => Some(Contradiction::UpdateAndRemove),
            (false, false) => Some(Contradiction::Neither),
            (_, true) if self.upsert => Some(Contradiction::UpsertAndRemove),
            (_, true) if self.new => Some(Contradiction::NewAndRemove),
            (_, true) if self.array_filters.is_some() => Some(Contradiction::ArrayFiltersAndRemove),
            _ => None,
        };
        match contradiction {
            Some(contradiction) => Err(CommandError::new(ErrorCode::FailedToParse, contradiction.message())),
            None => Ok(()),
        }
    }
}

/// Options that contradict each other. mongod finds them within the command's transaction, which they end.
#[derive(Clone, Copy, Debug)]
enum Contradiction {
    UpdateAndRemove,
    Neither,
    UpsertAndRemove,
    NewAndRemove,
    ArrayFiltersAndRemove,
}

impl Contradiction {
    const ALL: [Self; 5] = [
        Self::UpdateAndRemove,
        Self::Neither,
        Self::UpsertAndRemove,
        Self::NewAndRemove,
        Self::ArrayFiltersAndRemove,
    ];

    fn message(self) -> &'static str {
        match self {
            Self::UpdateAndRemove => "Cannot specify both an update and remove=true",
            Self::Neither => "Either an update or remove=true must be specified",
            Self::UpsertAndRemove => "Cannot specify both upsert=true and remove=true",
            Self::NewAndRemove => {
                "Cannot specify both new=true and remove=true; 'remove' always returns the deleted document"
            }
            Self::ArrayFiltersAndRemove => "Cannot specify arrayFilters and remove=true",
        }
    }
}

/// Whether an error reports options of a `findAndModify` that contradict each other.
#[must_use]
pub fn is_contradiction(error: &CommandError) -> bool {
    Contradiction::ALL
        .iter()
        .any(|contradiction| contradiction.message() == error.message())
}
