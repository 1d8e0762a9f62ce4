//! Predicate pushdown: the conditions that a filter on items implies for their buckets.
//!
//! The client's filter runs unchanged on unwound items. The bucket predicate only reduces the buckets to
//! unwind, so it may let through too many, never too few.

use bson::raw::{RawArray, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::rawdoc;

use super::index::has_items;
use super::layout::{VERSION, path};
use super::read::range::TimeRange;
use crate::command::document::{append_fields, array_of, first_field, put, single};
use crate::pattern::shapes::BucketShape;
use crate::pattern::unwound::{asks_for_nearness, names_nothing};

/// A larger filter is not repeated for the buckets: a command might not have room for it twice.
const MAX_FILTER_BYTES: usize = 1 << 20;

/// The condition that matches pages and no document that was written past the proxy. It is not an equality,
/// because mongod could then plan a pipeline by the indexes on bounds. Those are
/// [partial](super::index::every_page): an entry that moves while the index is read would be missed or read
/// twice.
#[must_use]
pub fn is_page() -> RawDocumentBuf {
    single(path::VERSION, rawdoc! { "$gte": VERSION, "$lte": VERSION })
}

/// [`is_page`] for a query without another condition, which reads all pages. It is an expression, which no
/// index answers. With [`is_page`] mongod could use an application's index, whose stored key pattern begins
/// with the same field, and which has an entry for each item.
#[must_use]
pub fn is_any_page() -> RawDocumentBuf {
    single("$expr", rawdoc! { "$in": [format!("${}", path::VERSION), [VERSION]] })
}

/// The condition that matches pages of any layout version. A write uses it, because a write must not skip a
/// page of another version: it is refused for that page.
#[must_use]
pub fn is_page_of_any_layout() -> RawDocumentBuf {
    single(path::VERSION, single("$gte", 1))
}

/// One key and a range of time.
#[derive(Clone, Debug)]
pub struct KeyAndRange {
    /// The condition that matches the buckets of the key.
    pub key: RawDocumentBuf,
    /// The range of the items' times.
    pub range: TimeRange,
}

/// The conditions that a filter on items implies for buckets.
#[derive(Clone, Debug)]
pub struct BucketPredicate {
    /// Conditions that every bucket with a matching item meets.
    clauses: Vec<RawDocumentBuf>,
    /// For each key field, the equality that the filter demands.
    equalities: Vec<Option<RawDocumentBuf>>,
    /// Whether the filter compares a key field by an operator other than equality.
    compares_keys: bool,
    /// The `_id` of items that the filter demands.
    id: Option<RawBson>,
    /// The time range of items that the filter demands.
    range: TimeRange,
    /// Whether the filter has a condition that is not on the key, the `_id` or a time range.
    has_other_conditions: bool,
    /// Whether `clauses` contain every condition of the filter.
    is_exact: bool,
    /// The conditions on items among `clauses`, by stored field names.
    of_items: RawDocumentBuf,
}

impl BucketPredicate {
    /// Computes the conditions that a filter implies.
    #[must_use]
    pub fn of(shape: &BucketShape, filter: Option<&RawDocument>) -> Self {
        let mut found = Self {
            clauses: Vec::new(),
            equalities: vec![None; shape.key().len()],
            compares_keys: false,
            id: None,
            range: TimeRange::default(),
            has_other_conditions: false,
            is_exact: true,
            of_items: RawDocumentBuf::new(),
        };
        let Some(filter) = filter else { return found };
        let mut of_items = RawDocumentBuf::new();
        found.conjunction(shape, filter, &mut of_items);
        if of_items.as_bytes().len() > MAX_FILTER_BYTES {
            found.is_exact = false;
        } else if !of_items.is_empty() {
            found
                .clauses
                .push(single(shape.items(), single("$elemMatch", &of_items)));
            found.of_items = of_items;
        }
        // mongod uses the partial indexes, that on the items' `_id` and the unique ones, only with this
        // condition.
        if !found.of_items.is_empty() {
            found.clauses.push(has_items(shape));
        }
        if !found.range.is_open() {
            let mut bounds = RawDocumentBuf::new();
            found.range.append_to(&mut bounds);
            found.clauses.push(bounds);
        }
        found
    }

    /// The condition that matches the buckets of one key, if the filter demands a value for every key field.
    #[must_use]
    pub fn one_key(&self) -> Option<RawDocumentBuf> {
        let mut key = RawDocumentBuf::new();
        for equality in &self.equalities {
            append_fields(&mut key, equality.as_ref()?);
        }
        Some(key)
    }

    /// The condition that matches the buckets of one key, if the filter has no other condition: every item of
    /// that key matches.
    #[must_use]
    pub fn only_one_key(&self) -> Option<RawDocumentBuf> {
        self.range
            .is_open()
            .then(|| self.one_key_and_range())
            .flatten()
            .map(|(key, _)| key)
    }

    /// The condition that matches the buckets of one key, and the time range, if the filter has no other
    /// condition.
    #[must_use]
    pub fn one_key_and_range(&self) -> Option<(RawDocumentBuf, TimeRange)> {
        let is_complete = !self.has_other_conditions && !self.compares_keys && self.id.is_none();
        is_complete
            .then(|| self.one_key())
            .flatten()
            .map(|key| (key, self.range))
    }

    /// The condition that matches the buckets of one key, and the time range, if the filter demands both and
    /// no `_id`. It may have other conditions.
    #[must_use]
    pub fn key_and_range(&self) -> Option<KeyAndRange> {
        let range = (!self.range.is_open() && self.id.is_none()).then_some(self.range)?;
        let key = self.one_key()?;
        Some(KeyAndRange { key, range })
    }

    /// The condition on buckets that is equivalent to the filter, if the filter only compares key fields.
    /// Empty if the filter has no condition.
    #[must_use]
    pub fn only_keys(&self) -> Option<RawDocumentBuf> {
        if !self.is_of_key_alone() {
            return None;
        }
        match self.clauses.as_slice() {
            [] => Some(RawDocumentBuf::new()),
            [clause] => Some(clause.clone()),
            clauses => Some(single("$and", array_of(clauses))),
        }
    }

    /// The `_id` that the filter demands, if its other conditions only compare key fields.
    #[must_use]
    pub fn only_one_id(&self) -> Option<&RawBson> {
        self.id
            .as_ref()
            .filter(|_| !self.has_other_conditions && self.range.is_open())
    }

    /// The `_id` that the filter demands, if [`BucketPredicate::on_buckets`] contains every condition of the
    /// filter: only the bucket of the matching item matches it.
    #[must_use]
    pub fn exactly_one_id(&self) -> Option<&RawBson> {
        self.id.as_ref().filter(|_| self.is_exact)
    }

    /// The condition that every page with a matching item meets, in any layout version. Other pages may meet
    /// it too.
    #[must_use]
    pub fn on_buckets(&self) -> RawDocumentBuf {
        let mut clauses = self.clauses.clone();
        // The field with which the index on the items' `_id` begins.
        clauses.push(is_page_of_any_layout());
        single("$and", array_of(&clauses))
    }

    /// The condition, by stored paths, that selects the matching items among the unwound items of [these
    /// buckets](Self::bucket_match). Empty if all items match. `None` if the filter has a condition that only
    /// whole items show.
    #[must_use]
    pub fn of_unwound(&self, shape: &BucketShape) -> Option<RawDocumentBuf> {
        self.is_exact.then(|| below(shape.items(), &self.of_items))
    }

    /// Whether each of [these buckets](Self::bucket_match) has a matching item, so `n` of these buckets have
    /// at least `n` matching items.
    #[must_use]
    pub fn guarantees_matching_item(&self) -> bool {
        self.is_exact && !self.of_items.is_empty()
    }

    /// Whether the filter has conditions on key fields that [`clauses`](Self::clauses) contain.
    #[must_use]
    pub fn has_key_conditions(&self) -> bool {
        self.compares_keys || self.equalities.iter().any(Option::is_some)
    }

    /// Whether the filter only compares key fields: the items of a bucket match if the bucket meets the
    /// conditions.
    #[must_use]
    pub fn is_of_key_alone(&self) -> bool {
        !self.has_other_conditions && self.id.is_none() && self.range.is_open()
    }

    /// Conditions that every bucket with a matching item meets.
    #[must_use]
    pub fn clauses(&self) -> &[RawDocumentBuf] {
        &self.clauses
    }

    /// The `$match` on pages, to be placed before the unwind.
    #[must_use]
    pub fn bucket_match(&self) -> RawDocumentBuf {
        self.match_of(self.page_condition())
    }

    /// The condition that distinguishes pages from other documents, to be combined with these clauses.
    #[must_use]
    pub fn page_condition(&self) -> RawDocumentBuf {
        if self.clauses.is_empty() {
            is_any_page()
        } else {
            is_page()
        }
    }

    /// The `$match` on the pages that a write may change.
    #[must_use]
    pub fn write_match(&self) -> RawDocumentBuf {
        self.match_of(is_page_of_any_layout())
    }

    fn match_of(&self, pages: RawDocumentBuf) -> RawDocumentBuf {
        let mut clauses = vec![pages];
        clauses.extend_from_slice(&self.clauses);
        single("$match", single("$and", array_of(&clauses)))
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
                        // mongod must report an invalid `$and`.
                        _ => {
                            self.has_other_conditions = true;
                            self.is_exact = false;
                        }
                    }
                }
                name if key_position(shape, name).is_some() => self.key_condition(shape, name, value),
                name => {
                    self.item_condition(shape, name, value);
                    if name == "$expr" {
                        self.clauses.extend(key_expressions(shape, value));
                    }
                    match item_condition(shape, name, value) {
                        Some(condition) => condition
                            .iter()
                            .flatten()
                            .for_each(|(name, value)| of_items.append(name, value)),
                        None => self.is_exact = false,
                    }
                }
            }
        }
    }

    /// Records a condition on items: an `_id`, a time range, or another condition.
    fn item_condition(&mut self, shape: &BucketShape, path: &str, value: RawBsonRef<'_>) {
        if path == "_id" && self.id.is_none() {
            self.id = equal_value(value).map(RawBson::from);
            self.has_other_conditions |= self.id.is_none();
        } else if let Some(range) = self.range.narrowed(value).filter(|_| shape.time() == Some(path)) {
            self.range = range;
        } else {
            self.has_other_conditions = true;
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
            _ if !path.contains('.') && is_comparison(value) => {
                self.compares_keys = true;
                self.clauses.push(single(path, value));
            }
            _ => {
                self.has_other_conditions = true;
                self.is_exact = false;
            }
        }
    }
}

