//! The `update` command.

use bson::raw::{RawArray, RawBsonRef, RawDocument};

use super::aggregate::stage;
use super::arguments::CommandField;
use super::concerns;
use super::document::{first_field, type_name};
use super::error::{CommandError, ErrorCode, WriteError};
use super::find::checked_hint;
use super::header::CommandHeader;
use super::server_version::{FieldSince, ServerVersion};
use super::statement_ids::StatementIds;
use super::write_batch::{WriteBatch, missing};

/// A parsed `update`.
#[derive(Clone, Debug)]
pub struct Update<'a> {
    /// The statements, from the body or from a sequence, in order.
    pub statements: Vec<UpdateStatement<'a>>,
    /// Whether the first failure ends the command.
    pub ordered: bool,
    /// The `stmtId`s of a retryable write.
    pub statement_ids: StatementIds,
    /// The variables of filters and pipelines.
    pub let_variables: Option<&'a RawDocument>,
}

/// One statement of an `update`.
#[derive(Clone, Copy, Debug)]
pub struct UpdateStatement<'a> {
    /// The filter.
    pub filter: &'a RawDocument,
    /// Operators or a replacement, or a pipeline.
    pub change: RawBsonRef<'a>,
    /// Whether all matching documents are changed.
    pub multi: bool,
    /// Whether a document is inserted if none matches.
    pub upsert: bool,
    /// The collation.
    pub collation: Option<&'a RawDocument>,
    /// The filters of `$[identifier]` in paths.
    pub array_filters: Option<&'a RawArray>,
    /// The index hint.
    pub hint: Option<RawBsonRef<'a>>,
    /// Constants that the filter and a pipeline may use as variables.
    pub constants: Option<&'a RawDocument>,
    /// Selects one of several matching documents. May be empty.
    pub sort: Option<&'a RawDocument>,
}

/// The order of the matching documents. The statement changes the first one.
const SORT: FieldSince = FieldSince {
    command: "update.updates",
    field: "sort",
    version: ServerVersion::new(8, 0, 0),
};

impl<'a> UpdateStatement<'a> {
    /// The sort, if it has a field.
    #[must_use]
    pub fn order(&self) -> Option<&'a RawDocument> {
        self.sort.filter(|sort| !sort.is_empty())
    }

    /// Whether the change replaces the whole document.
    #[must_use]
    pub fn is_replacement(&self) -> bool {
        is_replacement(self.change)
    }

    /// The error of a `sort` of many documents.
    #[must_use]
    pub fn sort_of_many(&self) -> Option<WriteError> {
        let message = "Cannot specify sort with multi=true";
        (self.multi && self.order().is_some()).then(|| WriteError::new(ErrorCode::FailedToParse, message))
    }
}

/// The form of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateForm {
    /// A document of operators.
    Operators,
    /// A pipeline of stages.
    Pipeline,
    /// The new document.
    Replacement,
}

impl UpdateForm {
    /// The form of a change.
    #[must_use]
    pub fn of(change: RawBsonRef<'_>) -> Self {
        if change.as_array().is_some() {
            Self::Pipeline
        } else if is_replacement(change) {
            Self::Replacement
        } else {
            Self::Operators
        }
    }
}

/// Whether a change is a replacement document, and not operators or a pipeline.
#[must_use]
pub fn is_replacement(change: RawBsonRef<'_>) -> bool {
    let change = change.as_document();
    change.is_some_and(|change| first_field(change).is_none_or(|(name, _)| !name.starts_with('$')))
}

