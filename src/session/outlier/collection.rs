//! Commands about the collection itself.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::Outlier;
use crate::command::arguments::Carried;
use crate::command::document::{as_flag, get, single};
use crate::command::error::CommandError;
use crate::pattern::outlier::touch::{depends_on_array, names_own};
use crate::session::error::RunError;
use crate::session::link::Request;

/// Options of a new collection under which documents cannot be kept in two places.
const IMPOSSIBLE_OPTIONS: &[&str] = &["capped", "viewOn"];

pub(super) async fn create(run: &mut Outlier<'_>) -> Result<RawDocumentBuf, RunError> {
    let body = run.head.body();
    for option in IMPOSSIBLE_OPTIONS {
        if get(body, option).is_some_and(|value| as_flag(value) != Some(false)) {
            return Err(run.unsupported(&format!("the option '{option}'")).into());
        }
    }
    check_validator(run)?;
    run.as_it_is().await
}

pub(super) async fn coll_mod(run: &mut Outlier<'_>) -> Result<RawDocumentBuf, RunError> {
    check_validator(run)?;
    run.as_it_is().await
}

/// mongod would hold it against base documents.
fn check_validator(run: &Outlier<'_>) -> Result<(), CommandError> {
    let validator = get(run.head.body(), "validator").and_then(RawBsonRef::as_document);
    match validator {
        Some(validator) if sees_array(run, validator) => {
            Err(run.unsupported(&format!("a validator that may see {}", run.shape.array())))
        }
        _ => Ok(()),
    }
}

fn sees_array(run: &Outlier<'_>, words: &RawDocument) -> bool {
    depends_on_array(run.shape, words) || names_own(run.shape, RawBsonRef::Document(words))
}

pub(super) async fn create_indexes(run: &mut Outlier<'_>) -> Result<RawDocumentBuf, RunError> {
    let indexes = get(run.head.body(), "indexes").and_then(RawBsonRef::as_array);
    for index in indexes
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(RawBsonRef::as_document)
    {
        let key = get(index, "key").and_then(RawBsonRef::as_document);
        let Some(key) = key else { continue };
        let is_unique = get(index, "unique").and_then(as_flag) == Some(true);
        let is_text = key.iter().flatten().any(|(name, value)| {
            value == RawBsonRef::String("text")
                && (name.as_str() == "$**" || sees_array(run, &single(name.as_str(), 1)))
        });
        let partial = get(index, "partialFilterExpression").and_then(RawBsonRef::as_document);
        let what = if is_unique && sees_array(run, key) {
            "a unique index"
        } else if is_text {
            "a text index"
        } else if partial.is_some_and(|partial| sees_array(run, partial)) {
            "a partial index that depends"
        } else {
            continue;
        };
        return Err(run.unsupported(&format!("{what} on {}", run.shape.array())).into());
    }
    run.as_it_is().await
}

/// The collection, then its extras: what is left of these is nothing.
pub(super) async fn drop(run: &mut Outlier<'_>) -> Result<RawDocumentBuf, RunError> {
    let answer = run.as_it_is().await?;
    let mut command = single("drop", run.shape.extras_collection());
    Carried::of(run.head.body()).append_identity(&mut command);
    // mongod says so if there is none.
    run.link.call(Request::plain(&command)).await?;
    Ok(answer)
}
