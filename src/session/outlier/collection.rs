//! Commands on the collection itself.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::OutlierCommand;
use crate::command::arguments::InheritedOptions;
use crate::command::document::{as_flag, get, single};
use crate::command::error::CommandError;
use crate::command::reply::CursorReply;
use crate::pattern::outlier::classify::{depends_on_array, names_own};
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
    let locale = collation.and_then(|collation| get(collation, "locale"));
    if locale.is_some_and(|locale| locale != RawBsonRef::String("simple")) {
        // Updates of outliers are evaluated in a scratch collection, which has no collation.
        return Err(run.own_collation().into());
    }
    check_validator(run)?;
    run.as_it_is().await
}

pub(super) async fn coll_mod(run: &mut OutlierCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    check_validator(run)?;
    let index = get(run.context.head.body(), "index").and_then(RawBsonRef::as_document);
    if let Some(index) = index {
        let key = modified_key(run, index).await?;
        let mut made = index.to_owned();
        made.append(cstr!("key"), &key);
        if let Some(what) = impossible(run, &made) {
            return Err(run.unsupported(&format!("{what} on {}", run.shape.array())).into());
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
        Some(validator) if sees_array(run, validator) => {
            Err(run.unsupported(&format!("a validator that may depend on {}", run.shape.array())))
        }
        _ => Ok(()),
    }
}

fn sees_array(run: &OutlierCommand<'_>, expression: &RawDocument) -> bool {
    depends_on_array(run.shape, expression) || names_own(run.shape, RawBsonRef::Document(expression))
}

pub(super) async fn create_indexes(run: &mut OutlierCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let indexes = get(run.context.head.body(), "indexes").and_then(RawBsonRef::as_array);
    let indexes = indexes.into_iter().flatten().flatten();
    for index in indexes.filter_map(RawBsonRef::as_document) {
        if let Some(what) = impossible(run, index) {
            return Err(run.unsupported(&format!("{what} on {}", run.shape.array())).into());
        }
    }
    run.as_it_is().await
}

/// The kind of an index that depends on all elements, while mongod indexes only those of the base
/// document. `None`: the index is correct.
fn impossible(run: &OutlierCommand<'_>, index: &RawDocument) -> Option<&'static str> {
    let document = |name| get(index, name).and_then(RawBsonRef::as_document);
    let key = document("key")?;
    let is = |name| get(index, name).and_then(as_flag) == Some(true);
    let is_text = |(name, value): (&str, RawBsonRef<'_>)| {
        value == RawBsonRef::String("text") && (name == "$**" || sees_array(run, &single(name, 1)))
    };
    let fields: Vec<_> = key
        .iter()
        .flatten()
        .map(|(name, value)| (name.as_str(), value))
        .collect();
    // An index on the array itself contains every document that has the array, whatever its
    // elements.
    let is_of_elements = fields
        .iter()
        .any(|(name, _)| *name != run.shape.array() && sees_array(run, &single(name, 1)));
    if (is("unique") || is("prepareUnique")) && sees_array(run, key) {
        Some("a unique index")
    } else if fields.into_iter().any(is_text) || document("weights").is_some_and(|weights| sees_array(run, weights)) {
        Some("a text index")
    } else if is("sparse") && is_of_elements {
        Some("a sparse index")
    } else if get(index, "expireAfterSeconds").is_some() && sees_array(run, key) {
        Some("a TTL index")
    } else if document("partialFilterExpression").is_some_and(|partial| sees_array(run, partial)) {
        Some("a partial index that depends")
    } else {
        None
    }
}

/// Drops the collection, then its extras. Extras left by a failure are orphans.
pub(super) async fn drop(run: &mut OutlierCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let answer = run.as_it_is().await?;
    let mut command = single("drop", run.shape.extras_collection());
    InheritedOptions::of(run.context.head.body()).append_identity(&mut command);
    // mongod reports a missing collection, which is ignored.
    run.context.link.call(UpstreamRequest::plain(&command)).await?;
    run.context.settings.without_collation.forget(run.namespace);
    run.context.settings.outlier_shape_markers.forget(run.namespace);
    Ok(answer)
}