impl<'a> Update<'a> {
    /// Parses an `update`.
    ///
    /// # Errors
    /// A field that `update` does not have, one of the wrong type, no or too many statements, with
    /// mongod's codes.
    pub fn parse(head: &CommandHeader<'a>) -> Result<Self, CommandError> {
        let mut let_variables = None;
        let batch = WriteBatch::parse(head, "update", "update.updates", |name, field| {
            match name {
                // The application has no validator.
                "bypassDocumentValidation" => drop(field.flag()?),
                "let" => let_variables = field.document()?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let statements = batch
            .statements
            .iter()
            .map(|statement| UpdateStatement::parse(statement));
        let statements = statements.collect::<Result<_, _>>()?;
        concerns::check_of_write(head.body())?;
        Ok(Self {
            statements,
            ordered: batch.ordered,
            statement_ids: batch.statement_ids,
            let_variables,
        })
    }

    /// A field of a statement that servers of earlier versions do not know.
    #[must_use]
    pub fn newer_field(&self) -> Option<FieldSince> {
        let has_sort = self.statements.iter().any(|statement| statement.sort.is_some());
        has_sort.then_some(SORT)
    }
}

impl<'a> UpdateStatement<'a> {
    fn parse(statement: &'a RawDocument) -> Result<Self, CommandError> {
        let (mut filter, mut change) = (None, None);
        let (mut multi, mut upsert) = (false, false);
        let (mut collation, mut array_filters, mut hint, mut constants, mut sort) = (None, None, None, None, None);
        for field in CommandField::within("update.updates", statement) {
            let (name, field) = field?;
            match name {
                "q" => filter = field.document()?,
                "u" => change = Some(checked_change(field.value())?),
                "multi" => multi = field.flag()?,
                "upsert" => upsert = field.flag()?,
                "collation" => collation = field.document()?,
                "arrayFilters" => array_filters = checked_array_filters(field.array()?)?,
                "hint" => hint = Some(checked_hint(field.value())?),
                "c" => constants = field.document()?,
                "sort" => sort = field.document()?,
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
            sort,
        })
    }
}

/// Checks the type of a change: a document, or a pipeline of documents.
pub(super) fn checked_change(change: RawBsonRef<'_>) -> Result<RawBsonRef<'_>, CommandError> {
    match change {
        RawBsonRef::Document(_) => Ok(change),
        RawBsonRef::Array(pipeline) => {
            pipeline.into_iter().try_for_each(|element| stage(element).map(drop))?;
            Ok(change)
        }
        _ => {
            let message = "Update argument must be either an object or an array";
            Err(CommandError::new(ErrorCode::FailedToParse, message))
        }
    }
}

/// Checks the types of the elements. mongod skips a null.
fn checked_array_filters(filters: Option<&RawArray>) -> Result<Option<&RawArray>, CommandError> {
    for (index, element) in filters.into_iter().flatten().enumerate() {
        let element = element.map_err(|error| CommandError::invalid_bson(&error.to_string()))?;
        if !matches!(element, RawBsonRef::Document(_) | RawBsonRef::Null) {
            let field = format!("update.updates.arrayFilters.{index}");
            return Err(CommandError::wrong_type(&field, type_name(element), "object"));
        }
    }
    Ok(filters)
}

#[cfg(test)]
mod tests {
    use bson::raw::RawDocumentBuf;
    use bson::rawdoc;

    use super::*;

    #[test]
    fn a_statement_is_malformed_by_the_types_of_its_fields() {
        let refused = |statement: RawDocumentBuf| match UpdateStatement::parse(&statement) {
            Err(CommandError::Own { code, .. }) => Some(code),
            _ => None,
        };
        assert_eq!(refused(rawdoc! { "q": {}, "u": { "$set": { "a": 1 } } }), None);
        assert_eq!(refused(rawdoc! { "q": {}, "u": [{ "$set": { "a": 1 } }] }), None);
        assert_eq!(refused(rawdoc! { "q": {}, "u": 5 }), Some(ErrorCode::FailedToParse));
        assert_eq!(
            refused(rawdoc! { "q": {}, "u": [{ "$set": {} }, 2] }),
            Some(ErrorCode::TypeMismatch)
        );
        assert_eq!(refused(rawdoc! { "q": {}, "u": {}, "arrayFilters": [null, {}] }), None);
        assert_eq!(
            refused(rawdoc! { "q": {}, "u": {}, "arrayFilters": [{}, 1] }),
            Some(ErrorCode::TypeMismatch)
        );
    }
}
