//! The `find` command.

use bson::raw::{RawBsonRef, RawDocument};

use super::arguments::CommandField;
use super::error::{CommandError, ErrorCode};

/// A `find`, read against the list of fields that mongod knows. An absent document is `None`, as is an empty
/// one where it means the same.
#[derive(Clone, Debug, Default)]
pub struct Find<'a> {
    /// What to match.
    pub filter: Option<&'a RawDocument>,
    /// What order.
    pub sort: Option<&'a RawDocument>,
    /// What fields.
    pub projection: Option<&'a RawDocument>,
    /// How many to pass over.
    pub skip: u64,
    /// How many to answer; 0 for all.
    pub limit: u64,
    /// How many in the first batch; `None` for the server's 101.
    pub batch_size: Option<u64>,
    /// Whether the cursor is closed after the first batch.
    pub single_batch: bool,
    /// Which index.
    pub hint: Option<RawBsonRef<'a>>,
    /// How strings compare.
    pub collation: Option<&'a RawDocument>,
    /// Variables.
    pub let_variables: Option<&'a RawDocument>,
    /// Where in an index to begin.
    pub min: Option<&'a RawDocument>,
    /// Where to end.
    pub max: Option<&'a RawDocument>,
    /// Whether a large sort may spill.
    pub allow_disk_use: Option<bool>,
    /// Names of the options given that no aggregation has and that change the answer, such as `min` or
    /// `tailable`.
    pub beyond_aggregation: Vec<&'a str>,
}

impl<'a> Find<'a> {
    /// Reads the body of a `find`.
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
                // Nothing that the answer would show: a cursor of a mongod times out or not by its session,
                // there are no shards to be missing, and the rest has had no effect since 4.4.
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

/// An empty document is no hint, as an empty filter is no filter.
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

/// A hint: the name of an index, or its keys.
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

/// mongod's answer to a hint at an index that is not there, but for the query that it names.
const NO_SUCH_INDEX: &str = "error processing query: planner returned error :: caused by :: \
                             hint provided does not correspond to an existing index";

/// mongod's answer to a hint of the client's at an index that is not there.
#[must_use]
pub fn no_such_index() -> CommandError {
    CommandError::new(ErrorCode::BadValue, NO_SUCH_INDEX)
}

/// Whether mongod did not find the index of a hint of the proxy's own: the collection was made anew, and not
/// by a proxy.
#[must_use]
pub fn misses_own_index(code: i32, message: &str) -> bool {
    code == ErrorCode::BadValue.number()
        && message.contains("hint provided does not correspond to an existing index")
        && message != NO_SUCH_INDEX
}
