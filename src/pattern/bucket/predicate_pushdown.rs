//! Predicate pushdown: the conditions that a filter on items implies for their buckets.
//!
//! The client's filter runs unchanged on unwound items. The bucket predicate only reduces the buckets to
//! unwind, so it may let through too many, never too few.

mod item_condition;
mod key_condition;

use std::collections::HashSet;

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::rawdoc;

use self::item_condition::{below, item_condition};
use self::key_condition::{LiftedValue, equal_value, key_expressions};
use super::index::has_items;
use super::layout::{VERSION, path};
use super::read::range::TimeRange;
use crate::command::document::{append_fields, array_of, first_field, put, single};
use crate::pattern::shapes::BucketShape;

pub use self::key_condition::{key_position, only_variable};

/// Larger conditions on items are not repeated for the buckets: a command might not have room for them twice.
const MAX_CONDITION_BYTES: usize = 1 << 20;
/// The most bytes of a filter together with larger conditions on keys that it implies for buckets. A command
/// may have 16 MiB.
const MAX_BYTES_TOGETHER: usize = 14 << 20;

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

/// What a filter is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterPart {
    /// The client's whole filter.
    Whole,
    /// A branch of a `$or`. A `$or` in it is not divided, so that the work does not grow with the nesting.
    Branch,
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
    /// The conditions of `of_items`, until all are found.
    item_conditions: Vec<RawDocumentBuf>,
}

impl BucketPredicate {
    /// Computes the conditions that a filter implies.
    #[must_use]
    pub fn of(shape: &BucketShape, filter: Option<&RawDocument>) -> Self {
        filter.map_or_else(
            || Self::of_all_items(shape),
            |filter| Self::of_filter(shape, filter, FilterPart::Whole),
        )
    }

    fn of_all_items(shape: &BucketShape) -> Self {
        Self {
            clauses: Vec::new(),
            equalities: vec![None; shape.key().len()],
            compares_keys: false,
            id: None,
            range: TimeRange::default(),
            has_other_conditions: false,
            is_exact: true,
            of_items: RawDocumentBuf::new(),
            item_conditions: Vec::new(),
        }
    }

    fn of_filter(shape: &BucketShape, filter: &RawDocument, part: FilterPart) -> Self {
        let mut found = Self::of_all_items(shape);
        found.conjunction(shape, filter, part);
        let conditions = std::mem::take(&mut found.item_conditions);
        let sizes = conditions.iter().map(|condition| condition.as_bytes().len());
        if sizes.fold(0, usize::saturating_add) > MAX_CONDITION_BYTES {
            found.is_exact = false;
        } else {
            found.of_items = joined(&conditions);
        }
        if !found.of_items.is_empty() {
            let of_items = if found.demands_only_id() {
                // An equality of one field holds for an item if it holds for the array. mongod plans it faster.
                below(shape.items(), &found.of_items)
            } else {
                single(shape.items(), single("$elemMatch", &found.of_items))
            };
            // mongod uses the partial indexes, that on the items' `_id` and the unique ones, only with the
            // second condition.
            found.clauses.extend([of_items, has_items(shape)]);
        }
        if !found.range.is_open() {
            let mut bounds = RawDocumentBuf::new();
            found.range.append_to(&mut bounds);
            found.clauses.push(bounds);
        }
        let bytes = found.clauses.iter().map(|clause| clause.as_bytes().len());
        let bytes = bytes.fold(0, usize::saturating_add);
        if bytes > MAX_CONDITION_BYTES && bytes.saturating_add(filter.as_bytes().len()) > MAX_BYTES_TOGETHER {
            return Self {
                has_other_conditions: true,
                is_exact: false,
                ..Self::of_all_items(shape)
            };
        }
        found
    }

    /// Whether the only condition on items is that their `_id` has one value.
    fn demands_only_id(&self) -> bool {
        // `of_items` lacks conditions that an `$elemMatch` cannot express, that on the `_id` among them.
        let is_of_id = first_field(&self.of_items).is_some_and(|(name, _)| name == "_id");
        is_of_id && self.id.is_some() && self.of_items.iter().count() == 1
    }

