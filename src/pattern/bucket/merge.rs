//! `$merge` into a bucket collection: plans the statements that write a document of the pipeline.
//!
//! The statements are those of mongod (`document_source_merge.cpp`), and so are the errors.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::item::IdSource;
use crate::command::aggregate::OF_EXECUTION;
use crate::command::document::{append_fields, get, put, single};
use crate::command::error::{CommandError, ErrorCode, WriteError};
use crate::command::merge::{MergeStage, NEW, WhenMatched, WhenNotMatched};

/// The fields of a result that has the document and the client's variables.
const DOCUMENT: &str = "d";
const VARIABLES: &str = "v";

/// How the documents of a batch are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeStrategy {
    /// As one `insert`.
    Insert,
    /// As one `insert`. The documents that exist are updated after it: as no other field is unique, the order
    /// of documents with different `_id`s does not change the result.
    InsertThenUpdate,
    /// As upserts, in order.
    Upsert,
    /// Each as an update, and if it matches nothing as an insert or an upsert.
    UpdateThenInsert,
    /// As updates.
    Update,
}

impl MergeStrategy {
    /// `has_unique_index`: whether the collection has one besides that of `_id`.
    #[must_use]
    pub fn of(merge: &MergeStage<'_>, has_unique_index: bool, has_collation: bool) -> Self {
        let is_pipeline = matches!(merge.when_matched, WhenMatched::Pipeline(_));
        match (merge.when_matched, merge.when_not_matched) {
            (WhenMatched::Fail, _) => Self::Insert,
            (_, WhenNotMatched::Discard | WhenNotMatched::Fail) => Self::Update,
            // mongod validates the stages with the variables of each document, also if there is nothing to
            // change. An upsert that inserts cannot have a collation.
            _ if is_pipeline || has_collation => Self::UpdateThenInsert,
            _ if merge.is_by_id() && !has_unique_index => Self::InsertThenUpdate,
            _ => Self::Upsert,
        }
    }
}

/// The last stage of the pipeline that is executed instead, if the client has variables: mongod evaluates
/// them for each document.
#[must_use]
pub fn with_variables(merge: &MergeStage<'_>) -> Option<RawDocumentBuf> {
    let variables = merge.let_variables.as_ref()?;
    let mut both = single(DOCUMENT, "$$ROOT");
    put(&mut both, VARIABLES, variables);
    Some(single("$replaceWith", both))
}

/// A document to merge.
#[derive(Clone, Debug)]
pub struct MergedDocument {
    /// The fields that identify it.
    filter: RawDocumentBuf,
    /// The document itself, with an `_id` if that is one of these fields.
    pub document: RawDocumentBuf,
    /// The values of the client's variables.
    variables: Option<RawDocumentBuf>,
}

impl MergedDocument {
    /// Prepares a result of the pipeline.
    ///
    /// # Errors
    /// A field that identifies the document is missing, null or an array.
    pub fn of(merge: &MergeStage<'_>, result: &RawDocument, ids: &mut impl IdSource) -> Result<Self, CommandError> {
        let given = |name| get(result, name).and_then(RawBsonRef::as_document);
        let (document, variables) = match merge.let_variables {
            Some(_) => (given(DOCUMENT).unwrap_or(result), given(VARIABLES)),
            None => (result, None),
        };
        let mut filter = RawDocumentBuf::new();
        let mut prepared = RawDocumentBuf::new();
        if merge.on.contains(&"_id") && get(document, "_id").is_none() {
            prepared.append(cstr!("_id"), ids.object_id());
        }
        append_fields(&mut prepared, document);
        for path in &merge.on {
            put(&mut filter, path, scalar(&prepared, path)?);
        }
        Ok(Self {
            filter,
            document: prepared,
            variables: variables.map(RawDocument::to_owned),
        })
    }

    /// The bytes that mongod counts.
    #[must_use]
    pub fn size(&self) -> usize {
        let variables = self.variables.as_ref().map_or(0, |values| values.as_bytes().len());
        let parts = [self.filter.as_bytes().len(), self.document.as_bytes().len(), variables];
        parts.into_iter().fold(0, usize::saturating_add)
    }

    /// Whether an `insert` stores the same as an upsert. `$set` and `$setOnInsert` take a field's name as a
    /// path, and keep an empty timestamp.
    #[must_use]
    pub fn is_inserted_as_it_is(&self, merge: &MergeStage<'_>) -> bool {
        let is_set = matches!(merge.when_matched, WhenMatched::Merge | WhenMatched::KeepExisting);
        !is_set
            || self.document.iter().flatten().all(|(name, value)| {
                let name = name.as_str();
                let is_empty = matches!(value, RawBsonRef::Timestamp(at) if at.time == 0 && at.increment == 0);
                !(name.is_empty() || name.contains('.') || name.starts_with('$') || is_empty)
            })
    }

