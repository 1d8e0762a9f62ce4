//! Builds the document that an upsert inserts: the equalities of the filter, then the client's
//! operators, or the replacement.
//!
//! mongod does this apart from storage (`upsert_stage.cpp`,
//! `UpdateDriver::populateDocumentWithQueryFields`). The rules here are those of 6.0.5, each
//! observed on a server, in the application's field names. The caller has had mongod validate the
//! same operators with a filter that matches nothing, so mongod has refused malformed ones already.
//! Any that remain are [`UpsertError::Unsupported`].
//!
//! [`equalities`] reads the filter, [`paths`] orders the operators as mongod does, [`apply`]
//! applies them to the [`tree`]. [`simplified()`] recognises filters that newer servers may read otherwise.

mod apply;
mod arithmetic;
mod array;
mod compare;
mod equalities;
mod paths;
mod replacement;
mod simplified;
mod tree;

use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};

use super::field_names::{check_changed, check_id};
use super::item::IdSource;
use super::key::same_bytes;
use super::update_by_id::UpdateRequest;
use crate::command::document::{first_field, get, put};
use crate::command::error::{ErrorCode, WriteError};
use crate::pattern::unsupported::Unsupported;
use tree::Node;

pub use self::simplified::{Simplified, simplified};

/// The result of building an upsert.
#[derive(Clone, Debug, PartialEq)]
pub enum Built {
    /// The document that mongod would insert, `_id` first.
    Document(RawDocumentBuf),
    /// For a pipeline: the document that its stages begin with. If their result has no `_id`, it
    /// gets the `_id` of this document, or a new one if there is none. The result must not have
    /// another `_id`.
    Base(RawDocumentBuf),
}

/// The reason why no document was built.
#[derive(Clone, Debug)]
pub enum UpsertError {
    /// mongod's own error.
    Mongod(WriteError),
    /// The proxy does not evaluate the upsert.
    Unsupported(Unsupported),
}

impl UpsertError {
    fn mongod(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::Mongod(WriteError::new(code, message))
    }

    fn unsupported(what: impl Into<Unsupported>) -> Self {
        Self::Unsupported(what.into())
    }
}

/// Builds the document that mongod would insert.
///
/// # Errors
/// mongod's error, or the part that is not supported.
pub fn build(request: UpdateRequest<'_>, mint: &mut dyn IdSource) -> Result<Built, UpsertError> {
    if request.collation.is_some() && request.change.as_document().is_some_and(compares) {
        return Err(UpsertError::unsupported(
            "an upsert that compares values under a collation",
        ));
    }
    if request.array_filters.is_some_and(|filters| !filters.is_empty()) {
        return Err(UpsertError::unsupported("an upsert with array filters"));
    }
    match request.change {
        RawBsonRef::Document(operators) if first_field(operators).is_some_and(|(name, _)| name.starts_with('$')) => {
            let changes = paths::in_order(operators)?;
            let mut document = base(request)?;
            for change in &changes {
                apply::apply(&mut document, change, mint)?;
            }
            finished(&document, mint).map(Built::Document)
        }
        RawBsonRef::Document(replacement) => replacement::build(request, replacement, mint).map(Built::Document),
        RawBsonRef::Array(_) => {
            let document = base(request)?.into_document();
            // mongod's error would depend on the result of the stages.
            if get(&document, "_id").is_some_and(|id| check_id(id).is_err()) {
                return Err(UpsertError::unsupported(
                    "an upsert by a pipeline with an invalid `_id`",
                ));
            }
            Ok(Built::Base(document))
        }
        _ => Err(UpsertError::unsupported("an update by a value that is not a document")),
    }
}

/// Whether an operator compares values. The other operators have the same result under any
/// collation.
fn compares(operators: &RawDocument) -> bool {
    const COMPARING: [&str; 6] = ["$addToSet", "$max", "$min", "$pull", "$pullAll", "$push"];
    operators
        .iter()
        .flatten()
        .any(|(name, _)| COMPARING.contains(&name.as_str()))
}

/// An update by operators, with the options that belong to it.
#[derive(Clone, Copy, Debug)]
pub struct OperatorUpdate<'a> {
    /// The document of operators: the statement's `u`, or the command's `update`.
    pub operators: &'a RawDocument,
    /// The statement's `arrayFilters`.
    pub array_filters: Option<&'a RawArray>,
    /// The statement's `collation`.
    pub collation: Option<&'a RawDocument>,
}

