//! `createIndexes`, `listIndexes` and `dropIndexes`.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::arguments::with_replaced;
use super::document::{as_whole_number, get, single, type_name};
use super::error::{CommandError, ErrorCode};
use super::namespace::Namespace;
use super::value_text::value_text;

/// The name in a specification that mongod refuses.
pub const NO_INDEX: &str = "mongoshape_no_index";

/// The name of the index of [`mixed_options`].
const MIXED_OPTIONS: &str = "mongoshape_mixed_options";

/// mongod's reason to refuse a TTL index on several fields.
const COMPOUND_TTL: &str = "TTL indexes are single-field indexes, compound indexes do not support TTL";

/// The indexes of a `createIndexes`. `None` if they are not an array of documents: mongod then
/// refuses the command.
#[must_use]
pub fn wanted(body: &RawDocument) -> Option<Vec<&RawDocument>> {
    let specs = get(body, "indexes")?.as_array()?.into_iter();
    let specs: Option<Vec<_>> = specs.map(|spec| spec.ok()?.as_document()).collect();
    specs.filter(|specs| !specs.is_empty())
}

/// A client's `createIndexes` with these indexes in place of its own.
#[must_use]
pub fn create(body: &RawDocument, specs: &[RawDocumentBuf]) -> RawDocumentBuf {
    let specs = super::document::array_of(specs);
    with_replaced(body, &[("indexes", Some(RawBsonRef::Array(&specs)))])
}

/// A client's `createIndexes` with one more index, which is invalid. mongod checks all
/// specifications, in order, before it creates any (`create_indexes.cpp`,
/// `parseAndValidateIndexSpecs`). So mongod reports mistakes in the client's own specifications,
/// and [`is_sound`] detects that there are none.
#[must_use]
pub fn validation(body: &RawDocument) -> RawDocumentBuf {
    let mut specs = RawArrayBuf::new();
    for spec in wanted(body).unwrap_or_default() {
        specs.push(spec);
    }
    specs.push(single("name", NO_INDEX));
    with_replaced(body, &[("indexes", Some(RawBsonRef::Array(&specs)))])
}

/// Whether the error is that of the invalid index of [`validation`], so that the client's
/// specifications are valid.
#[must_use]
pub fn is_sound(error: &CommandError) -> bool {
    let CommandError::Upstream(reply) = error else {
        return false;
    };
    let spec = single("name", NO_INDEX);
    let text = value_text(RawBsonRef::Document(&spec));
    let message = reply.get_str("errmsg").unwrap_or_default();
    error.is(ErrorCode::FailedToParse) && message.starts_with(&format!("Error in specification {text} "))
}

/// An index with two options that mongod refuses together. mongod checks them after it has parsed all
/// specifications of the command, and after it has checked the options of the indexes before it.
#[must_use]
pub fn mixed_options() -> RawDocumentBuf {
    let mut spec = single("name", MIXED_OPTIONS);
    spec.append(cstr!("key"), single(MIXED_OPTIONS, 1));
    spec.append(cstr!("sparse"), true);
    spec.append(cstr!("partialFilterExpression"), RawDocumentBuf::new());
    spec
}

/// Whether the error is that of [`mixed_options`].
#[must_use]
pub fn is_of_mixed_options(error: &CommandError) -> bool {
    let CommandError::Upstream(reply) = error else {
        return false;
    };
    let message = reply.get_str("errmsg").unwrap_or_default();
    error.is(ErrorCode::CannotCreateIndex) && message.contains(MIXED_OPTIONS)
}

/// The name of an index, as mongod prints it in a specification.
#[must_use]
pub fn name_text(name: &str) -> String {
    value_text(RawBsonRef::String(name))
}

/// mongod's error for an index with an empty name. mongod checks the name after the rest of the
/// specification.
#[must_use]
pub fn empty_name(spec: &RawDocument) -> CommandError {
    let spec = with_version(spec);
    let message = format!("Error in specification {spec} :: caused by :: index name cannot be empty");
    CommandError::new(ErrorCode::CannotCreateIndex, message)
}

/// mongod's error for an index with the name of the clustered index.
#[must_use]
pub fn name_of_clustered(spec: &RawDocument, clustered: &RawDocument) -> CommandError {
    const CODE: i32 = 6_100_906;
    let spec = with_version(spec);
    // As in the options of the collection.
    let clustered = with_replaced(clustered, &[("clustered", None)]);
    let clustered = value_text(RawBsonRef::Document(&clustered));
    let message = format!(
        "Error in specification {spec} :: caused by :: Cannot create an index where the name matches the clusteredIndex but \
         the key does not - indexSpec: {spec}, clusteredIndex: {clustered}"
    );
    CommandError::malformed(CODE, &message)
}

