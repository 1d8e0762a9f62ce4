//! Aggregation expressions for updates and pipelines.

use bson::raw::{BindRawBsonRef, RawArrayBuf, RawDocument, RawDocumentBuf};

use super::layout::path;
use crate::command::document::single;

/// `{operator: [first, second]}`
pub(super) fn call(operator: &str, first: impl BindRawBsonRef, second: impl BindRawBsonRef) -> RawDocumentBuf {
    let mut operands = RawArrayBuf::new();
    operands.push(first);
    operands.push(second);
    single(operator, &operands)
}

/// `{operator: ["$path", value]}`
pub(super) fn of_field(operator: &str, path: &str, value: impl BindRawBsonRef) -> RawDocumentBuf {
    call(operator, field(path).as_str(), value)
}

/// `{$cond: [condition, then, otherwise]}`
pub(super) fn choice(
    condition: &RawDocument,
    then: impl BindRawBsonRef,
    otherwise: impl BindRawBsonRef,
) -> RawDocumentBuf {
    let mut operands = RawArrayBuf::new();
    operands.push(condition);
    operands.push(then);
    operands.push(otherwise);
    single("$cond", &operands)
}

/// `{$literal: value}`: mongod does not interpret `$` in the value.
pub(super) fn literal(value: impl BindRawBsonRef) -> RawDocumentBuf {
    single("$literal", value)
}

/// The expression for the value at a path.
pub(super) fn field(path: &str) -> String {
    format!("${path}")
}

/// The expression for whether the field at a path is missing.
pub(super) fn is_missing(path: &str) -> RawDocumentBuf {
    call("$eq", single("$type", field(path).as_str()), "missing")
}

/// The conditions under which the items of a page and those of all pages before it (for page 0: after it) are
/// in the order of time.
pub(super) fn shows_time_order() -> [RawDocumentBuf; 2] {
    [is_missing(path::LATE), is_missing(path::UNORDERED)]
}

/// An expression that fails with error 241 (`ConversionFailure`), so that the statement changes
/// nothing and reports a miss. It reads a field because mongod would evaluate a constant expression
/// in advance.
pub(super) fn miss() -> RawDocumentBuf {
    single(
        "$toInt",
        call("$concat", "no page like that: ", single("$type", "$_id")),
    )
}
