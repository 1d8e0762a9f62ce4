//! `distinct` on documents, as mongod does it on a collection without a suitable index.
//!
//! mongod follows the rules of `extractAllElementsAlongPath` (`db/bson/dotted_path_support.cpp`),
//! which differ from those of an aggregation. In older versions a field may be named by the whole rest
//! of a path. A number is a position in an array or a field's name. Arrays along the path are traversed,
//! and an array at the end is unwound. The expression here does the same.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{array_of, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::server_version::ServerVersion;

/// The most steps of a path. Each step is nested in the one before, and mongod accepts 200 levels.
const MAX_STEPS: usize = 10;

/// The beginning of the string that [a rejected name](DottedNames::Rejected) converts to a number.
const REJECTED: &str = "mongoshape: a field's own name is the path, and its type is ";

/// The handling of a field whose own name is a path with dots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DottedNames {
    /// The path names the field: MongoDB 6.0.0 to 6.0.5.
    Named,
    /// The path does not name the field: 6.0 from 6.0.27 on, and 7.0 from 7.0.28 on.
    Ignored,
    /// The version is not known to behave in one of these ways. The pipeline fails if there is such a field.
    Rejected,
}

impl DottedNames {
    /// Both ways were tried with the versions at their limits. It is not published which version changed it.
    #[must_use]
    pub fn of(version: ServerVersion) -> Self {
        let new = ServerVersion::new;
        let ignoring = [new(6, 0, 27)..new(6, 1, 0), new(7, 0, 28)..new(7, 1, 0)];
        if (new(6, 0, 0)..new(6, 0, 6)).contains(&version) {
            Self::Named
        } else if ignoring.iter().any(|versions| versions.contains(&version)) {
            Self::Ignored
        } else {
            Self::Rejected
        }
    }
}

/// Whether the values of a path differ between [`DottedNames`].
#[must_use]
pub fn may_be_dotted_name(path: &str) -> bool {
    path.contains('.')
}

/// Whether mongod's error is that of [a rejected name](DottedNames::Rejected).
#[must_use]
pub fn is_of_rejected_name(error: &CommandError) -> bool {
    error.is(ErrorCode::ConversionFailure) && error.message().contains(REJECTED)
}

/// The stages that return each value once, in a document as its field `v`.
///
/// # Errors
/// The part that is not supported, for an error message.
pub fn values_of(
    path: &str,
    collation: Option<&RawDocument>,
    dotted: DottedNames,
) -> Result<Vec<RawDocumentBuf>, &'static str> {
    if path.split('.').count() > MAX_STEPS {
        return Err("distinct of a path of more than 10 fields");
    }
    let mut values = single("_id", 0);
    values.append(cstr!("v"), values_at("$$ROOT", path, dotted));
    let mut stages = vec![
        single("$project", &values),
        single("$unwind", "$v"),
        // Inside a document, so that an array is sorted as a whole.
        single("$group", single("_id", single("v", "$v"))),
    ];
    stages.extend(sort(collation));
    stages.push(single("$replaceRoot", single("newRoot", "$_id")));
    Ok(stages)
}

/// Whether a symbol is anywhere in a value. Under a collation mongod's `distinct` treats it as a
/// string, but `$group` does not.
#[must_use]
pub fn holds_symbol(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Symbol(_) => true,
        RawBsonRef::Document(document) => document.iter().flatten().any(|(_, value)| holds_symbol(value)),
        RawBsonRef::Array(array) => array.into_iter().flatten().any(holds_symbol),
        _ => false,
    }
}

/// The stage that sorts values, as mongod does. None under a collation, because mongod 6.0.5 cannot
/// sort symbols (error 201) and promises no order.
#[must_use]
pub fn sort(collation: Option<&RawDocument>) -> Option<RawDocumentBuf> {
    collation.is_none().then(|| single("$sort", single("_id", 1)))
}

/// The expression for an array of the values along a path from `start`, which is a document or an
/// array.
fn values_at(start: &str, path: &str, dotted: DottedNames) -> RawDocumentBuf {
    let mut end = conditional(
        single("$isArray", list(["$$end".into()])),
        "$$end",
        list(["$$end".into()]),
    );
    let further = match path.split_once('.') {
        None => RawBson::Array(RawArrayBuf::new()),
        Some((name, rest)) => {
            let next = variable("next", at(start, name), steps("$$next", rest));
            let found = variable("step", "$$this".to_owned(), values_at("$$step", rest, dotted));
            let mut reduce = single("input", &next);
            reduce.append(cstr!("initialValue"), RawArrayBuf::new());
            reduce.append(
                cstr!("in"),
                single("$concatArrays", list(["$$value".into(), found.into()])),
            );
            let further = single("$reduce", &reduce);
            match dotted {
                DottedNames::Named => {}
                DottedNames::Ignored => return further,
                DottedNames::Rejected => end = rejection(),
            }
            further.into()
        }
    };
    let is_missing = single("$eq", list([single("$type", "$$end").into(), "missing".into()]));
    variable("end", at(start, path), conditional(is_missing, further, end))
}

