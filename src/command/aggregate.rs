//! The `aggregate` command.

use bson::raw::{RawBsonRef, RawDocument};

use super::arguments::is_generic;
use super::document::{as_flag, as_whole_number, first_field, get};
use super::error::{CommandError, ErrorCode};
use super::find::Find;

/// mongod's prefix of an error that the execution of an `aggregate` raised.
pub const OF_EXECUTION: &str = "PlanExecutor error during aggregation :: caused by :: ";

/// An `aggregate`. mongod checks the fields that are not parsed here.
#[derive(Clone, Debug)]
pub struct Aggregate<'a> {
    /// The stages.
    pub pipeline: Vec<&'a RawDocument>,
    /// The index hint.
    pub hint: Option<RawBsonRef<'a>>,
    /// Whether the client requests an explanation.
    pub explain: bool,
    /// The collation.
    pub collation: Option<&'a RawDocument>,
}

impl<'a> Aggregate<'a> {
    /// Parses the body of an `aggregate`.
    ///
    /// # Errors
    /// A pipeline that is not an array of documents, or a missing cursor, with mongod's codes.
    pub fn parse(body: &'a RawDocument) -> Result<Self, CommandError> {
        let aggregate = Self::parse_explained(body)?;
        // mongod accepts `explain: false`, too.
        if get(body, "cursor").is_none() && get(body, "explain").is_none() {
            let message = "The 'cursor' option is required, except for aggregate with the explain argument";
            return Err(CommandError::new(ErrorCode::FailedToParse, message));
        }
        Ok(aggregate)
    }

    /// Parses the body of an explained `aggregate`, which needs no cursor.
    ///
    /// # Errors
    /// As [`Aggregate::parse`], without that of the cursor.
    pub fn parse_explained(body: &'a RawDocument) -> Result<Self, CommandError> {
        let pipeline = match get(body, "pipeline") {
            Some(RawBsonRef::Array(stages)) => stages.into_iter().map(stage).collect::<Result<_, _>>()?,
            Some(_) => {
                return Err(CommandError::new(
                    ErrorCode::TypeMismatch,
                    "'pipeline' option must be an array",
                ));
            }
            None => {
                let message = "BSON field 'aggregate.pipeline' is missing but a required field";
                return Err(CommandError::new(ErrorCode::MissingField, message));
            }
        };
        let collation = get(body, "collation")
            .and_then(RawBsonRef::as_document)
            .filter(|document| !document.is_empty());
        let explain = get(body, "explain").and_then(as_flag).unwrap_or(false);
        Ok(Self {
            pipeline,
            hint: get(body, "hint"),
            explain,
            collation,
        })
    }
}

/// The equivalent `find` of a pipeline that only matches, sorts, skips, limits and projects, in
/// this order.
#[must_use]
pub fn as_find<'a>(body: &'a RawDocument, aggregate: &Aggregate<'a>) -> Option<Find<'a>> {
    const KNOWN: &[&str] = &["aggregate", "pipeline", "cursor", "hint", "collation", "allowDiskUse"];
    let mut find = Find::default();
    let mut last = 0;
    for stage in &aggregate.pipeline {
        let (name, value) = first_field(stage).filter(|_| stage.iter().count() == 1)?;
        let rank = ["$match", "$sort", "$skip", "$limit", "$project"]
            .iter()
            .position(|known| *known == name)?;
        let rank = rank.checked_add(1).filter(|rank| *rank > last)?;
        let number = || match value {
            RawBsonRef::Int32(number) => u64::try_from(number).ok(),
            RawBsonRef::Int64(number) => u64::try_from(number).ok(),
            _ => None,
        };
        match name {
            "$match" => find.filter = Some(value.as_document()?),
            "$sort" => find.sort = Some(value.as_document().filter(|sort| !sort.is_empty())?),
            "$skip" => find.skip = number()?,
            "$limit" => find.limit = number().filter(|limit| *limit > 0)?,
            _ => find.projection = Some(value.as_document().filter(|projection| !projection.is_empty())?),
        }
        last = rank;
    }
    let unknown = |name: &str| !KNOWN.contains(&name) && !is_generic(name);
    let is_wrong = |name: &str, value: RawBsonRef<'_>| match name {
        "collation" => value.as_document().is_none(),
        "allowDiskUse" => value.as_bool().is_none(),
        _ => false,
    };
    // mongod refuses invalid fields.
    let mut fields = body.iter().flatten().map(|(name, value)| (name.as_str(), value));
    if fields.any(|(name, value)| unknown(name) || is_wrong(name, value)) {
        return None;
    }
    for field in get(body, "cursor")?.as_document()? {
        let (name, size) = field.ok()?;
        // mongod refuses an invalid size.
        let size = u64::try_from(as_whole_number(size)?).ok();
        find.batch_size = Some(size.filter(|_| name.as_str() == "batchSize")?);
    }
    find.collation = aggregate.collation;
    Some(find)
}

/// An element of a pipeline.
pub(super) fn stage(element: Result<RawBsonRef<'_>, bson::error::Error>) -> Result<&RawDocument, CommandError> {
    let element = element.map_err(|error| CommandError::invalid_bson(&error.to_string()))?;
    let not_an_object = || {
        CommandError::new(
            ErrorCode::TypeMismatch,
            "Each element of the 'pipeline' array must be an object",
        )
    };
    element.as_document().ok_or_else(not_an_object)
}
