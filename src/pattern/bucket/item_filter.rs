//! Evaluates a client's filter on stored items.
//!
//! Only comparisons, `$in`, `$exists` and their connectives are evaluated. [`ItemFilter::parse`]
//! returns `None` for any other filter. [`ItemFilter::matches`] returns `None` for an item whose
//! values the proxy does not compare as mongod does, such as an array in the middle of a path.
//! mongod then evaluates the filter.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use bson::raw::{RawBsonRef, RawDocument};

use super::value_order::{compare, is_comparable, rank};
use crate::command::document::{as_flag, first_field, get};
use crate::pattern::shapes::BucketShape;

/// A stored item with the application's field names.
#[derive(Clone, Copy, Debug)]
pub struct StoredItem<'a> {
    /// The shape of the collection.
    pub shape: &'a BucketShape,
    /// The bucket of the item.
    pub bucket: &'a RawDocument,
    /// The item's element in the array.
    pub stored: &'a RawDocument,
}

/// A path leads through an array, so it may lead to several values.
#[derive(Clone, Copy, Debug)]
pub struct ArrayInPath;

impl<'a> StoredItem<'a> {
    /// The value at a path. `None` if it is missing.
    ///
    /// # Errors
    /// An array along the path.
    pub fn value(&self, path: &str) -> Result<Option<RawBsonRef<'a>>, ArrayInPath> {
        let mut names = path.split('.');
        let mut value = names.next().and_then(|name| self.field(name));
        for name in names {
            value = match value {
                Some(RawBsonRef::Document(document)) => get(document, name),
                Some(RawBsonRef::Array(_)) => return Err(ArrayInPath),
                _ => return Ok(None),
            };
        }
        Ok(value)
    }

    fn field(&self, name: &str) -> Option<RawBsonRef<'a>> {
        let own = get(self.stored, self.shape.rename().stored(name));
        own.or_else(|| {
            let is_key = self.shape.key().iter().any(|field| field == name);
            is_key.then(|| get(self.bucket, name)).flatten()
        })
    }
}

/// The most tests of a filter. All of them may be evaluated for each item, in a thread that other clients
/// share.
const MAX_TESTS: usize = 100;

/// A filter that the proxy evaluates: a conjunction.
#[derive(Clone, Debug, Default)]
pub struct ItemFilter<'a>(Vec<Clause<'a>>);

#[derive(Clone, Debug)]
enum Clause<'a> {
    Field { path: &'a str, test: FieldTest<'a> },
    Or(Vec<ItemFilter<'a>>),
    Nor(Vec<ItemFilter<'a>>),
}

#[derive(Clone, Debug)]
enum FieldTest<'a> {
    Equal(RawBsonRef<'a>),
    Compare(Comparison, RawBsonRef<'a>),
    /// Any of these values, in the order of [`compare`]: a client may list a million.
    In(Vec<RawBsonRef<'a>>),
    Exists(bool),
    Not(Vec<FieldTest<'a>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    fn holds(self, value: Ordering) -> bool {
        match self {
            Self::Less => value.is_lt(),
            Self::LessOrEqual => value.is_le(),
            Self::Greater => value.is_gt(),
            Self::GreaterOrEqual => value.is_ge(),
        }
    }
}

/// The end of a range of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundSide {
    /// The least value.
    Lower,
    /// The greatest.
    Upper,
}

/// An end of a range of values: each value of it has the bound's type and is not beyond the bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RangeBound<'a> {
    /// The least or the greatest value.
    pub value: RawBsonRef<'a>,
    /// Whether the range contains the value itself.
    pub is_included: bool,
}

impl<'a> From<RawBsonRef<'a>> for RangeBound<'a> {
    /// The bound of a range that contains it.
    fn from(value: RawBsonRef<'a>) -> Self {
        let is_included = true;
        Self { value, is_included }
    }
}

impl<'a> ItemFilter<'a> {
    /// Parses a filter. `None` if the proxy cannot evaluate it, or if it has more than [`MAX_TESTS`].
    #[must_use]
    pub fn parse(filter: Option<&'a RawDocument>) -> Option<Self> {
        Self::conjunction(filter).filter(|filter| filter.tests() <= MAX_TESTS)
    }

    fn conjunction(filter: Option<&'a RawDocument>) -> Option<Self> {
        let mut clauses = Vec::new();
        for field in filter.into_iter().flat_map(RawDocument::iter) {
            let (name, value) = field.ok()?;
            match name.as_str() {
                "$comment" => {}
                "$and" => {
                    for branch in branches(value)? {
                        clauses.extend(branch.0);
                    }
                }
                "$or" => clauses.push(Clause::Or(branches(value)?)),
                "$nor" => clauses.push(Clause::Nor(branches(value)?)),
                path if is_plain_path(path) => {
                    let tests = tests(value)?;
                    clauses.extend(tests.into_iter().map(|test| Clause::Field { path, test }));
                }
                _ => return None,
            }
        }
        Some(Self(clauses))
    }

