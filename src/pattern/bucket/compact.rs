//! Compaction: short pages are packed again, in a copy that is swapped in.
//!
//! Items cannot move between pages while others read (see
//! `docs/decisions/0016-short-pages-are-packed-in-a-copy.md`). So each key's items are stored on new
//! pages in a copy, as if one client had inserted them in their order ([`Packer`]). Stored items
//! keep every bit. Before the swap the collection is *frozen*: a validator that no document
//! satisfies refuses every insert and update. No statement that removes a bucket removes an item
//! (see [`super::delete`]), so a frozen collection keeps its items.

mod packer;
mod page_chain;
#[cfg(test)]
mod tests;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

pub use self::packer::{Given, Packed, Packer, UnreadablePage};
pub use self::page_chain::PageChain;
use super::validator::ApplicationValidator;
use crate::command::document::{array_of, first_field, get, single};

/// The suffix of the copy's name.
const SUFFIX: &str = ".mongoshape_compact";
/// The suffix of the copy's name while no run works on it.
const STOPPED: &str = ".mongoshape_compact_stopped";
/// The field that a document would need to satisfy the validator of a frozen collection.
const MARKER: &str = "mongoshape_compact";
/// The prefix of such fields, also in a collection that [`pack`](super::pack) replaces.
const FREEZES: &str = "mongoshape_";
/// The collection option that freezes it.
pub const VALIDATOR: &str = "validator";

/// The name of a collection's copy, in the same database.
#[must_use]
pub fn copy_name(collection: &str) -> String {
    format!("{collection}{SUFFIX}")
}

/// The name of the copy of a stopped run. Statements that are still in flight were sent to the
/// other name, so none of them reaches the copy.
#[must_use]
pub fn stopped_name(collection: &str) -> String {
    format!("{collection}{STOPPED}")
}

/// The validator of a frozen collection.
#[must_use]
pub fn freeze() -> RawDocumentBuf {
    single(MARKER, single("$exists", true))
}

/// The same for a collection with options of the application, which the validator goes on to record.
#[must_use]
pub fn freeze_with(application: Option<&ApplicationValidator>) -> RawDocumentBuf {
    match application {
        None => freeze(),
        Some(application) => {
            let clauses = [freeze(), application.clause().to_owned()];
            single("$and", array_of(&clauses))
        }
    }
}

/// Whether a collection is frozen. `options` are those that `listCollections` returns.
#[must_use]
pub fn is_frozen(options: &RawDocument) -> bool {
    let Some(validator) = get(options, VALIDATOR).and_then(RawBsonRef::as_document) else {
        return false;
    };
    let clauses = get(validator, "$and").and_then(RawBsonRef::as_array);
    let first = clauses.and_then(|clauses| clauses.into_iter().next()?.ok()?.as_document());
    *first.unwrap_or(validator) == *freeze()
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
