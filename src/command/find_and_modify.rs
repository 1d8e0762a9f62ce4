//! The `findAndModify` command.

use bson::raw::{RawArray, RawBsonRef, RawDocument};

use super::arguments::CommandField;
use super::concerns;
use super::document::first_field;
use super::error::{CommandError, ErrorCode};
use super::find::checked_hint;
use super::update::checked_change;

/// The longest path of a sort that is known to be valid. mongod limits the number of its parts.
const MAX_PATH_BYTES: usize = 200;

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

    /// Whether mongod may fail because of the sort, although the filter demands an `_id`: the sort may be
    /// invalid, or the document may have arrays in several of the fields.
    #[must_use]
    pub fn sort_may_fail(&self) -> bool {
        let has_several_fields = self.sort.is_some_and(|sort| sort.iter().count() > 1);
        self.has_unknown_sort() || (has_several_fields && !self.is_found_by_id())
    }

    /// Whether the sort may be invalid.
    #[must_use]
    pub fn has_unknown_sort(&self) -> bool {
        self.parsed_sort().is_some_and(|sort| {
            let is_natural = self.hint.is_none() && is_natural_order(sort);
            let mut fields = sort.iter().flatten();
            !is_natural && !fields.all(|(path, direction)| is_field_path(path.as_str()) && is_direction(direction))
        })
    }

    /// The sort, if mongod parses it. It does not if the query is nothing but an `_id`
    /// (`ParsedUpdate::parseQuery`, `ParsedDelete::parseRequest`).
    fn parsed_sort(&self) -> Option<&'a RawDocument> {
        let has_projection = self.projection.is_some_and(|projection| !projection.is_empty());
        let is_ignored = self.is_found_by_id() && !has_projection;
        self.sort.filter(|sort| !sort.is_empty() && !is_ignored)
    }

    /// Whether mongod finds the document by the index on `_id` alone, and so does not sort.
    fn is_found_by_id(&self) -> bool {
        self.filter.is_some_and(is_id_alone) && self.hint.is_none() && self.collation.is_none()
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

fn is_natural_order(sort: &RawDocument) -> bool {
    let mut fields = sort.iter().flatten();
    let (Some((name, direction)), None) = (fields.next(), fields.next()) else {
        return false;
    };
    name.as_str() == "$natural" && is_direction(direction)
}

fn is_direction(value: RawBsonRef<'_>) -> bool {
    matches!(value, RawBsonRef::Int32(1 | -1) | RawBsonRef::Int64(1 | -1))
}

/// Whether a name is a path of fields that any sort may have.
fn is_field_path(name: &str) -> bool {
    let is_name = |part: &str| !part.is_empty() && !part.starts_with('$');
    name.len() <= MAX_PATH_BYTES && name.split('.').all(is_name)
}

/// Whether a filter is nothing but an equality on `_id` (`CanonicalQuery::isSimpleIdQuery`).
fn is_id_alone(filter: &RawDocument) -> bool {
    let mut fields = filter.iter().flatten();
    let (Some((name, id)), None) = (fields.next(), fields.next()) else {
        return false;
    };
    let is_value = match id {
        RawBsonRef::Document(id) => first_field(id).is_none_or(|(name, _)| !name.starts_with('$')),
        RawBsonRef::Array(_)
        | RawBsonRef::DbPointer(_)
        | RawBsonRef::Null
        | RawBsonRef::RegularExpression(_)
        | RawBsonRef::Symbol(_)
        | RawBsonRef::Undefined => false,
        _ => true,
    };
    name.as_str() == "_id" && is_value
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

#[cfg(test)]
mod tests {
    use bson::raw::RawDocumentBuf;
    use bson::rawdoc;

    use super::*;

    /// Whether the sort may be invalid, and whether mongod may fail because of it.
    fn of_sort(query: RawDocumentBuf, sort: RawDocumentBuf, more: &RawDocument) -> [bool; 2] {
        let mut body = rawdoc! { "findAndModify": "c", "remove": true, "query": query, "sort": sort };
        for (name, value) in more.iter().flatten() {
            body.append(name, value);
        }
        let command = FindAndModify::parse(&body).unwrap();
        [command.has_unknown_sort(), command.sort_may_fail()]
    }

    #[test]
    fn a_sort_may_fail_unless_mongod_does_not_parse_it() {
        let nothing = rawdoc! {};
        let with_other = || rawdoc! { "_id": 1, "n": 1 };
        for (sort, expected) in [
            (rawdoc! {}, [false, false]),
            (rawdoc! { "a": 1 }, [false, false]),
            (rawdoc! { "a.b": -1_i64 }, [false, false]),
            (rawdoc! { "$natural": 1 }, [false, false]),
            (rawdoc! { "a": 1, "b": 1 }, [false, true]),
            (rawdoc! { "$natural": 1, "a": 1 }, [true, true]),
            (rawdoc! { "a": "x" }, [true, true]),
            (rawdoc! { "a": 0 }, [true, true]),
            (rawdoc! { "": 1 }, [true, true]),
            (rawdoc! { "a..b": 1 }, [true, true]),
            (rawdoc! { "$a": 1 }, [true, true]),
        ] {
            assert_eq!(of_sort(with_other(), sort.clone(), &nothing), expected, "{sort:?}");
            assert_eq!(of_sort(rawdoc! { "_id": 1 }, sort, &nothing), [false, false]);
        }
        let invalid = || rawdoc! { "a": "x" };
        for query in [
            rawdoc! {},
            rawdoc! { "_id": { "$eq": 1 } },
            rawdoc! { "_id": null },
            rawdoc! { "n": 1 },
        ] {
            assert_eq!(of_sort(query.clone(), invalid(), &nothing), [true, true], "{query:?}");
        }
        let of_two = |more: &RawDocument| of_sort(rawdoc! { "_id": 1 }, rawdoc! { "a": 1, "b": 1 }, more);
        assert_eq!(of_two(&rawdoc! { "fields": { "a": 1 } }), [false, false]);
        assert_eq!(of_two(&rawdoc! { "hint": "_id_" }), [false, true]);
        for more in [
            rawdoc! { "fields": { "a": 1 } },
            rawdoc! { "hint": "_id_" },
            rawdoc! { "collation": { "locale": "de" } },
        ] {
            assert_eq!(
                of_sort(rawdoc! { "_id": 1 }, invalid(), &more),
                [true, true],
                "{more:?}"
            );
        }
    }
}