    /// The statement of an `update`.
    #[must_use]
    pub fn statement(&self, merge: &MergeStage<'_>, options: StatementOptions<'_>) -> RawDocumentBuf {
        let mut statement = single("q", &self.filter);
        match merge.when_matched {
            WhenMatched::Replace => statement.append(cstr!("u"), &self.document),
            WhenMatched::KeepExisting => statement.append(cstr!("u"), single("$setOnInsert", &self.document)),
            WhenMatched::Merge | WhenMatched::Fail => statement.append(cstr!("u"), single("$set", &self.document)),
            WhenMatched::Pipeline(stages) => {
                statement.append(cstr!("u"), stages);
                let mut constants = self.variables.clone().unwrap_or_default();
                if merge.defines_new() {
                    put(&mut constants, NEW, &self.document);
                }
                statement.append(cstr!("c"), constants);
            }
        }
        if options.upsert == Upsert::Yes {
            statement.append(cstr!("upsert"), true);
        }
        if let Some(collation) = options.collation {
            statement.append(cstr!("collation"), collation);
        }
        statement
    }
}

/// Whether a statement inserts a document that it does not find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upsert {
    /// It does.
    Yes,
    /// It does not.
    No,
}

/// The options of a statement.
#[derive(Clone, Copy, Debug)]
pub struct StatementOptions<'a> {
    /// Whether it inserts.
    pub upsert: Upsert,
    /// The collation of the command.
    pub collation: Option<&'a RawDocument>,
}

/// The value at a path through documents.
fn scalar<'a>(document: &'a RawDocument, path: &str) -> Result<RawBsonRef<'a>, CommandError> {
    let mut names = path.split('.');
    let mut value = names.next().and_then(|name| get(document, name));
    for name in names {
        value = match value {
            Some(RawBsonRef::Document(inner)) => get(inner, name),
            Some(RawBsonRef::Array(_)) => break,
            _ => None,
        };
    }
    match value {
        Some(RawBsonRef::Array(_)) => Err(CommandError::malformed(
            51185,
            &format!("{OF_EXECUTION}$merge write error: 'on' field '{path}' is an array"),
        )),
        None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => Err(CommandError::malformed(
            51132,
            &format!(
                "{OF_EXECUTION}$merge write error: 'on' field '{path}' cannot be missing, null, undefined or an array"
            ),
        )),
        Some(value) => Ok(value),
    }
}

/// Whether an error reports that a document with the same values of `on` exists.
#[must_use]
pub fn is_match(merge: &MergeStage<'_>, error: &WriteError) -> bool {
    error.code == ErrorCode::DuplicateKey.number()
        && get(&error.detail, "keyPattern").is_some_and(|pattern| merge.is_supported_by(&single("key", pattern)))
}

/// The command's error for the first document that could not be written.
#[must_use]
pub fn failed(merge: &MergeStage<'_>, error: WriteError) -> CommandError {
    let context = if error.code == ErrorCode::ImmutableField.number() {
        "$merge failed to update the matching document, did you attempt to modify the _id or the shard key?"
    } else if error.code != ErrorCode::DuplicateKey.number() {
        ""
    } else if merge.when_matched == WhenMatched::Fail && is_match(merge, &error) {
        "$merge with whenMatched: fail found an existing document with the same values for the 'on' fields"
    } else {
        "$merge failed due to a DuplicateKey error"
    };
    let is_own = [ErrorCode::CommandNotSupported, ErrorCode::WriteConflict]
        .iter()
        .any(|code| code.number() == error.code);
    let message = match (is_own, context) {
        (true, _) => error.message,
        (false, "") => format!("{OF_EXECUTION}{}", error.message),
        (false, context) => format!("{OF_EXECUTION}{context} :: caused by :: {}", error.message),
    };
    WriteError { message, ..error }.into_named_error()
}

/// mongod's error for documents without a match, with `whenNotMatched: "fail"`.
#[must_use]
pub fn no_match() -> CommandError {
    let message = format!(
        "{OF_EXECUTION}$merge could not find a matching document in the target collection for at least one document in the source \
         collection"
    );
    CommandError::new(ErrorCode::MergeStageNoMatchingDocument, message)
}

/// mongod's code for fields that no unique index has.
pub const NO_INDEX: i32 = 51183;

/// mongod's error for fields that no unique index has.
#[must_use]
pub fn no_index() -> CommandError {
    CommandError::malformed(NO_INDEX, "Cannot find index to verify that join fields will be unique")
}
