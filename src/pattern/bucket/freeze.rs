//! The validator that refuses every write until a swap is done.

use std::iter;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use crate::command::document::{array_of, first_field, get, single};

/// The field that a document would need to satisfy the validator of a frozen collection.
const MARKER: &str = "mongoshape_compact";
/// The prefix of such fields, also in a collection that [`pack`](super::pack) replaces.
const FREEZES: &str = "mongoshape_";
/// The collection option that freezes it.
pub const VALIDATOR: &str = "validator";

/// The validator of a frozen collection.
#[must_use]
pub fn freeze() -> RawDocumentBuf {
    single(MARKER, single("$exists", true))
}

/// The same for a collection whose validator has clauses that must not be lost.
#[must_use]
pub fn freeze_with(recorded: impl Iterator<Item = RawDocumentBuf>) -> RawDocumentBuf {
    let clauses: Vec<RawDocumentBuf> = iter::once(freeze()).chain(recorded).collect();
    if clauses.len() == 1 {
        return freeze();
    }
    single("$and", array_of(&clauses))
}

/// Whether a collection is frozen. `options` are those that `listCollections` returns.
#[must_use]
pub fn is_frozen(options: &RawDocument) -> bool {
    is_frozen_by(options, &freeze())
}

/// Whether the validator of a collection is this clause, or begins with it.
pub(super) fn is_frozen_by(options: &RawDocument, freeze: &RawDocument) -> bool {
    let Some(validator) = get(options, VALIDATOR).and_then(RawBsonRef::as_document) else {
        return false;
    };
    let clauses = get(validator, "$and").and_then(RawBsonRef::as_array);
    let first = clauses.and_then(|clauses| clauses.into_iter().next()?.ok()?.as_document());
    *first.unwrap_or(validator) == *freeze
}

/// Whether mongod's error reports a write to a frozen collection. A document as large as its error may leave
/// the specification out: then no other clause of a collection of pages has this operator.
#[must_use]
pub fn is_refused_by_freeze(error: &RawDocument) -> bool {
    let Some(info) = get(error, "errInfo").and_then(RawBsonRef::as_document) else {
        return true;
    };
    let details = get(info, "details").and_then(RawBsonRef::as_document);
    let parts = details.and_then(|details| get(details, "clausesNotSatisfied")?.as_array());
    let first = parts.and_then(|parts| parts.into_iter().next()?.ok()?.as_document());
    let first = first.and_then(|first| get(first, "details")?.as_document());
    let Some(details) = first.or(details) else {
        return true;
    };
    match get(details, "specifiedAs") {
        Some(specified) => {
            let first = specified.as_document().and_then(first_field);
            first.is_some_and(|(field, _)| field.starts_with(FREEZES))
        }
        None => get(info, "truncated").is_some() && get(details, "operatorName") == Some("$exists".into()),
    }
}