    /// The condition that a `$or` implies for buckets. `None` if a branch implies none.
    fn disjunction(shape: &BucketShape, branches: RawBsonRef<'_>) -> Option<RawDocumentBuf> {
        let branches = branches.as_array()?.into_iter().map(|branch| {
            let implied = Self::of_filter(shape, branch.ok()?.as_document()?, FilterPart::Branch);
            // mongod uses the indexes on items only for a branch that names the field with which they begin.
            let condition = if implied.of_items.is_empty() {
                conjunction_of(&implied.clauses)
            } else {
                implied.on_buckets()
            };
            (!condition.is_empty()).then_some(condition)
        });
        let branches: Vec<RawDocumentBuf> = branches.collect::<Option<_>>()?;
        Some(single("$or", array_of(&branches)))
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

    /// Whether the filter demands one value of the key field at this position.
    #[must_use]
    pub fn demands_key_field(&self, position: usize) -> bool {
        self.equalities.get(position).is_some_and(Option::is_some)
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
        self.is_of_key_alone().then(|| conjunction_of(&self.clauses))
    }

    /// The `_id` that the filter demands.
    #[must_use]
    pub fn one_id(&self) -> Option<&RawBson> {
        self.id.as_ref()
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
        self.is_exact.then(|| self.stored_conditions(shape))
    }

    /// The conditions, by stored paths, that the matching items among the unwound items of [these
    /// buckets](Self::bucket_match) meet. Other items may meet them too.
    #[must_use]
    pub fn stored_conditions(&self, shape: &BucketShape) -> RawDocumentBuf {
        below(shape.items(), &self.of_items)
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

    /// The `$match` on pages with items, to be combined with a condition on items by a stored path. Only with
    /// it does mongod use an index on that path, which begins with the layout's version and may be partial.
    #[must_use]
    pub fn match_beside_item_condition(&self, shape: &BucketShape) -> RawDocumentBuf {
        let mut clauses = vec![is_page(), has_items(shape)];
        clauses.extend_from_slice(&self.clauses);
        single("$match", single("$and", array_of(&clauses)))
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

    fn conjunction(&mut self, shape: &BucketShape, filter: &RawDocument, part: FilterPart) {
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
                                self.conjunction(shape, clause, part);
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
                    if let Some(condition) = item_condition(shape, name, value) {
                        self.item_conditions.push(condition);
                    } else {
                        self.is_exact = false;
                        if name == "$or" && part == FilterPart::Whole {
                            self.clauses.extend(Self::disjunction(shape, value));
                        }
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
        let is_of_field = !path.contains('.');
        match (equality, equal_value(value)) {
            (Some(unset @ None), Some(value)) if is_of_field => {
                let condition = single(path, single("$eq", value));
                self.clauses.push(condition.clone());
                *unset = Some(condition);
            }
            _ => {
                let shown = LiftedValue::of(value).filter(|_| is_of_field);
                if shown.is_some() {
                    self.clauses.push(single(path, value));
                }
                if shown == Some(LiftedValue::Decides) {
                    self.compares_keys = true;
                } else {
                    self.has_other_conditions = true;
                    self.is_exact = false;
                }
            }
        }
    }
}

/// All conditions in one document. A field that is named again is named in `$and`: a document should not have
/// a field twice.
fn joined(conditions: &[RawDocumentBuf]) -> RawDocumentBuf {
    let mut names = HashSet::new();
    let (mut all, mut repeated) = (RawDocumentBuf::new(), Vec::new());
    for condition in conditions {
        if condition.iter().flatten().all(|(name, _)| names.insert(name)) {
            append_fields(&mut all, condition);
        } else {
            repeated.push(condition.clone());
        }
    }
    if !repeated.is_empty() {
        put(&mut all, "$and", array_of(&repeated));
    }
    all
}

/// The condition that all of these are met. Empty if there are none.
fn conjunction_of(clauses: &[RawDocumentBuf]) -> RawDocumentBuf {
    match clauses {
        [] => RawDocumentBuf::new(),
        [clause] => clause.clone(),
        clauses => single("$and", array_of(clauses)),
    }
}

#[cfg(test)]
mod tests;
