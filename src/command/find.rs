//! The `find` command.

use bson::raw::{RawBsonRef, RawDocument};

use super::arguments::CommandField;
use super::document::first_field;
use super::error::{CommandError, ErrorCode};

/// A parsed `find`. An absent document is `None`, as is an empty one that means the same.
#[derive(Clone, Debug, Default)]
pub struct Find<'a> {
    /// The filter.
    pub filter: Option<&'a RawDocument>,
    /// The sort.
    pub sort: Option<&'a RawDocument>,
    /// The projection.
    pub projection: Option<&'a RawDocument>,
    /// The number of documents to skip.
    pub skip: u64,
    /// The most documents to return; 0 for all.
    pub limit: u64,
    /// The size of the first batch. `None`: the server's default, 101.
    pub batch_size: Option<u64>,
    /// Whether the cursor is closed after the first batch.
    pub single_batch: bool,
    /// The index hint.
    pub hint: Option<RawBsonRef<'a>>,
    /// The collation.
    pub collation: Option<&'a RawDocument>,
    /// The variables of the filter.
    pub let_variables: Option<&'a RawDocument>,
    /// The lower bound in the index.
    pub min: Option<&'a RawDocument>,
    /// The upper bound in the index.
    pub max: Option<&'a RawDocument>,
    /// Whether a large sort may spill to disk.
    pub allow_disk_use: Option<bool>,
    /// Names of options that change the result and that no aggregation has, such as `min` or
    /// `tailable`.
    pub beyond_aggregation: Vec<&'a str>,
}

impl<'a> Find<'a> {
    /// Whether the query has no order of its own, and selects documents by a list of `_id`s alone. A plain
    /// collection answers it by the index on `_id`, so its documents come in the order of `_id`.
    #[must_use]
    pub fn is_by_listed_ids(&self) -> bool {
        let only = |document: &'a RawDocument| first_field(document).filter(|_| document.iter().count() == 1);
        let condition = self.filter.and_then(only);
        let operator = condition.and_then(|(field, list)| only(list.as_document().filter(|_| field == "_id")?));
        let has_list = operator.is_some_and(|(operator, _)| operator == "$in");
        has_list && self.sort.is_none() && self.hint.is_none() && self.collation.is_none()
    }

    /// Parses the body of a `find`.
    ///
    /// # Errors
    /// A field that `find` does not have, or one of the wrong type, with mongod's codes.
    pub fn parse(body: &'a RawDocument) -> Result<Self, CommandError> {
        let mut find = Self::default();
        for field in CommandField::all("find", body) {
            let (name, field) = field?;
            match name {
                "filter" => find.filter = field.document()?.filter(not_empty),
                "sort" => find.sort = field.document()?.filter(not_empty),
                "projection" => find.projection = field.document()?.filter(not_empty),
                "skip" => find.skip = field.size()?.unwrap_or(0),
                "limit" => find.limit = field.size()?.unwrap_or(0),
                "batchSize" => find.batch_size = field.size()?,
                "singleBatch" => find.single_batch = field.flag()?,
                "hint" => find.hint = Some(field.value()).filter(is_hint),
                "collation" => find.collation = field.document()?.filter(not_empty),
                "let" => find.let_variables = field.document()?,
                "allowDiskUse" => find.allow_disk_use = Some(field.flag()?),
                "min" => find.min = field.document()?.filter(not_empty),
                "max" => find.max = field.document()?.filter(not_empty),
                "returnKey" | "showRecordId" | "tailable" | "awaitData" | "$_requestResumeToken" => {
                    if field.flag()? {
                        find.beyond_aggregation.push(name);
                    }
                }
                "$_resumeAfter" | "encryptionInformation" | "collectionUUID" => find.beyond_aggregation.push(name),
                // Options without an effect on the result. On a mongod the session decides when a
                // cursor times out, and there are no shards; the other options have had no effect
                // since 4.4.
                "noCursorTimeout" | "allowPartialResults" | "oplogReplay" | "term" | "readOnce" => {}
                _ => return Err(field.unknown()),
            }
        }
        let bounds = [("min", find.min), ("max", find.max)];
        let bounds = bounds.into_iter().filter(|(_, bound)| bound.is_some());
        find.beyond_aggregation.extend(bounds.map(|(name, _)| name));
        Ok(find)
    }
}

/// mongod ignores an empty document as a hint, like an empty filter.
fn is_hint(value: &RawBsonRef<'_>) -> bool {
    !matches!(value, RawBsonRef::Document(document) if document.is_empty())
}

fn not_empty(document: &&RawDocument) -> bool {
    !document.is_empty()
}

/// Checks the type of a hint.
///
/// # Errors
/// A value that is neither a string nor a document.
pub fn check_hint_form(hint: Option<RawBsonRef<'_>>) -> Result<(), CommandError> {
    hint.map_or(Ok(()), |hint| checked_hint(hint).map(drop))
}

/// Checks a hint: the name of an index, or its key pattern.
///
/// # Errors
/// A value of another type.
pub(super) fn checked_hint(hint: RawBsonRef<'_>) -> Result<RawBsonRef<'_>, CommandError> {
    if let RawBsonRef::String(_) | RawBsonRef::Document(_) = hint {
        return Ok(hint);
    }
    let message = "Hint must be a string or an object";
    Err(CommandError::new(ErrorCode::FailedToParse, message))
}

/// mongod's error for a hint at an index that does not exist, except for the query that it
/// contains.
const NO_SUCH_INDEX: &str = "error processing query: planner returned error :: caused by :: \
                             hint provided does not correspond to an existing index";

/// mongod's error for a client's hint at an index that does not exist.
#[must_use]
pub fn no_such_index() -> CommandError {
    CommandError::new(ErrorCode::BadValue, NO_SUCH_INDEX)
}

/// mongod's error for a client's hint of a key pattern that several indexes have.
#[must_use]
pub fn ambiguous_hint() -> CommandError {
    let message = "error processing query: planner returned error :: caused by :: Hint matched multiple indexes, must hint by index name.";
    CommandError::new(ErrorCode::IndexNotFound, message)
}

/// Whether mongod did not find the index of the proxy's own hint: the collection was created again
/// without the proxy.
#[must_use]
pub fn misses_own_index(code: i32, message: &str) -> bool {
    code == ErrorCode::BadValue.number()
        && message.contains("hint provided does not correspond to an existing index")
        && message != NO_SUCH_INDEX
}
