//! Conditions of a filter on key fields, which buckets answer by their lifted values.

use bson::raw::{RawArray, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use crate::command::document::{array_of, first_field, single};
use crate::pattern::shapes::BucketShape;

/// What the lifted value of a key field shows of a condition on the field. An item's own value may have
/// another numeric type than the lifted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LiftedValue {
    /// The items of a bucket meet the condition if and only if the lifted value does.
    Decides,
    /// The lifted value meets the condition if an item does.
    Follows,
}

impl LiftedValue {
    /// `None` if the lifted value shows nothing.
    pub(super) fn of(condition: RawBsonRef<'_>) -> Option<Self> {
        let operators = match condition {
            RawBsonRef::RegularExpression(_) => return Some(Self::Follows),
            RawBsonRef::Document(operators) if !operators.is_empty() => operators,
            _ => return None,
        };
        let mut all = Self::Decides;
        for operator in operators {
            let (name, value) = operator.ok()?;
            if Self::of_operator(name.as_str(), value)? == Self::Follows {
                all = Self::Follows;
            }
        }
        Some(all)
    }

    fn of_operator(name: &str, value: RawBsonRef<'_>) -> Option<Self> {
        match (name, value) {
            ("$eq", value) => comparable(value).then_some(Self::Decides),
            ("$gt" | "$gte" | "$lt" | "$lte", value) => {
                let is_ordered = comparable(value) && !matches!(value, RawBsonRef::Null | RawBsonRef::Document(_));
                is_ordered.then_some(Self::Decides)
            }
            ("$in", RawBsonRef::Array(values)) => {
                let mut all = Self::Decides;
                for value in values {
                    match value.ok()? {
                        RawBsonRef::RegularExpression(_) => all = Self::Follows,
                        value if comparable(value) => {}
                        _ => return None,
                    }
                }
                Some(all)
            }
            ("$regex", RawBsonRef::String(_) | RawBsonRef::RegularExpression(_))
            | ("$options", RawBsonRef::String(_)) => Some(Self::Follows),
            _ => None,
        }
    }
}

/// The position among the key fields of the field that a path begins with.
#[must_use]
pub fn key_position(shape: &BucketShape, path: &str) -> Option<usize> {
    let root = path.split('.').next()?;
    shape.key().iter().position(|field| field == root)
}

/// The value that a condition demands, if MongoDB compares it with the whole value of the field. `None` for
/// arrays, which would also match inside arrays, and for regular expressions, which are patterns.
pub(super) fn equal_value(value: RawBsonRef<'_>) -> Option<RawBsonRef<'_>> {
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

/// The conditions on buckets that a `$expr` implies: equalities of a key field and a variable, as in a
/// `$lookup` with a `let`. A bucket without the field has items that lack the field and items in which it is
/// null. Only one of the two is equal to a variable, so such buckets are always included.
pub(super) fn key_expressions(shape: &BucketShape, expression: RawBsonRef<'_>) -> Vec<RawDocumentBuf> {
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
