//! The `aggregate` command.

use bson::raw::{RawBsonRef, RawDocument};

use super::document::{as_flag, get};
use super::error::{CommandError, ErrorCode};

/// An `aggregate`. Fields that stay as they are remain mongod's to check.
#[derive(Clone, Debug)]
pub struct Aggregate<'a> {
    /// The stages.
    pub pipeline: Vec<&'a RawDocument>,
    /// Which index.
    pub hint: Option<RawBsonRef<'a>>,
    /// Whether an explanation is asked for instead of an answer.
    pub explain: bool,
    /// How strings compare.
    pub collation: Option<&'a RawDocument>,
}

impl<'a> Aggregate<'a> {
    /// Reads the body of an `aggregate`.
    ///
    /// # Errors
    /// A pipeline that is no array of documents, with mongod's codes.
    pub fn parse(body: &'a RawDocument) -> Result<Self, CommandError> {
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
        if get(body, "cursor").is_none() && !explain {
            let message = "The 'cursor' option is required, except for aggregate with the explain argument";
            return Err(CommandError::new(ErrorCode::FailedToParse, message));
        }
        Ok(Self {
            pipeline,
            hint: get(body, "hint"),
            explain,
            collation,
        })
    }
}

fn stage(element: Result<RawBsonRef<'_>, bson::error::Error>) -> Result<&RawDocument, CommandError> {
    let element = element.map_err(|error| CommandError::invalid_bson(&error.to_string()))?;
    let not_an_object = || {
        CommandError::new(
            ErrorCode::TypeMismatch,
            "Each element of the 'pipeline' array must be an object",
        )
    };
    element.as_document().ok_or_else(not_an_object)
}
