//! Count pushdown: answers a pipeline that only counts items from page headers, without unwinding.
//!
//! An example is that of `countDocuments`: `[$match, $skip, $limit, {$group: {_id: 1, n: {$sum: 1}}}]`.

use std::collections::BTreeSet;

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::predicate_pushdown::BucketPredicate;
use crate::command::document::{array_of, first_field, put, single};
use crate::command::unused_name::unused_name;
use crate::pattern::shapes::BucketShape;

/// The exclusive bound of numbers that are summed. Sums of greater numbers may not be exact in mongod's type.
const MAX_NUMBER: i64 = 1 << 31;

/// A pipeline that counts items.
struct Summary<'a> {
    narrowing: BucketPredicate,
    skip: i32,
    limit: Option<i32>,
    group: CountGroup<'a>,
    /// The stages after the group.
    rest: &'a [RawDocumentBuf],
}

/// The group of a counting pipeline. A counter has a field name and the number that each item adds.
struct CountGroup<'a> {
    by: By<'a>,
    counters: Vec<(&'a str, RawBsonRef<'a>)>,
    /// Whether the result has no `_id`.
    without_id: bool,
}

enum By<'a> {
    /// One group with this `_id`.
    Constant(RawBsonRef<'a>),
    /// One group for each value of a key field.
    Key(&'a str),
}

/// The stages on buckets that answer a pipeline on items. `None` if it does not only count.
#[must_use]
pub fn of_aggregate(shape: &BucketShape, pipeline: &[RawDocumentBuf]) -> Option<Vec<RawDocumentBuf>> {
    let summary = Summary::parse(shape, pipeline)?;
    let mut stages = vec![with_items(shape, &summary.narrowing)];
    match (&summary.group.by, summary.skip, summary.limit) {
        (By::Constant(id), 0, None) => stages.push(summary.group.stage(shape, *id)),
        (By::Constant(id), ..) => stages.extend(summary.within_bounds(shape, *id)),
        (By::Key(field), 0, None) => stages.extend(summary.group.by_key(shape, field)),
        (By::Key(_), ..) => return None,
    }
    if summary.group.without_id {
        stages.push(single("$project", single("_id", 0)));
    }
    stages.extend_from_slice(summary.rest);
    Some(stages)
}

/// The `$match` of buckets that have items and that the pushed-down predicate selects.
pub(super) fn with_items(shape: &BucketShape, narrowing: &BucketPredicate) -> RawDocumentBuf {
    let mut clauses = vec![narrowing.page_condition()];
    clauses.extend_from_slice(narrowing.clauses());
    clauses.push(single(shape.count(), single("$gt", 0)));
    single("$match", single("$and", array_of(&clauses)))
}

/// The expression for the value of a key field in an item of the bucket: the field of the first item, else
/// the field of the page header.
pub(super) fn first_value(shape: &BucketShape, field: &str) -> RawDocumentBuf {
    let mut own = single("field", single("$literal", field));
    own.append(cstr!("input"), single("$first", format!("${}", shape.items())));
    let mut values = RawArrayBuf::new();
    values.push(single("$getField", &own));
    values.push(format!("${field}"));
    single("$ifNull", &values)
}

impl<'a> Summary<'a> {
    fn parse(shape: &BucketShape, pipeline: &'a [RawDocumentBuf]) -> Option<Self> {
        let mut rest = pipeline;
        let mut take = |wanted: &str| -> Option<RawBsonRef<'a>> {
            let (stage, behind) = rest.split_first()?;
            let (_, value) = only_field(stage).filter(|(name, _)| *name == wanted)?;
            rest = behind;
            Some(value)
        };
        let filter = take("$match")
            .map(|filter| filter.as_document().ok_or(()))
            .transpose()
            .ok()?;
        let narrowing = BucketPredicate::of(shape, filter);
        if !narrowing.is_of_key_alone() {
            return None;
        }
        let bound = |value: RawBsonRef<'_>| i32::try_from(whole(value)?).ok().filter(|number| *number >= 0);
        let skip = take("$skip").map_or(Some(0), bound)?;
        let limit = take("$limit").map(|limit| bound(limit).filter(|limit| *limit > 0).ok_or(()));
        let limit = limit.transpose().ok()?;
        let group = match take("$count") {
            Some(name) => CountGroup::count(name)?,
            None => CountGroup::parse(shape, take("$group")?.as_document()?)?,
        };
        Some(Self {
            narrowing,
            skip,
            limit,
            group,
            rest,
        })
    }

    /// The stages for a count of the items after `skip`, `limit` at most. For none they return nothing.
    fn within_bounds(&self, shape: &BucketShape, id: RawBsonRef<'_>) -> [RawDocumentBuf; 4] {
        let mut group = single("_id", RawBson::Null);
        put(&mut group, "n", single("$sum", count_of(shape)));
        let mut left = single("$subtract", pair("$n", self.skip));
        if let Some(limit) = self.limit {
            left = single("$min", pair(left, limit));
        }
        // The type that mongod counts in.
        let mut narrow = single("if", single("$lte", pair("$$left", i32::MAX)));
        narrow.append(cstr!("then"), single("$toInt", "$$left"));
        narrow.append(cstr!("else"), "$$left");
        let mut bounded = single("vars", single("left", &left));
        bounded.append(cstr!("in"), single("$cond", &narrow));
        let mut project = single("_id", single("$literal", id));
        for (name, number) in &self.group.counters {
            put(&mut project, name, single("$multiply", pair("$n", *number)));
        }
        [
            single("$group", &group),
            single("$project", single("n", single("$let", &bounded))),
            single("$match", single("n", single("$gt", 0))),
            single("$project", &project),
        ]
    }
}

