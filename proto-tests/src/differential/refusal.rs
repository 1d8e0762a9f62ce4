//! What the proxy may refuse, for now, and in which words.
//!
//! A refusal that is not listed is a disagreement; so is one whose message gives another reason than the command does.

use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document};

use super::sides::field;

/// `CommandNotSupported`.
const NOT_SUPPORTED: i32 = 115;

/// Whether the reply is a refusal of this command for a reason that the command gives.
pub(super) fn is_refused(command: &Document, reply: &RawDocument) -> bool {
    if field(reply, "code") != Some(RawBsonRef::Int32(NOT_SUPPORTED)) {
        return false;
    }
    let message = field(reply, "errmsg").and_then(RawBsonRef::as_str).unwrap_or_default();
    reasons(command).iter().any(|reason| message.contains(reason))
}

/// What is said to a findAndModify that is sent again and has moved its item to another key.
const MOVED: &str = "what it was before is not known any more";

/// The kinds of writes and indexes that the proxy may refuse, by what its messages say.
const KINDS: &[(&str, &str)] = &[
    (
        "move on a standalone",
        "an update that moves an item to another page, of another key",
    ),
    ("filter with $where", "$where in a "),
    ("filter with $text", "$text in a "),
    ("filter with $near", "$near in a "),
    ("what is no key", "cannot be a key"),
    // What would be inserted is computed in the proxy, of what it is sure of.
    ("upsert of an odd kind", "pattern: an upsert "),
    (
        "change of key or time with array filters",
        "a change of key or time with array filters",
    ),
    (
        "change of key or time of an odd kind",
        "such an update of a key field or of the time",
    ),
    (
        "findAndModify with an expression in its projection",
        "findAndModify with such a projection",
    ),
    ("unique index", "a unique index, which would be"),
    ("index with a time to live", "an index with expireAfterSeconds"),
    ("field whose name begins with $", "a field whose name begins with $"),
    (
        "`_id` where none is kept",
        "an update that gives an item an `_id` where none is kept",
    ),
    ("change of `_id` of an odd kind", " of '_id' is not supported"),
    ("positional operator", "the positional operator $ on "),
    ("positional operators", "several positional operators $"),
    ("findAndModify that has moved its item, sent again", MOVED),
];

/// The kind of a refused write or index, from a reply or a write error; `None` where it is none, or of no kind that is listed.
pub(super) fn kind(reply: &RawDocument) -> Option<&'static str> {
    let message = field(reply, "errmsg").and_then(RawBsonRef::as_str).unwrap_or_default();
    let code = field(reply, "code");
    // BadValue, as an insert has it.
    let is_refusal = code == Some(RawBsonRef::Int32(NOT_SUPPORTED))
        || (code == Some(RawBsonRef::Int32(2)) && message.contains("cannot be a key"))
        || (code == Some(RawBsonRef::Int32(20)) && message.contains(MOVED));
    let of_kind = KINDS.iter().find(|(_, part)| message.contains(part));
    of_kind.filter(|_| is_refusal).map(|(kind, _)| *kind)
}

/// Whether it asks for text, for which mongod has one error on a collection without a text index, and another on a view.
pub(super) fn asks_for_text(command: &Document) -> bool {
    names(&Bson::Document(command.clone()), "$text")
}

/// Parts of the messages with which the proxy may refuse a command.
fn reasons(command: &Document) -> Vec<&'static str> {
    let mut reasons = Vec::new();
    for name in ["filter", "query", "pipeline"] {
        let value = command.get(name).unwrap_or(&Bson::Null);
        for (operator, reason) in [
            ("$where", "$where in a "),
            ("$text", "$text in a "),
            ("$near", "$near in a "),
        ] {
            if names(value, operator) {
                reasons.push(reason);
            }
        }
    }
    for (option, reason) in [
        ("min", "find with 'min'"),
        ("max", "find with 'max'"),
        ("returnKey", "find with 'returnKey'"),
        ("showRecordId", "find with 'showRecordId'"),
    ] {
        if command.contains_key(option) {
            reasons.push(reason);
        }
    }
    if names(command.get("sort").unwrap_or(&Bson::Null), "$natural") {
        reasons.push("a sort by $natural");
    }
    if command.contains_key("distinct") && command.contains_key("collation") {
        reasons.push("distinct of symbols under a collation");
    }
    // What it is read through has a collation of its own: `$graphLookup`, and `$lookup` below a `$facet`.
    let pipeline = command.get("pipeline").unwrap_or(&Bson::Null);
    if command.contains_key("collation") && (names(pipeline, "$graphLookup") || names(pipeline, "$facet")) {
        reasons.push("with a collation, a stage that reads it through the view");
    }
    if names(pipeline, "$graphLookup") {
        reasons.push("$graphLookup of items without an _id");
    }
    if let Ok(projection) = command.get_document("projection") {
        reasons.extend(find_only_forms(projection, command.get_document("filter").ok()));
    }
    reasons
}

fn find_only_forms(projection: &Document, filter: Option<&Document>) -> Vec<&'static str> {
    let mut reasons = Vec::new();
    let value = Bson::Document(projection.clone());
    let positional = projection.keys().any(|name| name.ends_with(".$"));
    if positional {
        reasons.push("such a positional operator ($) in a projection");
    }
    for kind in ["recordId", "indexKey", "sortKey"] {
        if holds(&value, &|name, value| name == "$meta" && value.as_str() == Some(kind)) {
            reasons.push("$meta: ");
        }
    }
    let is_find_only = positional || ["$slice", "$elemMatch", "$meta"].iter().any(|form| names(&value, form));
    let filter = filter.cloned().map(Bson::Document).unwrap_or_default();
    if is_find_only && holds(&filter, &|name, _| name.split('.').any(str::is_empty)) {
        reasons.push("beside a filter on a field without a name, in a projection");
    }
    reasons
}

fn names(value: &Bson, operator: &str) -> bool {
    holds(value, &|name, _| name == operator)
}

/// Whether there is such a field at any depth.
fn holds(value: &Bson, wanted: &dyn Fn(&str, &Bson) -> bool) -> bool {
    match value {
        Bson::Document(document) => document
            .iter()
            .any(|(name, value)| wanted(name, value) || holds(value, wanted)),
        Bson::Array(values) => values.iter().any(|value| holds(value, wanted)),
        _ => false,
    }
}
