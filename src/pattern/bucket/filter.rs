//! What a filter on items says of the buckets that hold them.
//!
//! The client's own filter runs unchanged on unpacked items; what is made here only narrows the buckets to unpack, and so
//! may let too many through but never too few.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use crate::command::document::{array_of, first_field, get, single};
use crate::pattern::shapes::BucketShape;

/// A larger filter is not repeated for the buckets: twice its size might not fit in a command.
const MAX_FILTER_BYTES: usize = 1 << 20;

/// What was found in a filter.
#[derive(Clone, Debug)]
pub struct Narrowing {
    /// Conditions that every bucket with a matching item meets.
    clauses: Vec<RawDocumentBuf>,
    /// For each key field, the condition that sets it equal to a value.
    equalities: Vec<Option<RawDocumentBuf>>,
    /// Whether the filter says nothing but those equalities.
    only_equalities: bool,
}

impl Narrowing {
    /// Reads a filter.
    #[must_use]
    pub fn of(shape: &BucketShape, filter: Option<&RawDocument>) -> Self {
        let mut found = Self {
            clauses: Vec::new(),
            equalities: vec![None; shape.key().len()],
            only_equalities: true,
        };
        let Some(filter) = filter else { return found };
        let mut of_items = RawDocumentBuf::new();
        found.conjunction(shape, filter, &mut of_items);
        if !of_items.is_empty() && of_items.as_bytes().len() <= MAX_FILTER_BYTES {
            found
                .clauses
                .push(single(shape.items(), single("$elemMatch", &of_items)));
        }
        found
    }

    /// The condition that names one key, where the filter sets every key field equal to a value.
    #[must_use]
    pub fn one_key(&self) -> Option<RawDocumentBuf> {
        let mut key = RawDocumentBuf::new();
        for equality in &self.equalities {
            for (name, value) in equality.as_ref()?.iter().flatten() {
                key.append(name, value);
            }
        }
        Some(key)
    }

    /// The condition that names one key, where the filter says nothing else: every item of that key matches.
    #[must_use]
    pub fn only_one_key(&self) -> Option<RawDocumentBuf> {
        self.only_equalities.then(|| self.one_key()).flatten()
    }

    /// The `$match` on buckets that goes before the unpacking; `None` where nothing narrows them.
    #[must_use]
    pub fn bucket_match(&self) -> Option<RawDocumentBuf> {
        (!self.clauses.is_empty()).then(|| single("$match", single("$and", array_of(&self.clauses))))
    }

    fn conjunction(&mut self, shape: &BucketShape, filter: &RawDocument, of_items: &mut RawDocumentBuf) {
        for (name, value) in filter.iter().flatten() {
            match name.as_str() {
                "$comment" => {}
                "$and" => {
                    let clauses: Option<Vec<&RawDocument>> = value
                        .as_array()
                        .and_then(|clauses| clauses.into_iter().map(|clause| clause.ok()?.as_document()).collect());
                    match clauses {
                        Some(clauses) if !clauses.is_empty() => {
                            for clause in clauses {
                                self.conjunction(shape, clause, of_items);
                            }
                        }
                        // What mongod refuses is mongod's to refuse.
                        _ => self.only_equalities = false,
                    }
                }
                name if key_position(shape, name).is_some() => self.key_condition(shape, name, value),
                name => {
                    self.only_equalities = false;
                    if let Some(condition) = item_condition(shape, name, value) {
                        condition
                            .iter()
                            .flatten()
                            .for_each(|(name, value)| of_items.append(name, value));
                    }
                }
            }
        }
    }

    fn key_condition(&mut self, shape: &BucketShape, path: &str, value: RawBsonRef<'_>) {
        let equality = self.equalities.get_mut(key_position(shape, path).unwrap_or_default());
        match (equality, equal_value(value)) {
            (Some(unset @ None), Some(value)) if !path.contains('.') => {
                let condition = single(path, single("$eq", value));
                self.clauses.push(condition.clone());
                *unset = Some(condition);
            }
            _ => {
                self.only_equalities = false;
                if !path.contains('.') && is_comparison(value) {
                    self.clauses.push(single(path, value));
                }
            }
        }
    }
}

/// Which key field a path begins with.
fn key_position(shape: &BucketShape, path: &str) -> Option<usize> {
    let root = path.split('.').next()?;
    shape.key().iter().position(|field| field == root)
}