impl<'a> CountGroup<'a> {
    fn count(name: RawBsonRef<'a>) -> Option<Self> {
        let name = name.as_str().filter(|name| is_name(name) && *name != "_id")?;
        Some(Self {
            by: By::Constant(RawBsonRef::Null),
            counters: vec![(name, RawBsonRef::Int32(1))],
            without_id: true,
        })
    }

    fn parse(shape: &BucketShape, group: &'a RawDocument) -> Option<Self> {
        let (mut by, mut counters) = (None, Vec::new());
        let mut names = BTreeSet::new();
        for field in group {
            let (name, value) = field.ok()?;
            match name.as_str() {
                "_id" if by.is_none() => by = Some(By::parse(shape, value)?),
                "_id" => return None,
                name if is_name(name) && names.insert(name) => counters.push((name, counter(value)?)),
                _ => return None,
            }
        }
        Some(Self {
            by: by?,
            counters,
            without_id: false,
        })
    }

    fn stage(&self, shape: &BucketShape, id: RawBsonRef<'_>) -> RawDocumentBuf {
        single("$group", self.counted(shape, id))
    }

    fn counted(&self, shape: &BucketShape, id: RawBsonRef<'_>) -> RawDocumentBuf {
        let mut group = single("_id", id);
        for (name, number) in &self.counters {
            let each = match number {
                RawBsonRef::Int32(1) => count_of(shape),
                number => single("$multiply", pair(count_of(shape), *number)),
            };
            put(&mut group, name, single("$sum", &each));
        }
        group
    }

    /// The stages for one group for each value of a key field. The `_id` is the value in an item.
    fn by_key(&self, shape: &BucketShape, field: &str) -> [RawDocumentBuf; 3] {
        let names = self.counters.iter().map(|(name, _)| name.as_bytes());
        let shown = unused_name("mongoshape_shown", names);
        let path = format!("${field}");
        let mut group = self.counted(shape, RawBsonRef::String(&path));
        put(&mut group, &shown, single("$first", first_value(shape, field)));
        let or_null = single("$ifNull", pair(format!("${shown}"), RawBson::Null));
        [
            single("$group", &group),
            single("$set", single("_id", &or_null)),
            single("$unset", shown),
        ]
    }
}

impl<'a> By<'a> {
    fn parse(shape: &BucketShape, id: RawBsonRef<'a>) -> Option<Self> {
        match id {
            RawBsonRef::String(text) => match text.strip_prefix('$') {
                None => Some(Self::Constant(id)),
                Some(field) => shape.key().iter().any(|name| name == field).then_some(Self::Key(field)),
            },
            RawBsonRef::Null
            | RawBsonRef::Boolean(_)
            | RawBsonRef::Int32(_)
            | RawBsonRef::Int64(_)
            | RawBsonRef::Double(_) => Some(Self::Constant(id)),
            _ => None,
        }
    }
}

/// A bucket's count as an `int`, the type in which mongod counts documents.
fn count_of(shape: &BucketShape) -> RawDocumentBuf {
    single("$toInt", format!("${}", shape.count()))
}

/// The number that an accumulator adds for each item. `None` if it depends on the item.
fn counter(accumulator: RawBsonRef<'_>) -> Option<RawBsonRef<'_>> {
    match only_field(accumulator.as_document()?)? {
        ("$sum", number) => whole(number).map(|_| number),
        ("$count", RawBsonRef::Document(nothing)) if nothing.is_empty() => Some(RawBsonRef::Int32(1)),
        _ => None,
    }
}

/// The value of a whole number below [`MAX_NUMBER`].
fn whole(value: RawBsonRef<'_>) -> Option<i64> {
    let number = match value {
        RawBsonRef::Int32(number) => i64::from(number),
        RawBsonRef::Int64(number) => number,
        RawBsonRef::Double(number) if number.fract() == 0.0 && !(number == 0.0 && number.is_sign_negative()) => {
            crate::command::document::as_whole_number(value)?
        }
        _ => return None,
    };
    (number.unsigned_abs() < MAX_NUMBER.unsigned_abs()).then_some(number)
}

/// Whether a stage may add a field with this name.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('$') && !name.contains(['.', '\0'])
}

fn only_field(document: &RawDocument) -> Option<(&str, RawBsonRef<'_>)> {
    first_field(document).filter(|_| document.iter().count() == 1)
}

fn pair(one: impl Into<RawBson>, other: impl Into<RawBson>) -> RawArrayBuf {
    [one.into(), other.into()].into_iter().collect()
}

#[cfg(test)]
mod tests;