/// Applies operators to an existing document. `$setOnInsert` does nothing.
///
/// # Errors
/// mongod's error, or the part that is not supported.
pub fn changed(
    document: &RawDocument,
    update: OperatorUpdate<'_>,
    mint: &mut dyn IdSource,
) -> Result<RawDocumentBuf, UpsertError> {
    let OperatorUpdate {
        operators,
        array_filters,
        collation,
    } = update;
    if collation.is_some() && compares(operators) {
        return Err(UpsertError::unsupported(
            "an upsert that compares values under a collation",
        ));
    }
    if array_filters.is_some_and(|filters| !filters.is_empty()) {
        return Err(UpsertError::unsupported("an upsert with array filters"));
    }
    let mut changed = Node::of(RawBsonRef::Document(document));
    for change in &paths::in_order(operators)? {
        if change.operator != "$setOnInsert" {
            change_checked(&mut changed, change, mint)?;
        }
    }
    Ok(changed.into_document())
}

/// Applies one change. Then checks the name of the top-level field that it has set or added, as
/// mongod does.
fn change_checked(
    document: &mut Node,
    change: &paths::PathChange<'_>,
    mint: &mut dyn IdSource,
) -> Result<(), UpsertError> {
    let Some((root, behind)) = change.parts.split_first().filter(|(root, _)| root.starts_with('$')) else {
        return apply::apply(document, change, mint);
    };
    // An update may have thousands of paths, so only the field is copied and compared.
    let is_set = if behind.is_empty() {
        let before = field(document, root).map(|value| value.to_raw());
        apply::apply(document, change, mint)?;
        match (before, field(document, root)) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(before), Some(after)) => !same_bytes(before.as_raw_bson_ref(), after.to_raw().as_raw_bson_ref()),
        }
    } else {
        let is_there = field(document, root).is_some();
        apply::apply(document, change, mint)?;
        !is_there && field(document, root).is_some()
    };
    if is_set {
        let after = document.clone().into_document();
        check_changed(&after, |name| name == *root).map_err(UpsertError::Mongod)?;
    }
    Ok(())
}

/// The top-level field of that name.
fn field<'a>(document: &'a mut Node, name: &str) -> Option<&'a mut Node> {
    document.find(&[name]).ok().flatten()
}

/// Checks a filter for an expression that mongod refuses in an upsert, whether a document matches
/// or not.
///
/// # Errors
/// mongod's error.
pub fn check_filter(filter: &RawDocument) -> Result<(), WriteError> {
    for (name, value) in filter.iter().flatten() {
        match name.as_str() {
            "$expr" => return Err(equalities::expression_is_not_allowed()),
            "$and" | "$or" | "$nor" => {
                let alternatives = value.as_array().into_iter().flatten().flatten();
                alternatives
                    .filter_map(RawBsonRef::as_document)
                    .try_for_each(check_filter)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The document that mongod would insert from `result`, which a pipeline's stages have made of
/// [`Built::Base`].
///
/// # Errors
/// mongod's error, or the part that is not supported.
pub fn after_stages(
    base: &RawDocument,
    result: &RawDocument,
    mint: &mut dyn IdSource,
) -> Result<RawDocumentBuf, UpsertError> {
    let (first, own) = (get(base, "_id"), get(result, "_id"));
    let id = own.or(first);
    if id.is_some_and(|id| id.as_array().is_some()) {
        return Err(replacement::found_to_be_an_array());
    }
    if let (Some(first), Some(own)) = (first, own)
        && !compare::equal(first, own)?
    {
        return Err(replacement::altered(own));
    }
    with_id_first(result, id, mint)
}

/// The document of the filter's equalities.
fn base(request: UpdateRequest<'_>) -> Result<Node, UpsertError> {
    let mut document = Node::empty();
    for (path, value) in equalities::of_operators(request)? {
        let parts: Vec<&str> = path.split('.').collect();
        document.set(&parts, Node::of(value))?;
    }
    Ok(document)
}

/// The document with `_id` first, which is new if there is none, checked as mongod checks an
/// inserted document.
fn finished(document: &Node, mint: &mut dyn IdSource) -> Result<RawDocumentBuf, UpsertError> {
    let document = document.clone().into_document();
    with_id_first(&document, get(&document, "_id"), mint)
}

/// The document with this `_id` first.
fn with_id_first(
    document: &RawDocument,
    id: Option<RawBsonRef<'_>>,
    mint: &mut dyn IdSource,
) -> Result<RawDocumentBuf, UpsertError> {
    let mut ordered = RawDocumentBuf::new();
    match id {
        Some(id) => {
            check_id(id).map_err(UpsertError::Mongod)?;
            put(&mut ordered, "_id", id);
        }
        None => put(&mut ordered, "_id", mint.object_id()),
    }
    for (name, value) in document.iter().flatten() {
        if name.as_str() != "_id" {
            ordered.append(name, value);
        }
    }
    Ok(ordered)
}

#[cfg(test)]
mod tests;
