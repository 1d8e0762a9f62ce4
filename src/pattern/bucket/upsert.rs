//! Builds the document that an upsert inserts: what the filter demands, then the client's operators, or the
//! replacement.
//!
//! mongod does this apart from storage (`upsert_stage.cpp`, `UpdateDriver::populateDocumentWithQueryFields`).
//! The rules here are those of 6.0.5, each observed on a server, in the application's field names. The caller
//! has had mongod validate the same operators without a match, so malformed ones were refused already; any
//! that remain are [`UpsertError::Unsupported`].
//!
//! [`equalities`] reads the filter, [`paths`] orders the operators as mongod does, [`apply`] applies them to
//! the [`tree`].

mod apply;
mod arithmetic;
mod array;
mod compare;
mod equalities;
mod paths;
mod replacement;
mod tree;

use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};

use super::field_names::{check_changed, check_id, values_of};
use super::item::IdSource;
use super::update_by_id::UpdateRequest;
use crate::command::document::{first_field, get, put};
use crate::command::error::{ErrorCode, WriteError};
use crate::pattern::unsupported::Unsupported;
use tree::Node;

/// What mongod would go on with.
#[derive(Clone, Debug, PartialEq)]
pub enum Built {
    /// The document that it would insert, its `_id` first.
    Document(RawDocumentBuf),
    /// Of a pipeline: the document that its stages begin with. What comes out of them gets the `_id` of this
    /// one where it has none, must have no other, and gets a new one where neither has any.
    Base(RawDocumentBuf),
}

/// Why there is no document.
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

/// Builds what mongod would insert.
///
/// # Errors
/// mongod's error for the case, or what in it is not done here.
pub fn build(asked: UpdateRequest<'_>, mint: &mut dyn IdSource) -> Result<Built, UpsertError> {
    if asked.collation.is_some() && asked.change.as_document().is_some_and(compares) {
        return Err(UpsertError::unsupported(
            "an upsert that compares values under a collation",
        ));
    }
    if asked.array_filters.is_some_and(|filters| !filters.is_empty()) {
        return Err(UpsertError::unsupported("an upsert with array filters"));
    }
    match asked.change {
        RawBsonRef::Document(operators) if first_field(operators).is_some_and(|(name, _)| name.starts_with('$')) => {
            let changes = paths::in_order(operators)?;
            let mut document = base(asked.filter)?;
            for change in &changes {
                apply::apply(&mut document, change, mint)?;
            }
            finished(&document, mint).map(Built::Document)
        }
        RawBsonRef::Document(replacement) => replacement::build(asked.filter, replacement, mint).map(Built::Document),
        RawBsonRef::Array(_) => {
            let document = base(asked.filter)?.into_document();
            // What mongod says of it depends on what the stages make of it.
            if get(&document, "_id").is_some_and(|id| check_id(id).is_err()) {
                return Err(UpsertError::unsupported(
                    "an upsert by a pipeline of an `_id` that cannot be one",
                ));
            }
            Ok(Built::Base(document))
        }
        _ => Err(UpsertError::unsupported("an update by what is no document")),
    }
}

/// Whether one of the operators compares what is there: the others do the same under any collation.
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

/// Applies operators to a document that exists. `$setOnInsert` does nothing.
///
/// # Errors
/// mongod's error for the case, or what in it is not done here.
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

/// Makes one change, after which mongod checks the name of the field that it has set or made at the top.
fn change_checked(
    document: &mut Node,
    change: &paths::PathChange<'_>,
    mint: &mut dyn IdSource,
) -> Result<(), UpsertError> {
    let Some((root, behind)) = change.parts.split_first().filter(|(root, _)| root.starts_with('$')) else {
        return apply::apply(document, change, mint);
    };
    let before = document.clone().into_document();
    apply::apply(document, change, mint)?;
    let before = values_of(&before, root);
    let after = document.clone().into_document();
    let is_set = !values_of(&after, root).is_empty() && values_of(&after, root) != before;
    if is_set && (behind.is_empty() || before.is_empty()) {
        check_changed(&after, |name| name == *root).map_err(UpsertError::Mongod)?;
    }
    Ok(())
}

/// What mongod says to a filter that no upsert may have, whether anything matches or not.
///
/// # Errors
/// mongod's own.
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

/// What mongod would insert of what a pipeline's stages have made of [`Built::Base`].
///
/// # Errors
/// mongod's error for it, or what is not done here.
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

/// The document that the filter's equalities make.
fn base(filter: Option<&RawDocument>) -> Result<Node, UpsertError> {
    let mut document = Node::empty();
    for (path, value) in equalities::of_operators(filter)? {
        let parts: Vec<&str> = path.split('.').collect();
        document.set(&parts, Node::of(value))?;
    }
    Ok(document)
}

/// With its `_id` first and a new one if it has none, as mongod checks what it is about to insert.
fn finished(document: &Node, mint: &mut dyn IdSource) -> Result<RawDocumentBuf, UpsertError> {
    let document = document.clone().into_document();
    with_id_first(&document, get(&document, "_id"), mint)
}

/// The fields of a document behind its `_id`.
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