/// The conditions with `path` as a prefix of each field name.
fn below(path: &str, conditions: &RawDocument) -> RawDocumentBuf {
    let mut moved = RawDocumentBuf::new();
    for (name, value) in conditions.iter().flatten() {
        match (name.as_str(), value) {
            (name @ ("$and" | "$or" | "$nor"), RawBsonRef::Array(branches)) => {
                let branches = branches.into_iter().flatten().filter_map(RawBsonRef::as_document);
                let branches: Vec<RawDocumentBuf> = branches.map(|branch| below(path, branch)).collect();
                put(&mut moved, name, array_of(&branches));
            }
            (name, value) => put(&mut moved, &format!("{path}.{name}"), value),
        }
    }
    moved
}

/// The conditions on buckets that a `$expr` implies: equalities of a key field and a variable, as in a
/// `$lookup` with a `let`. A bucket without the field has items that lack the field and items in which it is
/// null. Only one of the two is equal to a variable, so such buckets are always included.
fn key_expressions(shape: &BucketShape, expression: RawBsonRef<'_>) -> Vec<RawDocumentBuf> {
    match expression.as_document().and_then(first_field) {
        Some(("$and", RawBsonRef::Array(parts))) => {
            let parts = parts.into_iter().flatten();
            parts.flat_map(|part| key_expressions(shape, part)).collect()
        }
        Some(("$eq", RawBsonRef::Array(sides))) => {
            let equality = VariableEquality::of(sides);
            let equality = equality.filter(|equality| shape.key().iter().any(|name| name == equality.field));
            let branches = equality.map(|equality| {
                let equal = single("$expr", single("$eq", sides));
                [equal, single(equality.field, RawBson::Null)]
            });
            let clause = branches.map(|branches| single("$or", array_of(&branches)));
            clause.into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// An equality of a field and a variable of the client.
struct VariableEquality<'a> {
    field: &'a str,
    /// The variable, or a path within one, with its `$$`.
    variable: &'a str,
}

impl<'a> VariableEquality<'a> {
    /// The equality of the operands of an `$eq`.
    fn of(operands: &'a RawArray) -> Option<Self> {
        let texts: Option<Vec<&str>> = operands.into_iter().map(|side| side.ok()?.as_str()).collect();
        match texts.as_deref() {
            Some([field, variable] | [variable, field]) if is_variable(variable) => Some(Self {
                field: field.strip_prefix('$')?,
                variable,
            }),
            _ => None,
        }
    }
}

/// The variable, with its `$$`, that a filter demands to be equal to a field, if that is its only condition.
#[must_use]
pub fn only_variable<'a>(field: &str, filter: &'a RawDocument) -> Option<&'a str> {
    let ("$expr", RawBsonRef::Document(expression)) = first_field(filter)? else {
        return None;
    };
    let ("$eq", RawBsonRef::Array(operands)) = first_field(expression)? else {
        return None;
    };
    let is_only = filter.iter().count() == 1 && expression.iter().count() == 1;
    let equality = VariableEquality::of(operands).filter(|equality| is_only && equality.field == field)?;
    Some(equality.variable)
}