/// A client's specification as mongod prints it, with its version.
fn with_version(spec: &RawDocument) -> String {
    let mut spec = spec.to_owned();
    if get(&spec, "v").is_none() {
        spec.append(cstr!("v"), 2);
    }
    value_text(RawBsonRef::Document(&spec))
}

/// The indexes to be dropped by a `dropIndexes`.
#[derive(Clone, Debug)]
pub enum Dropped<'a> {
    /// All but the index on `_id`.
    All,
    /// The indexes with these names.
    Names(Vec<&'a str>),
    /// The index with this key pattern.
    Key(&'a RawDocument),
}

impl<'a> Dropped<'a> {
    /// Parses the `index` of a `dropIndexes`. mongod checks the other fields.
    ///
    /// # Errors
    /// An `index` that is missing or of the wrong type, with mongod's codes.
    pub fn parse(body: &'a RawDocument) -> Result<Self, CommandError> {
        let wrong = |value, expected: &str| {
            let message = format!(
                "BSON field 'dropIndexes.index' is the wrong type '{}', expected types '[{expected}']",
                type_name(value)
            );
            CommandError::new(ErrorCode::TypeMismatch, message)
        };
        match get(body, "index") {
            Some(RawBsonRef::String("*")) => Ok(Self::All),
            Some(RawBsonRef::String(name)) => Ok(Self::Names(vec![name])),
            Some(RawBsonRef::Document(key)) => Ok(Self::Key(key)),
            Some(value @ RawBsonRef::Array(array)) => {
                let elements: Vec<RawBsonRef<'a>> = array.into_iter().flatten().collect();
                let mut names = Vec::with_capacity(elements.len());
                for (place, element) in elements.into_iter().enumerate() {
                    match element {
                        RawBsonRef::String(name) => names.push(name),
                        _ if place == 0 => return Err(wrong(value, "string")),
                        other => {
                            let field = format!("dropIndexes.index.{place}");
                            return Err(CommandError::wrong_type(&field, type_name(other), "string"));
                        }
                    }
                }
                Ok(if names == ["*"] { Self::All } else { Self::Names(names) })
            }
            Some(value) => Err(wrong(value, "string, object")),
            None => {
                let message = "BSON field 'dropIndexes.index' is missing but a required field";
                Err(CommandError::new(ErrorCode::MissingField, message))
            }
        }
    }
}

/// A client's `dropIndexes` for these names. Without names it drops nothing, but mongod still
/// checks the other fields.
#[must_use]
pub fn drop(body: &RawDocument, names: &[&str]) -> RawDocumentBuf {
    let names: RawArrayBuf = names.iter().copied().collect();
    with_replaced(body, &[("index", Some(RawBsonRef::Array(&names)))])
}

/// mongod's error for dropping an index that does not exist, by name.
#[must_use]
pub fn not_found(name: &str) -> CommandError {
    CommandError::new(ErrorCode::IndexNotFound, format!("index not found with name [{name}]"))
}

/// mongod's error for dropping an index that does not exist, by key pattern.
#[must_use]
pub fn no_such_key(key: &RawDocument) -> CommandError {
    let key = value_text(RawBsonRef::Document(key));
    CommandError::new(ErrorCode::IndexNotFound, format!("can't find index with key: {key}"))
}

/// mongod's error for dropping the index on `_id`.
#[must_use]
pub fn cannot_drop_id() -> CommandError {
    CommandError::new(ErrorCode::InvalidOptions, "cannot drop _id index")
}

/// mongod's error for dropping the clustered index.
#[must_use]
pub fn cannot_drop_clustered() -> CommandError {
    const CODE: i32 = 5_979_800;
    CommandError::malformed(CODE, "It is illegal to drop the clusteredIndex")
}

/// mongod's error for dropping an index by a key pattern that several indexes have.
#[must_use]
pub fn ambiguous_key(key: &RawDocument, found: &[RawDocumentBuf]) -> CommandError {
    let message = format!(
        "{} indexes found for key: {}, identify by name instead. Conflicting indexes: {}",
        found.len(),
        value_text(RawBsonRef::Document(key)),
        texts(found)
    );
    CommandError::new(ErrorCode::AmbiguousIndexKeyPattern, message)
}

/// mongod's error for a `collMod` by a key pattern that several indexes have.
#[must_use]
pub fn ambiguous_key_pattern(key: &RawDocument, found: &[RawDocumentBuf]) -> CommandError {
    let message = format!(
        "index keyPattern {} matches {} indexes, must use index name. Conflicting indexes:{}",
        value_text(RawBsonRef::Document(key)),
        found.len(),
        texts(found)
    );
    CommandError::new(ErrorCode::AmbiguousIndexKeyPattern, message)
}

fn texts(specs: &[RawDocumentBuf]) -> String {
    let texts: Vec<String> = specs
        .iter()
        .map(|spec| value_text(RawBsonRef::Document(spec)))
        .collect();
    texts.join(", ")
}

/// mongod's error for an index that exists under another name.
#[must_use]
pub fn other_name(name: &str) -> CommandError {
    let message = format!("Index already exists with a different name: {name}");
    CommandError::new(ErrorCode::IndexOptionsConflict, message)
}

/// mongod's error for an index whose name another index has.
#[must_use]
pub fn other_key([wanted, there]: &[RawDocumentBuf; 2]) -> CommandError {
    let message = format!(
        "An existing index has the same name as the requested index. When index names are not specified, they are auto \
         generated and can cause conflicts. Please refer to our documentation. Requested index: {}, existing index: {}",
        value_text(RawBsonRef::Document(wanted)),
        value_text(RawBsonRef::Document(there))
    );
    CommandError::new(ErrorCode::IndexKeySpecsConflict, message)
}

/// mongod's error for an equivalent index with other options.
#[must_use]
pub fn other_options([wanted, there]: &[RawDocumentBuf; 2]) -> CommandError {
    let is_same_name = get(wanted, "name") == get(there, "name");
    let difference = if is_same_name {
        "the same name but different options"
    } else {
        "a different name and options"
    };
    let message = format!(
        "An equivalent index already exists with {difference}. Requested index: {}, existing index: {}",
        value_text(RawBsonRef::Document(wanted)),
        value_text(RawBsonRef::Document(there))
    );
    CommandError::new(ErrorCode::IndexOptionsConflict, message)
}

/// mongod's error for an invalid `expireAfterSeconds`. mongod checks it after the rest of the specification.
#[must_use]
pub fn invalid_expiry(spec: &RawDocument) -> Option<CommandError> {
    let value = get(spec, "expireAfterSeconds")?;
    let is_compound = get(spec, "key")
        .and_then(RawBsonRef::as_document)
        .is_some_and(|key| key.iter().count() > 1);
    let seconds = match value {
        // mongod stores the longest time.
        RawBsonRef::Double(number) if number.is_nan() => Some(0),
        value => as_whole_number(value),
    };
    let reason = match seconds {
        _ if is_compound => COMPOUND_TTL.to_owned(),
        None => format!(
            "TTL index 'expireAfterSeconds' option must be numeric, but received a type of '{}'",
            type_name(value)
        ),
        Some(seconds) => invalid_seconds(seconds)?.to_owned(),
    };
    let spec = value_text(RawBsonRef::Document(spec));
    let message = format!("{reason}. Index spec: {spec}");
    Some(CommandError::new(ErrorCode::CannotCreateIndex, message))
}

/// mongod's reason to refuse this `expireAfterSeconds` of an index.
#[must_use]
pub fn invalid_seconds(seconds: i64) -> Option<&'static str> {
    match seconds {
        ..0 => Some("TTL index 'expireAfterSeconds' option cannot be less than 0"),
        _ if i32::try_from(seconds).is_err() => {
            Some("TTL index 'expireAfterSeconds' option must be within an acceptable range, try a lower number")
        }
        _ => None,
    }
}

