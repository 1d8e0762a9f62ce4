//! The positional operator `$`: the element of an item's array that the filter matched.
//!
//! mongod records that element for a filter on the document itself, but here the filter is on the
//! item. One condition of the filter must [determine the element](crate::pattern::matched_element). mongod
//! evaluates it on documents with one element of the array each. The first that matches has the element.

use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{get, put, single};
use crate::command::error::{ErrorCode, WriteError};
use crate::pattern::matched_element::{ElementCondition, PathCondition, path_conditions};
use crate::pattern::unsupported::Unsupported;

/// The operator as a part of a path.
const OPERATOR: &str = "$";
/// The field with the number of a document's element.
const PLACE: &str = "mongoshapeElement";
/// The most bytes of a command.
const MAX_COMMAND_BYTES: usize = 16 * 1024 * 1024;

/// The array whose element the operators change.
#[derive(Clone, Debug, PartialEq)]
pub struct Positional {
    path: String,
}

/// The next step to find the element.
#[derive(Clone, Debug)]
pub enum Probe {
    /// Send this `aggregate`. [`Positional::number`] reads the element's number from the result.
    Ask(RawDocumentBuf),
    /// Report mongod's error.
    Failed(WriteError),
}

impl Positional {
    /// The array of the positional operator in an update. `None` if there is no positional
    /// operator.
    ///
    /// # Errors
    /// Several positional operators, for an error message.
    pub fn of(operators: &RawDocument) -> Result<Option<Self>, Unsupported> {
        let mut found: Option<&str> = None;
        for (_, paths) in operators.iter().flatten() {
            for (path, _) in paths.as_document().into_iter().flat_map(RawDocument::iter).flatten() {
                let Some((array, rest)) = split(path.as_str()) else {
                    continue;
                };
                if split(rest).is_some() || found.is_some_and(|before| before != array) {
                    return Err("several positional operators $ in an update".into());
                }
                found = Some(array);
            }
        }
        Ok(found.map(|path| Self { path: path.to_owned() }))
    }

    /// Plans the query for the element of the item's array that the filter matched.
    ///
    /// # Errors
    /// The filter does not determine the element, for an error message.
    pub fn probe(&self, item: &RawDocument, filter: Option<&RawDocument>) -> Result<Probe, Unsupported> {
        let unclear = || format!("the positional operator $ on '{}' with such a filter", self.path);
        let mut conditions = match filter {
            Some(filter) => path_conditions(filter).ok_or_else(unclear)?,
            None => Vec::new(),
        };
        // mongod records an element only of these.
        conditions.retain(|condition| meets_array(item, condition.path));
        let condition = match conditions.as_slice() {
            [] => return Ok(Probe::Failed(not_found())),
            [condition] => *condition,
            _ => return Err(unclear().into()),
        };
        let parts: Vec<&str> = self.path.split('.').collect();
        let elements = at(item, &parts).filter(|_| ElementCondition::of(&self.path, condition).is_some());
        let command = first_match(&parts, elements.ok_or_else(unclear)?, condition);
        if command.as_bytes().len() > MAX_COMMAND_BYTES {
            let what = format!("the positional operator $ on '{}', an array of this size,", self.path);
            return Err(what.into());
        }
        Ok(Probe::Ask(command))
    }

    /// The element's number in the first document of the result.
    #[must_use]
    pub fn number(found: &RawDocument) -> Option<i32> {
        get(found, PLACE)?.as_i32()
    }

    /// The operators on paths that mongod handles before the positional path.
    #[must_use]
    pub fn before(&self, operators: &RawDocument) -> RawDocumentBuf {
        let is_before = |path: &str| path.split('.').lt(self.path.split('.'));
        let mut before = RawDocumentBuf::new();
        for (operator, paths) in operators.iter().flatten() {
            let paths = paths.as_document().into_iter().flat_map(RawDocument::iter).flatten();
            let paths: RawDocumentBuf = paths.filter(|(path, _)| is_before(path.as_str())).collect();
            before.append(operator, &paths);
        }
        before
    }

    /// The operators with the element's number in place of `$`.
    #[must_use]
    pub fn resolved(&self, operators: &RawDocument, number: i32) -> RawDocumentBuf {
        let mut resolved = RawDocumentBuf::new();
        for (operator, paths) in operators.iter().flatten() {
            let RawBsonRef::Document(paths) = paths else {
                resolved.append(operator, paths);
                continue;
            };
            let mut changed = RawDocumentBuf::new();
            for (path, value) in paths.iter().flatten() {
                match split(path.as_str()) {
                    Some((array, "")) => put(&mut changed, &format!("{array}.{number}"), value),
                    Some((array, rest)) => put(&mut changed, &format!("{array}.{number}.{rest}"), value),
                    None => changed.append(path, value),
                }
            }
            resolved.append(operator, &changed);
        }
        resolved
    }
}

/// mongod's error if the filter matched no element.
#[must_use]
pub fn not_found() -> WriteError {
    let message = "The positional operator did not find the match needed from the query.";
    WriteError::new(ErrorCode::BadValue, message)
}

/// The parts of a path before and after the operator.
fn split(path: &str) -> Option<(&str, &str)> {
    path.split_once(".$.")
        .or_else(|| path.strip_suffix(".$").map(|array| (array, "")))
        .filter(|_| path.split('.').any(|part| part == OPERATOR))
}

/// The `aggregate` that finds the first element with which a document matches the condition.
fn first_match(parts: &[&str], elements: &RawArray, condition: PathCondition<'_>) -> RawDocumentBuf {
    let documents = elements.into_iter().flatten().zip(0_i32..).map(|(element, place)| {
        let mut document = with_only(parts, element);
        put(&mut document, PLACE, place);
        document
    });
    let documents: RawArrayBuf = documents.collect();
    let mut pipeline = RawArrayBuf::new();
    pipeline.push(single("$documents", single("$literal", &documents)));
    pipeline.push(single("$match", single(condition.path, condition.condition)));
    pipeline.push(single("$sort", single(PLACE, 1)));
    pipeline.push(single("$limit", 1));
    pipeline.push(single("$project", single(PLACE, 1)));
    let mut command = single("aggregate", 1);
    command.append(cstr!("pipeline"), &pipeline);
    command.append(cstr!("cursor"), RawDocumentBuf::new());
    command
}

/// Whether a path leads to an array or through one.
fn meets_array(document: &RawDocument, path: &str) -> bool {
    let (first, rest) = match path.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    };
    match (get(document, first), rest) {
        (Some(RawBsonRef::Array(_)), _) => true,
        (Some(RawBsonRef::Document(inner)), Some(rest)) => meets_array(inner, rest),
        _ => false,
    }
}

/// The array at a path through documents.
fn at<'a>(document: &'a RawDocument, parts: &[&str]) -> Option<&'a RawArray> {
    let (first, rest) = parts.split_first()?;
    let value = get(document, first)?;
    if rest.is_empty() {
        return value.as_array();
    }
    at(value.as_document()?, rest)
}

/// A document with nothing but an array of this one element at the path.
fn with_only(parts: &[&str], element: RawBsonRef<'_>) -> RawDocumentBuf {
    match parts.split_first() {
        Some((name, [])) => single(name, [element].into_iter().collect::<RawArrayBuf>()),
        Some((name, rest)) => single(name, with_only(rest, element)),
        None => RawDocumentBuf::new(),
    }
}

#[cfg(test)]
mod tests;