/// Whether an expression is a variable of the client, or a path within one.
fn is_variable(expression: &str) -> bool {
    let name = expression.strip_prefix("$$");
    name.is_some_and(|name| name.starts_with(|first: char| first.is_ascii_lowercase()))
}

/// The position among the key fields of the field that a path begins with.
#[must_use]
pub fn key_position(shape: &BucketShape, path: &str) -> Option<usize> {
    let root = path.split('.').next()?;
    shape.key().iter().position(|field| field == root)
}

/// The value that a condition demands, if MongoDB compares it with the whole value of the field. `None` for
/// arrays, which would also match inside arrays, and for regular expressions, which are patterns.
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

/// Whether a condition compares by value alone. The lifted value, which may have another numeric type than
/// the item's own value, then meets the condition exactly if the item's own value does.
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

/// A condition on items by stored names, for an `$elemMatch`. `None` if an `$elemMatch` cannot express the
/// condition.
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
        // `$expr`, `$where`, `$text`, `$jsonSchema` and others do not apply to an element of an array.
        name if name.starts_with('$') => None,
        _ if asks_for_nearness(value) => None,
        // mongod 6.0.5 crashes on some conditions on a field with an empty name inside an `$elemMatch` (in
        // `PlanEnumerator::getIndexedPreds`), so these conditions are not sent.
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

#[cfg(test)]
mod tests;
