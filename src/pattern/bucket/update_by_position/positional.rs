//! The positional operator `$`: the element of an item's array that the filter matched.
//!
//! mongod records that element for a filter on the document itself, but here the filter is on the
//! item. So mongod evaluates the filter on copies of the item with one element each. The first copy
//! that matches has the element, if only one condition of the filter is on an array.

use bson::raw::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{as_flag, get, put, single};
use crate::command::error::{ErrorCode, WriteError};
use crate::pattern::unsupported::Unsupported;

/// The operator as a part of a path.
const OPERATOR: &str = "$";
/// The field with the number of a copy's element.
const PLACE: &str = "mongoshapeElement";

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
        let root = self.path.split('.').next().unwrap_or_default();
        let mut about_it = 0_usize;
        for (name, value) in filter.into_iter().flat_map(RawDocument::iter).flatten() {
            let name = name.as_str();
            let of_root = name.split('.').next().unwrap_or_default();
            if of_root == root {
                about_it = about_it.saturating_add(1);
                if may_match_without_element(value) && !self.demands_field(name, value) {
                    return Err(unclear().into());
                }
            } else if name != "$comment" && (name.starts_with('$') || get(item, of_root).is_some_and(holds_array)) {
                // This condition may be about an array, too.
                return Err(unclear().into());
            }
        }
        match about_it {
            0 => return Ok(Probe::Failed(not_found())),
            1 => {}
            _ => return Err(unclear().into()),
        }
        let parts: Vec<&str> = self.path.split('.').collect();
        let Some(elements) = at(item, &parts) else {
            return Ok(Probe::Failed(not_found()));
        };
        let items = elements.into_iter().flatten().zip(0_i32..).map(|(element, place)| {
            let mut one = with(item, &parts, element);
            one.append(cstr!("mongoshapeElement"), place);
            one
        });
        let items: RawArrayBuf = items.collect();
        let mut pipeline = RawArrayBuf::new();
        pipeline.push(single("$documents", single("$literal", &items)));
        if let Some(filter) = filter {
            pipeline.push(single("$match", filter));
        }
        pipeline.push(single("$sort", single(PLACE, 1)));
        pipeline.push(single("$limit", 1));
        pipeline.push(single("$project", single(PLACE, 1)));
        let mut command = single("aggregate", 1);
        command.append(cstr!("pipeline"), &pipeline);
        command.append(cstr!("cursor"), RawDocumentBuf::new());
        Ok(Probe::Ask(command))
    }

    /// Whether the condition is `{$exists: true}` on a field of elements, which only an element can match.
    fn demands_field(&self, path: &str, condition: RawBsonRef<'_>) -> bool {
        let within = path
            .strip_prefix(self.path.as_str())
            .and_then(|rest| rest.strip_prefix('.'));
        let is_field = within.is_some_and(|rest| rest.split('.').all(|part| part.parse::<u32>().is_err()));
        let mut operators = condition
            .as_document()
            .into_iter()
            .flat_map(RawDocument::iter)
            .flatten();
        let first = operators.next();
        let is_demand = first.is_some_and(|(name, value)| name.as_str() == "$exists" && as_flag(value) == Some(true));
        is_field && is_demand && operators.next().is_none()
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

/// Whether the condition may match an array without a matching element, so that it does not determine the
/// element.
fn may_match_without_element(condition: RawBsonRef<'_>) -> bool {
    let operators = condition
        .as_document()
        .into_iter()
        .flat_map(RawDocument::iter)
        .flatten();
    operators.into_iter().any(|(name, _)| {
        matches!(
            name.as_str(),
            "$ne" | "$nin" | "$not" | "$exists" | "$size" | "$type" | "$all"
        )
    })
}

fn holds_array(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Array(_) => true,
        RawBsonRef::Document(document) => document.iter().flatten().any(|(_, value)| holds_array(value)),
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

/// A copy of the document with an array of this one element at the path.
fn with(document: &RawDocument, parts: &[&str], element: RawBsonRef<'_>) -> RawDocumentBuf {
    let mut copy = RawDocumentBuf::new();
    let (first, rest) = parts.split_first().map_or(("", parts), |(first, rest)| (*first, rest));
    for (name, value) in document.iter().flatten() {
        let replaced: RawBson = match value {
            _ if name.as_str() != first => value.into(),
            RawBsonRef::Document(inner) if !rest.is_empty() => with(inner, rest, element).into(),
            _ => {
                let mut one = RawArrayBuf::new();
                one.push(element);
                one.into()
            }
        };
        copy.append(name, replaced);
    }
    copy
}

#[cfg(test)]
mod tests;