/// The value that a condition sets a field equal to, where MongoDB compares it with the field's value as a whole. An
/// array would also match inside arrays, a regular expression is a pattern.
fn equal_value(value: RawBsonRef<'_>) -> Option<RawBsonRef<'_>> {
    match value {
        RawBsonRef::Document(document) => match first_field(document) {
            Some(("$eq", value)) if document.iter().count() == 1 => comparable(value).then_some(value),
            Some((name, _)) if name.starts_with('$') => None,
            _ => Some(value),
        },
        value => comparable(value).then_some(value),
    }
}

fn comparable(value: RawBsonRef<'_>) -> bool {
    !matches!(
        value,
        RawBsonRef::Array(_)
            | RawBsonRef::RegularExpression(_)
            | RawBsonRef::Undefined
            | RawBsonRef::Symbol(_)
            | RawBsonRef::DbPointer(_)
    )
}

/// Whether a condition compares by value alone, so that the lifted value meets it when, and only when, the item's own does,
/// which may be of another numeric type.
fn is_comparison(condition: RawBsonRef<'_>) -> bool {
    let Some(operators) = condition.as_document() else {
        return false;
    };
    let mut any = false;
    let all = operators.iter().all(|operator| {
        any = true;
        match operator.map(|(name, value)| (name.as_str(), value)) {
            Ok(("$eq", value)) => comparable(value),
            Ok(("$gt" | "$gte" | "$lt" | "$lte", value)) => {
                comparable(value) && !matches!(value, RawBsonRef::Null | RawBsonRef::Document(_))
            }
            Ok(("$in", RawBsonRef::Array(values))) => values.into_iter().all(|value| value.is_ok_and(comparable)),
            _ => false,
        }
    });
    all && any
}

/// A condition on items in stored names, fit for an `$elemMatch`. `None` where the whole of it says nothing that could be
/// asked of a bucket.
fn item_condition(shape: &BucketShape, name: &str, value: RawBsonRef<'_>) -> Option<RawDocumentBuf> {
    match name {
        "$or" | "$nor" | "$and" => {
            let branches = value.as_array()?.into_iter().map(|branch| {
                let mut renamed = RawDocumentBuf::new();
                for field in branch.ok()?.as_document()? {
                    let (name, value) = field.ok()?;
                    if key_position(shape, name.as_str()).is_some() {
                        return None;
                    }
                    let condition = item_condition(shape, name.as_str(), value)?;
                    condition
                        .iter()
                        .flatten()
                        .for_each(|(name, value)| renamed.append(name, value));
                }
                Some(renamed)
            });
            let branches: Vec<RawDocumentBuf> = branches.collect::<Option<_>>()?;
            Some(single(name, array_of(&branches)))
        }
        // `$expr`, `$where`, `$text`, `$jsonSchema` and the like cannot be asked of an array's element.
        name if name.starts_with('$') => None,
        _ if asks_for_nearness(value) => None,
        // mongod 6.0.5 crashes on some conditions on a field without a name inside an `$elemMatch` (in
        // `PlanEnumerator::getIndexedPreds`), so none goes there.
        name if name.split('.').any(str::is_empty) || names_nothing(value) => None,
        name => {
            let (root, rest) = name
                .split_once('.')
                .map_or((name, None), |(root, rest)| (root, Some(rest)));
            let root = shape.rename().stored(root);
            let path = rest.map_or_else(|| root.to_owned(), |rest| format!("{root}.{rest}"));
            Some(single(&path, value))
        }
    }
}

/// Whether a field without a name is anywhere inside.
fn names_nothing(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Document(document) => document
            .iter()
            .flatten()
            .any(|(name, value)| name.as_str().split('.').any(str::is_empty) || names_nothing(value)),
        RawBsonRef::Array(array) => array.into_iter().flatten().any(names_nothing),
        _ => false,
    }
}

fn asks_for_nearness(condition: RawBsonRef<'_>) -> bool {
    let operators = ["$near", "$nearSphere", "$geoNear"];
    condition
        .as_document()
        .is_some_and(|condition| operators.iter().any(|name| get(condition, name).is_some()))
}

/// The `$match` that runs the client's own filter on unpacked items.
///
/// mongod hands a `$match` only those fields of a document that it names, and loses the one whose name is empty on the way
/// (6.0.5: `{"": 1}` finds nothing behind an `$unwind`). There it is made to hand over whole documents.
#[must_use]
pub fn match_items(filter: &RawDocument) -> RawDocumentBuf {
    if !names_empty_field(filter) {
        return single("$match", filter);
    }
    let mut root_is_there = RawArrayBuf::new();
    root_is_there.push("$$ROOT");
    root_is_there.push(RawBson::Null);
    let whole = single("$expr", single("$ne", &root_is_there));
    single("$match", single("$and", array_of(&[filter.to_owned(), whole])))
}

fn names_empty_field(filter: &RawDocument) -> bool {
    filter.iter().flatten().any(|(name, value)| match name.as_str() {
        "$and" | "$or" | "$nor" => {
            let branches = value.as_array().into_iter().flatten().flatten();
            branches.filter_map(RawBsonRef::as_document).any(names_empty_field)
        }
        name => name.is_empty() || name.starts_with('.'),
    })
}

/// What in a filter mongod cannot run behind other stages, nor we: the operator's name.
#[must_use]
pub fn unsupported_operator(filter: &RawDocument) -> Option<&'static str> {
    filter.iter().flatten().find_map(|(name, value)| match name.as_str() {
        "$where" => Some("$where"),
        "$text" => Some("$text"),
        "$and" | "$or" | "$nor" => {
            let mut branches = value
                .as_array()
                .into_iter()
                .flatten()
                .flatten()
                .filter_map(RawBsonRef::as_document);
            branches.find_map(unsupported_operator)
        }
        _ if asks_for_nearness(value) => Some("$near"),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
