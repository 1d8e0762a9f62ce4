//! mongod's errors for a clause of the [application's validator](super::ApplicationValidator).

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use crate::command::document::{get, put};
use crate::command::error::ErrorCode;

/// The result of an insert of an item where only pages are stored.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The item satisfies the application's validator.
    Satisfied,
    /// It does not. The `errInfo` of a plain collection.
    Violated(RawDocumentBuf),
}

/// Whether mongod's error reports an item that does not satisfy the application's validator: the reply of a
/// failed command, or an element of `writeErrors`.
#[must_use]
pub fn is_invalid(error: &RawDocument) -> bool {
    info(error).and_then(evaluated).is_some()
}

/// What mongod's error for a document that is no page states about the application's validator. If nothing
/// is enforced, each document satisfies it. `None`: it is another error.
#[must_use]
pub fn verdict(error: &RawDocument) -> Option<Verdict> {
    let info = info(error)?;
    let Some(details) = evaluated(info).and_then(|evaluated| part(evaluated, 1)) else {
        let code = get(error, "code").and_then(RawBsonRef::as_i32)?;
        return (code == ErrorCode::DocumentValidationFailure.number()).then_some(Verdict::Satisfied);
    };
    let mut of_item = RawDocumentBuf::new();
    for (name, value) in info.iter().flatten() {
        let value = if name == "details" {
            RawBsonRef::Document(details)
        } else {
            value
        };
        put(&mut of_item, name.as_str(), value);
    }
    Some(Verdict::Violated(of_item))
}

fn info(error: &RawDocument) -> Option<&RawDocument> {
    get(error, "errInfo")?.as_document()
}

/// The details of the first alternative of the application's clause. mongod leaves all expressions out of
/// the details of a large document, but not their results: no other clause of a page has the result `null`.
fn evaluated(info: &RawDocument) -> Option<&RawDocument> {
    let details = get(info, "details")?.as_document()?;
    parts(details).find_map(|(_, clause)| {
        let first = part(clause, 0)?;
        let marker = part(first, 0)?;
        (get(marker, "expressionResult") == Some(RawBsonRef::Null)).then_some(first)
    })
}

/// The details of the part of a connective at this position, if it is not satisfied.
fn part(details: &RawDocument, position: i32) -> Option<&RawDocument> {
    parts(details).find_map(|(at, part)| (at == position).then_some(part))
}

/// The parts that are not satisfied, and their positions.
fn parts(details: &RawDocument) -> impl Iterator<Item = (i32, &RawDocument)> {
    let parts = get(details, "clausesNotSatisfied").and_then(RawBsonRef::as_array);
    let parts = parts
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(RawBsonRef::as_document);
    parts.filter_map(|part| Some((get(part, "index")?.as_i32()?, get(part, "details")?.as_document()?)))
}
