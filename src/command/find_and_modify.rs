//! The `findAndModify` command.

use bson::raw::{RawArray, RawBsonRef, RawDocument};

use super::arguments::CommandField;
use super::concerns;
use super::error::{CommandError, ErrorCode};
use super::find::checked_hint;
use super::update::checked_change;

/// A parsed `findAndModify`.
#[derive(Clone, Debug, Default)]
pub struct FindAndModify<'a> {
    /// The filter. `None` matches all documents.
    pub filter: Option<&'a RawDocument>,
    /// Operators or a replacement, or a pipeline.
    pub change: Option<RawBsonRef<'a>>,
    /// Whether the document is removed.
    pub remove: bool,
    /// Whether the changed document is returned.
    pub new: bool,
    /// Whether a document is inserted if none matches.
    pub upsert: bool,
    /// The projection of the returned document.
    pub projection: Option<&'a RawDocument>,
    /// The sort that selects the document.
    pub sort: Option<&'a RawDocument>,
    /// The collation.
    pub collation: Option<&'a RawDocument>,
    /// The filters of `$[identifier]` in paths.
    pub array_filters: Option<&'a RawArray>,
    /// The index hint.
    pub hint: Option<RawBsonRef<'a>>,
    /// The variables of the filter and of a pipeline.
    pub let_variables: Option<&'a RawDocument>,
    /// The `stmtId` of a retryable write.
    pub statement_id: Option<i32>,
}

impl<'a> FindAndModify<'a> {
    /// Parses the body of a `findAndModify`.
    ///
    /// # Errors
    /// An unknown field, one of the wrong type, or fields that contradict each other, with mongod's
    /// codes.
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
                // The application has no validator.
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

/// Options that contradict each other. mongod detects them inside the transaction, so the error
/// aborts it.
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

/// Whether the error is that of options of a `findAndModify` that contradict each other.
#[must_use]
pub fn is_contradiction(error: &CommandError) -> bool {
    Contradiction::ALL
        .iter()
        .any(|contradiction| contradiction.message() == error.message())
}
