//! Commands on the collection itself.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::OutlierCommand;
use crate::command::arguments::InheritedOptions;
use crate::command::collection::{VALIDATION, is_of_a_language};
use crate::command::document::{as_flag, get, single};
use crate::command::error::CommandError;
use crate::command::reply::CursorReply;
use crate::pattern::outlier::unsupported_index::{self, sees_array};
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

/// Options of a collection that cannot have documents with extras.
const IMPOSSIBLE_OPTIONS: &[&str] = &["capped", "viewOn"];

pub(super) async fn create(run: &mut OutlierCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let body = run.context.head.body();
    for option in IMPOSSIBLE_OPTIONS {
        if get(body, option).is_some_and(|value| as_flag(value) != Some(false)) {
            return Err(run.unsupported(&format!("the option '{option}'")).into());
        }
    }
    let collation = get(body, "collation").and_then(RawBsonRef::as_document);
    if collation.is_some_and(is_of_a_language) {
        // Updates of outliers are evaluated in a scratch collection, which has no collation.
        return Err(run.own_collation().into());
    }
    check_validator(run)?;
    run.as_it_is().await
}

pub(super) async fn coll_mod(run: &mut OutlierCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    check_validator(run)?;
    let names_validation = VALIDATION
        .iter()
        .any(|name| get(run.context.head.body(), name).is_some());
    if names_validation && !run.may_split().await? {
        let what =
            "a change of the validator between a conversion to plain documents and `mongoshape convert --finish`";
        return Err(run.unsupported(what).into());
    }
    let index = get(run.context.head.body(), "index").and_then(RawBsonRef::as_document);
    if let Some(index) = index {
        let key = modified_key(run, index).await?;
        let mut made = index.to_owned();
        made.append(cstr!("key"), &key);
        if let Some(what) = unsupported_index::unsupported(run.shape, &made) {
            return Err(run.unsupported(&what).into());
        }
    }
    run.as_it_is().await
}

/// The key of the index that a `collMod` modifies. Empty if it modifies none.
async fn modified_key(run: &mut OutlierCommand<'_>, index: &RawDocument) -> Result<RawDocumentBuf, RunError> {
    if let Some(key) = get(index, "keyPattern").and_then(RawBsonRef::as_document) {
        return Ok(key.to_owned());
    }
    let name = get(index, "name");
    let mut list = single("listIndexes", run.namespace.collection);
    InheritedOptions::of(run.context.head.body()).append_identity(&mut list);
    // If the collection does not exist, mongod's error for the `collMod` follows.
    let answer = run.context.link.call(UpstreamRequest::plain(&list)).await?;
    let named =
        CursorReply::parse(&answer).and_then(|cursor| cursor.documents().find(|index| get(index, "name") == name));
    let key = named
        .and_then(|named| get(named, "key"))
        .and_then(RawBsonRef::as_document);
    Ok(key.map(RawDocument::to_owned).unwrap_or_default())
}

/// Refuses a validator that references the array: mongod would apply it to base documents.
fn check_validator(run: &OutlierCommand<'_>) -> Result<(), CommandError> {
    let validator = get(run.context.head.body(), "validator").and_then(RawBsonRef::as_document);
    match validator {
        Some(validator) if sees_array(run.shape, validator) => {
            Err(run.unsupported(&format!("a validator that may depend on {}", run.shape.array())))
        }
        _ => Ok(()),
    }
}

pub(super) async fn create_indexes(run: &mut OutlierCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let indexes = get(run.context.head.body(), "indexes").and_then(RawBsonRef::as_array);
    let indexes = indexes.into_iter().flatten().flatten();
    for index in indexes.filter_map(RawBsonRef::as_document) {
        if let Some(what) = unsupported_index::unsupported(run.shape, index) {
            return Err(run.unsupported(&what).into());
        }
    }
    run.as_it_is().await
}