/// mongod's error for a `collMod` that would make a compound index a TTL index.
#[must_use]
pub fn compound_expiry() -> CommandError {
    CommandError::new(ErrorCode::InvalidOptions, COMPOUND_TTL)
}

/// mongod's error for a `collMod` of an index that does not exist.
#[must_use]
pub fn cannot_find(index: &str, namespace: Namespace<'_>) -> CommandError {
    let message = format!("cannot find index {index} for ns {namespace}");
    CommandError::new(ErrorCode::IndexNotFound, message)
}

/// mongod's error for two identical indexes in one command.
#[must_use]
pub fn identical(name: &str) -> CommandError {
    CommandError::new(
        ErrorCode::IndexAlreadyExists,
        format!("Identical index already exists: {name}"),
    )
}

/// A client's `listIndexes` for all indexes in one batch, and the size of the first batch that the
/// client requested. mongod refuses a size that is not a number.
#[must_use]
pub fn list(body: &RawDocument) -> (RawDocumentBuf, Option<u64>) {
    let cursor = get(body, "cursor").and_then(RawBsonRef::as_document);
    let size = cursor.and_then(|cursor| get(cursor, "batchSize"));
    let size = size.and_then(as_whole_number).and_then(|size| u64::try_from(size).ok());
    let (Some(cursor), Some(size)) = (cursor, size) else {
        return (body.to_owned(), None);
    };
    let cursor = with_replaced(cursor, &[("batchSize", Some(RawBsonRef::Int32(i32::MAX)))]);
    let cursor = Some(RawBsonRef::Document(&cursor));
    (with_replaced(body, &[("cursor", cursor)]), Some(size))
}