/// An expression that fails.
fn rejection() -> RawDocumentBuf {
    let text = list([REJECTED.into(), single("$type", "$$end").into()]);
    single("$toInt", single("$concat", text))
}

/// The expression for the value of `start` under a name: a field or, in an array, the element at
/// that position.
fn at(start: &str, name: &str) -> RawDocumentBuf {
    let mut field = single("field", single("$literal", name));
    field.append(cstr!("input"), start);
    let mut branches = vec![branch(&is_type(start, "object"), single("$getField", &field))];
    if let Some(position) = position(name) {
        let element = single("$arrayElemAt", list([start.into(), position.into()]));
        branches.push(branch(&is_type(start, "array"), element));
    }
    switch(&branches, "$$REMOVE")
}

/// The expression for the values from which the rest of a path continues.
fn steps(found: &str, rest: &str) -> RawDocumentBuf {
    let itself = || list([found.into()]);
    let name = rest.split('.').next().unwrap_or_default();
    let of_array = if name.bytes().all(|byte| byte.is_ascii_digit()) {
        RawBson::Array(itself())
    } else {
        let kinds = list(["object".into(), "array".into()]);
        let mut filter = single("input", found);
        filter.append(cstr!("as"), "element");
        filter.append(
            cstr!("cond"),
            single("$in", list([single("$type", "$$element").into(), kinds.into()])),
        );
        single("$filter", &filter).into()
    };
    let branches = [
        branch(&is_type(found, "object"), itself()),
        branch(&is_type(found, "array"), of_array),
    ];
    switch(&branches, RawArrayBuf::new())
}

/// The array position that a name stands for. `None` for a name with leading zeros.
fn position(name: &str) -> Option<i32> {
    let position: i32 = name.parse().ok()?;
    (position.to_string() == name)
        .then_some(position)
        .filter(|position| *position >= 0)
}

fn is_type(value: &str, kind: &str) -> RawDocumentBuf {
    single("$eq", list([single("$type", value).into(), kind.into()]))
}

fn branch(condition: &RawDocument, then: impl Into<RawBson>) -> RawDocumentBuf {
    let mut branch = single("case", condition);
    branch.append(cstr!("then"), then.into());
    branch
}

fn switch(branches: &[RawDocumentBuf], default: impl Into<RawBson>) -> RawDocumentBuf {
    let mut switch = single("branches", array_of(branches));
    switch.append(cstr!("default"), default.into());
    single("$switch", &switch)
}

fn conditional(condition: RawDocumentBuf, then: impl Into<RawBson>, otherwise: impl Into<RawBson>) -> RawDocumentBuf {
    single("$cond", list([condition.into(), then.into(), otherwise.into()]))
}

fn variable(name: &str, value: impl Into<RawBson>, within: impl Into<RawBson>) -> RawDocumentBuf {
    let mut expression = single("vars", single(name, value.into()));
    expression.append(cstr!("in"), within.into());
    single("$let", &expression)
}

pub(in crate::pattern) fn list<const LENGTH: usize>(values: [RawBson; LENGTH]) -> RawArrayBuf {
    values.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_were_not_tried_are_rejected() {
        for (version, expected) in [
            (ServerVersion::new(6, 0, 0), DottedNames::Named),
            (ServerVersion::new(6, 0, 5), DottedNames::Named),
            (ServerVersion::new(6, 0, 6), DottedNames::Rejected),
            (ServerVersion::new(6, 0, 27), DottedNames::Ignored),
            (ServerVersion::new(6, 2, 27), DottedNames::Rejected),
            (ServerVersion::new(7, 0, 5), DottedNames::Rejected),
            (ServerVersion::new(7, 0, 28), DottedNames::Ignored),
            (ServerVersion::new(8, 0, 0), DottedNames::Rejected),
            (ServerVersion::default(), DottedNames::Rejected),
        ] {
            assert_eq!(DottedNames::of(version), expected, "{version:?}");
        }
    }
}