    /// The number of tests. A branch without one counts, too.
    fn tests(&self) -> usize {
        let clauses = self.0.iter().map(|clause| match clause {
            Clause::Field { test, .. } => test.tests(),
            Clause::Or(branches) | Clause::Nor(branches) => {
                branches.iter().map(|branch| branch.tests().max(1)).sum::<usize>()
            }
        });
        clauses.sum()
    }

    /// Whether an item matches. `None` if mongod must evaluate the filter.
    #[must_use]
    pub fn matches(&self, item: &StoredItem<'_>) -> Option<bool> {
        for clause in &self.0 {
            let matches = match clause {
                Clause::Field { path, test } => test.matches(item.value(path).ok()?)?,
                Clause::Or(branches) => any_matches(branches, item)?,
                Clause::Nor(branches) => !any_matches(branches, item)?,
            };
            if !matches {
                return Some(false);
            }
        }
        Some(true)
    }

    /// The value that the filter demands at a path.
    #[must_use]
    pub fn equality(&self, path: &str) -> Option<RawBsonRef<'a>> {
        self.tests_of(path).find_map(|test| match test {
            FieldTest::Equal(value) => Some(*value),
            _ => None,
        })
    }

    /// The values of an `$in` on a path in their order, if the filter has one.
    #[must_use]
    pub fn list(&self, path: &str) -> Option<&[RawBsonRef<'a>]> {
        self.tests_of(path).find_map(|test| match test {
            FieldTest::In(values) => Some(&values[..]),
            _ => None,
        })
    }

    /// A bound of the values at a path. `None` if the filter implies no bound.
    #[must_use]
    pub fn bound(&self, path: &str, end: BoundSide) -> Option<RangeBound<'a>> {
        let own = self.tests_of(path).find_map(|test| match (test, end) {
            (FieldTest::Equal(value), _) if *value != RawBsonRef::Null => Some((*value).into()),
            (FieldTest::Compare(Comparison::LessOrEqual, value), BoundSide::Upper)
            | (FieldTest::Compare(Comparison::GreaterOrEqual, value), BoundSide::Lower) => Some((*value).into()),
            (FieldTest::Compare(Comparison::Less, value), BoundSide::Upper)
            | (FieldTest::Compare(Comparison::Greater, value), BoundSide::Lower) => {
                let (value, is_included) = (*value, false);
                Some(RangeBound { value, is_included })
            }
            _ => None,
        });
        own.or_else(|| {
            self.0.iter().find_map(|clause| match clause {
                Clause::Or(branches) => loosest_bound(branches, path, end),
                _ => None,
            })
        })
    }

    /// Whether the filter compares a path that begins with the field `root`, at any depth of the
    /// filter.
    #[must_use]
    pub fn mentions(&self, root: &str) -> bool {
        self.0.iter().any(|clause| match clause {
            Clause::Field { path, .. } => path.split('.').next() == Some(root),
            Clause::Or(branches) | Clause::Nor(branches) => branches.iter().any(|branch| branch.mentions(root)),
        })
    }

    fn tests_of(&self, wanted: &str) -> impl Iterator<Item = &FieldTest<'a>> {
        self.0.iter().filter_map(move |clause| match clause {
            Clause::Field { path, test } if *path == wanted => Some(test),
            _ => None,
        })
    }
}

/// The bound that the items of all branches satisfy.
fn loosest_bound<'a>(branches: &[ItemFilter<'a>], path: &str, end: BoundSide) -> Option<RangeBound<'a>> {
    let mut loosest: Option<RangeBound<'a>> = None;
    for branch in branches {
        let bound = branch.bound(path, end)?;
        let Some(other) = &mut loosest else {
            loosest = Some(bound);
            continue;
        };
        (rank(other.value)? == rank(bound.value)?).then_some(())?;
        let order = compare(bound.value, other.value)?;
        if order.is_eq() {
            other.is_included |= bound.is_included;
        } else if order.is_gt() == (end == BoundSide::Upper) {
            *other = bound;
        }
    }
    loosest
}

