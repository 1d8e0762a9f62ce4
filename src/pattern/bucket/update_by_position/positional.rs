//! The positional operator `$`: the element of an item's array that the filter matched.
//!
//! mongod records that element for a filter on the document itself, but here the filter is on the
//! item. One condition of the filter must [determine the element](crate::pattern::matched_element). mongod
//! evaluates it on documents with one element of an item's array each. The first one of each item that
//! matches has the element.

use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::operators::operators_before;
use crate::command::document::{as_whole_number, get, put, single};
use crate::command::error::{ErrorCode, WriteError};
use crate::pattern::matched_element::{ElementCondition, PathCondition, path_conditions};
use crate::pattern::unsupported::Unsupported;

/// The operator as a part of a path.
const OPERATOR: &str = "$";
/// The field with the number of a document's element.
const PLACE: &str = "mongoshapeElement";
/// The field with the number of a document's item. Documents of the first item have none, so that one item
/// may be as long as possible.
const ITEM: &str = "mongoshapeItem";
/// The bytes of a document beside its own in the list of documents: the number of its item, and its position.
const LISTED_BYTES: usize = 32;
/// The most bytes of a command.
const MAX_COMMAND_BYTES: usize = 16 * 1024 * 1024;
/// The most bytes of a command for several items.
const MAX_SHARED_BYTES: usize = 8 * 1024 * 1024;

/// The array whose element the operators change.
#[derive(Clone, Debug, PartialEq)]
pub struct Positional {
    path: String,
}

/// The steps to find the elements of items.
#[derive(Clone, Debug)]
pub struct Probes {
    /// The queries for the elements of consecutive items.
    pub queries: Vec<ElementQuery>,
    /// mongod's error for the item behind them. The items behind that one have no query.
    pub failed: Option<WriteError>,
}

/// A query for elements.
#[derive(Clone, Debug, PartialEq)]
pub struct ElementQuery {
    /// The `aggregate`. [`Positional::numbers`] reads the numbers of the elements from the result.
    pub command: RawDocumentBuf,
    /// The number of items.
    pub items: usize,
}

/// The items of a query.
struct QueriedItems<'a> {
    condition: &'a PathCondition<'a>,
    filter: RawDocumentBuf,
    documents: RawArrayBuf,
    items: usize,
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

    /// Plans the queries for the elements that the filter matched, one of the array of each item.
    ///
    /// # Errors
    /// The filter does not determine the element, for an error message.
    pub fn probes<'i>(
        &self,
        items: impl Iterator<Item = &'i RawDocument>,
        filter: Option<&RawDocument>,
    ) -> Result<Probes, Unsupported> {
        let unclear = || format!("the positional operator $ on '{}' with such a filter", self.path);
        let conditions = match filter {
            Some(filter) => path_conditions(filter).ok_or_else(unclear)?,
            None => Vec::new(),
        };
        let parts: Vec<&str> = self.path.split('.').collect();
        let mut groups: Vec<QueriedItems<'_>> = Vec::new();
        let mut failed = None;
        for item in items {
            // mongod records an element only of these.
            let mut of_arrays = conditions.iter().filter(|condition| meets_array(item, condition.path));
            let Some(condition) = of_arrays.next() else {
                failed = Some(not_found());
                break;
            };
            let is_only = of_arrays.next().is_none();
            let determines = is_only && ElementCondition::of(&self.path, *condition).is_some();
            let elements = at(item, &parts).filter(|_| determines).ok_or_else(unclear)?;
            let documents = documents(&parts, elements);
            match groups.last_mut() {
                Some(last) if last.has_room_for(condition, &documents) => last.add(documents),
                _ => groups.push(QueriedItems::of(condition, documents)),
            }
        }
        let queries: Vec<ElementQuery> = groups.into_iter().map(QueriedItems::query).collect();
        if queries
            .iter()
            .any(|query| query.command.as_bytes().len() > MAX_COMMAND_BYTES)
        {
            let what = format!("the positional operator $ on '{}', an array of this size,", self.path);
            return Err(what.into());
        }
        Ok(Probes { queries, failed })
    }

    /// The number of the element of each of these items, from the documents of the result. `None`: no element
    /// matches.
    #[must_use]
    pub fn numbers<'d>(items: usize, found: impl Iterator<Item = &'d RawDocument>) -> Vec<Option<i32>> {
        let mut numbers = vec![None; items];
        for document in found {
            let item = get(document, "_id").and_then(as_whole_number).unwrap_or_default();
            let number = usize::try_from(item).ok().and_then(|item| numbers.get_mut(item));
            if let Some(number) = number {
                *number = get(document, PLACE).and_then(RawBsonRef::as_i32);
            }
        }
        numbers
    }

    /// The operators on paths that mongod handles before the positional path.
    #[must_use]
    pub fn before(&self, operators: &RawDocument) -> RawDocumentBuf {
        operators_before(operators, &self.path)
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

impl<'a> QueriedItems<'a> {
    /// One item.
    fn of(condition: &'a PathCondition<'a>, documents: Vec<RawDocumentBuf>) -> Self {
        let mut queried = Self {
            condition,
            filter: single(condition.path, condition.condition),
            documents: RawArrayBuf::new(),
            items: 0,
        };
        queried.add(documents);
        queried
    }

    /// Whether the query may have another item, with this condition and these documents.
    fn has_room_for(&self, condition: &PathCondition<'_>, documents: &[RawDocumentBuf]) -> bool {
        let before = [self.filter.as_bytes(), self.documents.as_bytes()].map(<[u8]>::len);
        let more = documents
            .iter()
            .map(|document| document.as_bytes().len().saturating_add(LISTED_BYTES));
        let bytes = before.into_iter().chain(more).fold(0, usize::saturating_add);
        std::ptr::eq(self.condition, condition) && bytes <= MAX_SHARED_BYTES
    }

    /// Adds an item with its documents.
    fn add(&mut self, documents: Vec<RawDocumentBuf>) {
        let item = i32::try_from(self.items).unwrap_or(i32::MAX);
        for mut document in documents {
            if item > 0 {
                put(&mut document, ITEM, item);
            }
            self.documents.push(document);
        }
        self.items = self.items.saturating_add(1);
    }

    /// The query for the first element of each item with which a document matches the condition.
    fn query(self) -> ElementQuery {
        let mut group = single("_id", format!("${ITEM}").as_str());
        put(&mut group, PLACE, single("$min", format!("${PLACE}").as_str()));
        let mut pipeline = RawArrayBuf::new();
        pipeline.push(single("$documents", single("$literal", &self.documents)));
        pipeline.push(single("$match", &self.filter));
        pipeline.push(single("$group", group));
        let mut command = single("aggregate", 1);
        command.append(cstr!("pipeline"), &pipeline);
        // One more than there are results, so that no cursor stays open.
        let size = i64::try_from(self.items.saturating_add(1)).unwrap_or(i64::MAX);
        command.append(cstr!("cursor"), single("batchSize", size));
        let items = self.items;
        ElementQuery { command, items }
    }
}

/// A document for each element of an array.
fn documents(parts: &[&str], elements: &RawArray) -> Vec<RawDocumentBuf> {
    let documents = elements.into_iter().flatten().zip(0_i32..).map(|(element, place)| {
        let mut document = with_only(parts, element);
        put(&mut document, PLACE, place);
        document
    });
    documents.collect()
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
