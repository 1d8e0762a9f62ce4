//! `createIndexes`, `listIndexes` and `dropIndexes`.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::arguments::with_replaced;
use super::document::{as_whole_number, get, single, type_name};
use super::error::{CommandError, ErrorCode};
use super::value_text::value_text;

/// The name of a specification that mongod cannot take.
const NO_INDEX: &str = "mongoshape_no_index";

/// The indexes that a `createIndexes` asks for. `None` where they are no array of documents: then mongod
/// refuses it.
#[must_use]
pub fn wanted(body: &RawDocument) -> Option<Vec<&RawDocument>> {
    let specs = get(body, "indexes")?.as_array()?.into_iter();
    let specs: Option<Vec<_>> = specs.map(|spec| spec.ok()?.as_document()).collect();
    specs.filter(|specs| !specs.is_empty())
}

/// A client's `createIndexes` for these indexes.
#[must_use]
pub fn create(body: &RawDocument, specs: &[RawDocumentBuf]) -> RawDocumentBuf {
    let specs = super::document::array_of(specs);
    with_replaced(body, &[("indexes", Some(RawBsonRef::Array(&specs)))])
}

/// A client's `createIndexes` with one index more, which cannot be made. mongod checks all specifications, in
/// order, before it does anything (`create_indexes.cpp`, `parseAndValidateIndexSpecs`): what is wrong with
/// the client's own it says in its own words, and [`is_sound`] tells when nothing is.
#[must_use]
pub fn judged(body: &RawDocument) -> RawDocumentBuf {
    let mut specs = RawArrayBuf::new();
    for spec in wanted(body).unwrap_or_default() {
        specs.push(spec);
    }
    specs.push(single("name", NO_INDEX));
    with_replaced(body, &[("indexes", Some(RawBsonRef::Array(&specs)))])
}

/// Whether that is the error for the index which was put behind the client's.
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

/// mongod's answer for an index without a name, which it looks at later than at all the rest of a
/// specification.
#[must_use]
pub fn empty_name(spec: &RawDocument) -> CommandError {
    let spec = with_version(spec);
    let message = format!("Error in specification {spec} :: caused by :: index name cannot be empty");
    CommandError::new(ErrorCode::CannotCreateIndex, message)
}

/// mongod's answer for an index with the name of the one that the collection is clustered by.
#[must_use]
pub fn name_of_clustered(spec: &RawDocument, clustered: &RawDocument) -> CommandError {
    const CODE: i32 = 6_100_906;
    let spec = with_version(spec);
    // As it is in the collection's options.
    let clustered = with_replaced(clustered, &[("clustered", None)]);
    let clustered = value_text(RawBsonRef::Document(&clustered));
    let message = format!(
        "Error in specification {spec} :: caused by :: Cannot create an index where the name matches the clusteredIndex but \
         the key does not - indexSpec: {spec}, clusteredIndex: {clustered}"
    );
    CommandError::malformed(CODE, &message)
}

/// A client's specification as mongod shows it, which has completed it.
fn with_version(spec: &RawDocument) -> String {
    let mut spec = spec.to_owned();
    if get(&spec, "v").is_none() {
        spec.append(cstr!("v"), 2);
    }
    value_text(RawBsonRef::Document(&spec))
}

/// What a `dropIndexes` is to drop.
#[derive(Clone, Debug)]
pub enum Dropped<'a> {
    /// All but that on `_id`.
    All,
    /// Those of these names.
    Names(Vec<&'a str>),
    /// The one with this key pattern.
    Key(&'a RawDocument),
}

impl<'a> Dropped<'a> {
    /// Reads it; the other fields are mongod's to check.
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

/// A client's `dropIndexes` for indexes of these names. With none it drops nothing, and mongod checks all the
/// rest of it.
#[must_use]
pub fn drop(body: &RawDocument, names: &[&str]) -> RawDocumentBuf {
    let names: RawArrayBuf = names.iter().copied().collect();
    with_replaced(body, &[("index", Some(RawBsonRef::Array(&names)))])
}

/// mongod's answer for an index to be dropped that is not there, by its name.
#[must_use]
pub fn not_found(name: &str) -> CommandError {
    CommandError::new(ErrorCode::IndexNotFound, format!("index not found with name [{name}]"))
}

/// The same by its key pattern.
#[must_use]
pub fn no_such_key(key: &RawDocument) -> CommandError {
    let key = value_text(RawBsonRef::Document(key));
    CommandError::new(ErrorCode::IndexNotFound, format!("can't find index with key: {key}"))
}

/// mongod's answer for the index on `_id`.
#[must_use]
pub fn cannot_drop_id() -> CommandError {
    CommandError::new(ErrorCode::InvalidOptions, "cannot drop _id index")
}

/// mongod's answer for the index that the collection is clustered by.
#[must_use]
pub fn cannot_drop_clustered() -> CommandError {
    const CODE: i32 = 5_979_800;
    CommandError::malformed(CODE, "It is illegal to drop the clusteredIndex")
}

/// mongod's answer for an index beside one with the same key.
#[must_use]
pub fn other_name(name: &str) -> CommandError {
    let message = format!("Index already exists with a different name: {name}");
    CommandError::new(ErrorCode::IndexOptionsConflict, message)
}

/// mongod's answer for an index beside another one of its name.
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

/// mongod's answer for an index that one command asks for twice.
#[must_use]
pub fn identical(name: &str) -> CommandError {
    CommandError::new(
        ErrorCode::IndexAlreadyExists,
        format!("Identical index already exists: {name}"),
    )
}

/// A client's `listIndexes` for all indexes in one batch, and how many the client wants in its first. What is
/// no number is mongod's to refuse.
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
