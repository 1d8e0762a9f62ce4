//! A `$jsonSchema` of documents as a schema of stored items, and clauses for key fields.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::page_condition::{Disjunction, check_id};
use crate::command::document::{array_of, get, put, single};
use crate::pattern::shapes::{BucketShape, ItemIds};
use crate::pattern::unsupported::Unsupported;

/// The clauses of a schema.
///
/// # Errors
/// A keyword that has no equivalent for stored items.
pub(super) fn clauses(shape: &BucketShape, schema: &RawDocument) -> Result<Vec<Disjunction>, Unsupported> {
    let mut of_keys = Vec::new();
    let mut stored = RawDocumentBuf::new();
    for (keyword, value) in schema.iter().flatten() {
        let keyword = keyword.as_str();
        match (keyword, value) {
            ("required", RawBsonRef::Array(fields)) => {
                let mut of_items = RawArrayBuf::new();
                for field in fields.into_iter().flatten().filter_map(RawBsonRef::as_str) {
                    if is_key(shape, field) {
                        of_keys.push(Disjunction::of_key(field, single(field, single("$exists", true))));
                    } else if field != "_id" || shape.item_ids() != ItemIds::Dropped {
                        of_items.push(shape.rename().stored(field));
                    }
                }
                if !of_items.is_empty() {
                    put(&mut stored, keyword, &of_items);
                }
            }
            ("properties", RawBsonRef::Document(properties)) => {
                for (field, condition) in properties.iter().flatten() {
                    if is_key(shape, field.as_str()) {
                        let of_field = single(field.as_str(), condition);
                        of_keys.push(of_value(field.as_str(), single("properties", of_field)));
                    }
                }
                put(&mut stored, keyword, in_stored_names(shape, properties)?);
            }
            ("additionalProperties", RawBsonRef::Boolean(true)) => {}
            ("additionalProperties", condition) => {
                of_keys.extend(additional(shape, schema, condition)?);
                put(&mut stored, keyword, condition);
            }
            ("allOf", RawBsonRef::Array(schemas)) => {
                for schema in schemas.into_iter().flatten().filter_map(RawBsonRef::as_document) {
                    of_keys.extend(clauses(shape, schema)?);
                }
            }
            _ => put_unsplit(shape, keyword, value, &mut stored)?,
        }
    }
    if !stored.is_empty() {
        of_keys.push(Disjunction {
            schema: vec![stored],
            ..Disjunction::default()
        });
    }
    Ok(of_keys)
}

fn is_key(shape: &BucketShape, field: &str) -> bool {
    shape.key().iter().any(|key| key == field)
}

/// The clause of a key field for its value in the page.
fn of_value(field: &str, schema: RawDocumentBuf) -> Disjunction {
    Disjunction::of_key(field, single("$jsonSchema", schema))
}

/// The clauses of key fields that `properties` does not name.
fn additional(
    shape: &BucketShape,
    schema: &RawDocument,
    condition: RawBsonRef<'_>,
) -> Result<Vec<Disjunction>, Unsupported> {
    let properties = get(schema, "properties").and_then(RawBsonRef::as_document);
    let is_named = |field: &str| properties.is_some_and(|properties| get(properties, field).is_some());
    if !is_named("_id") {
        check_id(shape, "_id")?;
    }
    let unnamed = shape.key().iter().filter(|field| !is_named(field));
    let clauses = unnamed.map(|field| match condition {
        RawBsonRef::Boolean(_) => Disjunction::of_key(field, single(field, single("$exists", false))),
        condition => of_value(field, single("properties", single(field, condition))),
    });
    Ok(clauses.collect())
}

/// A schema without a condition on key fields, with stored names.
fn unsplit(shape: &BucketShape, schema: &RawDocument) -> Result<RawDocumentBuf, Unsupported> {
    let mut stored = RawDocumentBuf::new();
    for (keyword, value) in schema.iter().flatten() {
        match (keyword.as_str(), value) {
            ("required", RawBsonRef::Array(fields)) => {
                let mut names = RawArrayBuf::new();
                for field in fields.into_iter().flatten().filter_map(RawBsonRef::as_str) {
                    check_unsplit(shape, field)?;
                    names.push(shape.rename().stored(field));
                }
                put(&mut stored, "required", &names);
            }
            ("properties", RawBsonRef::Document(properties)) => {
                for (field, _) in properties.iter().flatten() {
                    check_unsplit(shape, field.as_str())?;
                }
                put(&mut stored, "properties", in_stored_names(shape, properties)?);
            }
            ("additionalProperties", RawBsonRef::Boolean(true)) => {}
            ("allOf", RawBsonRef::Array(_)) => put_all(shape, "allOf", value, &mut stored)?,
            (keyword, value) => put_unsplit(shape, keyword, value, &mut stored)?,
        }
    }
    Ok(stored)
}

/// Appends a keyword that is not split into conditions on items and on key fields.
fn put_unsplit(
    shape: &BucketShape,
    keyword: &str,
    value: RawBsonRef<'_>,
    stored: &mut RawDocumentBuf,
) -> Result<(), Unsupported> {
    match (keyword, value) {
        ("title" | "description", _) => {}
        ("anyOf" | "oneOf", RawBsonRef::Array(_)) => put_all(shape, keyword, value, stored)?,
        ("not", RawBsonRef::Document(schema)) => put(stored, keyword, unsplit(shape, schema)?),
        // Restricts the type of documents, or values of other types.
        (
            "bsonType" | "type" | "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf"
            | "minLength" | "maxLength" | "pattern" | "items" | "additionalItems" | "minItems" | "maxItems"
            | "uniqueItems",
            _,
        ) => put(stored, keyword, value),
        _ => return Err(format!("a validator with '{keyword}' for the whole document in a $jsonSchema").into()),
    }
    Ok(())
}

/// Appends an array of schemas.
fn put_all(
    shape: &BucketShape,
    keyword: &str,
    value: RawBsonRef<'_>,
    stored: &mut RawDocumentBuf,
) -> Result<(), Unsupported> {
    let schemas = value.as_array().into_iter().flatten().flatten();
    let schemas = schemas.filter_map(RawBsonRef::as_document);
    let schemas: Vec<RawDocumentBuf> = schemas.map(|schema| unsplit(shape, schema)).collect::<Result<_, _>>()?;
    put(stored, keyword, array_of(&schemas));
    Ok(())
}

/// Properties with stored names. An item with an own value of a key field has the field's name.
fn in_stored_names(shape: &BucketShape, properties: &RawDocument) -> Result<RawDocumentBuf, Unsupported> {
    let mut stored = RawDocumentBuf::new();
    for (field, condition) in properties.iter().flatten() {
        check_id(shape, field.as_str())?;
        put(&mut stored, shape.rename().stored(field.as_str()), condition);
    }
    Ok(stored)
}

fn check_unsplit(shape: &BucketShape, field: &str) -> Result<(), Unsupported> {
    if is_key(shape, field) {
        return Err(format!("a validator with the key field '{field}' in `anyOf`, `oneOf` or `not`").into());
    }
    check_id(shape, field)
}