fn any_matches(branches: &[ItemFilter<'_>], item: &StoredItem<'_>) -> Option<bool> {
    for branch in branches {
        if branch.matches(item)? {
            return Some(true);
        }
    }
    Some(false)
}

fn branches(value: RawBsonRef<'_>) -> Option<Vec<ItemFilter<'_>>> {
    let branches = value.as_array()?.into_iter();
    let branches: Vec<ItemFilter<'_>> = branches
        .map(|branch| ItemFilter::conjunction(Some(branch.ok()?.as_document()?)))
        .collect::<Option<_>>()?;
    (!branches.is_empty()).then_some(branches)
}

/// Whether a path consists of field names only: no empty name, no operator.
#[must_use]
pub fn is_plain_path(path: &str) -> bool {
    path.split('.').all(|name| !name.is_empty() && !name.starts_with('$'))
}

/// The tests in the condition on one field.
fn tests(condition: RawBsonRef<'_>) -> Option<Vec<FieldTest<'_>>> {
    let RawBsonRef::Document(operators) = condition else {
        return Some(vec![FieldTest::Equal(operand(condition)?)]);
    };
    first_field(operators)?;
    let tests = operators.iter().map(|operator| {
        let (name, value) = operator.ok()?;
        Some(match name.as_str() {
            "$eq" => FieldTest::Equal(operand(value)?),
            "$ne" => FieldTest::Not(vec![FieldTest::Equal(operand(value)?)]),
            "$lt" => FieldTest::Compare(Comparison::Less, limit(value)?),
            "$lte" => FieldTest::Compare(Comparison::LessOrEqual, limit(value)?),
            "$gt" => FieldTest::Compare(Comparison::Greater, limit(value)?),
            "$gte" => FieldTest::Compare(Comparison::GreaterOrEqual, limit(value)?),
            "$in" => FieldTest::In(operands(value)?),
            "$nin" => FieldTest::Not(vec![FieldTest::In(operands(value)?)]),
            "$exists" => FieldTest::Exists(as_flag(value)?),
            "$not" => FieldTest::Not(value.as_document().and_then(|_| tests(value))?),
            _ => return None,
        })
    });
    tests.collect()
}

/// The values of a list, in their order.
fn operands(values: RawBsonRef<'_>) -> Option<Vec<RawBsonRef<'_>>> {
    let values = values.as_array()?.into_iter();
    let mut values: Vec<RawBsonRef<'_>> = values.map(|value| operand(value.ok()?)).collect::<Option<_>>()?;
    values.sort_by(|one, other| compare(*one, *other).unwrap_or(Ordering::Equal));
    Some(values)
}

/// A value that [`FieldTest::Equal`] compares with.
fn operand(value: RawBsonRef<'_>) -> Option<RawBsonRef<'_>> {
    let is_extreme = matches!(value, RawBsonRef::MinKey | RawBsonRef::MaxKey) || is_nan(value);
    (!is_extreme && is_comparable(value)).then_some(value)
}

/// A value that [`FieldTest::Compare`] compares with.
fn limit(value: RawBsonRef<'_>) -> Option<RawBsonRef<'_>> {
    operand(value).filter(|value| *value != RawBsonRef::Null)
}

fn is_nan(value: RawBsonRef<'_>) -> bool {
    matches!(value, RawBsonRef::Double(number) if number.is_nan())
}

impl FieldTest<'_> {
    fn tests(&self) -> usize {
        match self {
            Self::Not(tests) => tests.iter().map(Self::tests).sum(),
            Self::Equal(_) | Self::Compare(..) | Self::In(_) | Self::Exists(_) => 1,
        }
    }

    fn matches(&self, value: Option<RawBsonRef<'_>>) -> Option<bool> {
        match self {
            Self::Equal(wanted) => is_equal_or_has(*wanted, value),
            Self::Compare(comparison, limit) => any_value(value, |value| is_within(*comparison, *limit, value)),
            Self::In(wanted) => any_value(value, |value| is_listed(wanted, value)),
            Self::Exists(wanted) => Some(value.is_some() == *wanted),
            Self::Not(tests) => {
                for test in tests {
                    if !test.matches(value)? {
                        return Some(true);
                    }
                }
                Some(false)
            }
        }
    }
}

/// Whether a value passes a test. For an array: whether one of its elements does.
fn any_value<'a>(value: Option<RawBsonRef<'a>>, test: impl Fn(Option<RawBsonRef<'a>>) -> Option<bool>) -> Option<bool> {
    let Some(RawBsonRef::Array(elements)) = value else {
        return test(value);
    };
    for element in elements {
        if test(Some(element.ok()?))? {
            return Some(true);
        }
    }
    Some(false)
}

/// Whether a value equals `wanted`. For an array: whether one of its elements does. `None` if the
/// proxy does not compare the values.
#[must_use]
pub fn is_equal_or_has(wanted: RawBsonRef<'_>, value: Option<RawBsonRef<'_>>) -> Option<bool> {
    any_value(value, |value| is_equal(wanted, value))
}

fn is_equal(wanted: RawBsonRef<'_>, value: Option<RawBsonRef<'_>>) -> Option<bool> {
    match value {
        None => Some(wanted == RawBsonRef::Null),
        Some(value) => compare(wanted, value).map(Ordering::is_eq),
    }
}

/// Whether a list in the order of its values has a value. A missing value equals `null`. `None` if the proxy
/// does not compare the value with those of its type in the list.
fn is_listed(wanted: &[RawBsonRef<'_>], value: Option<RawBsonRef<'_>>) -> Option<bool> {
    let value = value.unwrap_or(RawBsonRef::Null);
    let place = wanted.partition_point(|wanted| compare(*wanted, value).is_some_and(Ordering::is_lt));
    match wanted.get(place) {
        Some(next) => compare(*next, value).map(Ordering::is_eq),
        None => Some(false),
    }
}

fn is_within(comparison: Comparison, limit: RawBsonRef<'_>, value: Option<RawBsonRef<'_>>) -> Option<bool> {
    let Some(value) = value else { return Some(false) };
    if rank(value)? != rank(limit)? {
        return Some(false);
    }
    Some(!is_nan(value) && comparison.holds(compare(value, limit)?))
}
