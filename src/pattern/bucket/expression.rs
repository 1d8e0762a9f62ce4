//! Aggregation expressions for updates.

use bson::raw::{BindRawBsonRef, RawArrayBuf, RawDocumentBuf};

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

/// An expression that fails with error 241 (`ConversionFailure`), so that the statement changes
/// nothing and reports a miss. It reads a field because mongod would evaluate a constant expression
/// in advance.
pub(super) fn miss() -> RawDocumentBuf {
    single(
        "$toInt",
        call("$concat", "no page like that: ", single("$type", "$_id")),
    )
}
