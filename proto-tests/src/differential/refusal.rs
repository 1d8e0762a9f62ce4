//! The refusals that are allowed, with their messages: of reads here, of writes and indexes in [`writes`].
//!
//! A refusal that is not listed is a disagreement. A refusal whose message names a reason that the command
//! does not give is a disagreement, too.

mod outlier;
mod write_request;
mod writes;

use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document};

use super::sides::field;

pub(super) use self::outlier::of_read as of_outlier_read;
pub(super) use self::write_request::{WriteRequest, is_no_key};
pub(super) use self::writes::of_write;

/// `CommandNotSupported`.
const NOT_SUPPORTED: i32 = 115;

/// The reason, where the reply is a refusal of this command for one that the command gives.
pub(super) fn of_read(command: &Document, reply: &RawDocument) -> Option<&'static str> {
    if field(reply, "code") != Some(RawBsonRef::Int32(NOT_SUPPORTED)) {
        return None;
    }
    let message = message(reply);
    reasons(command).into_iter().find(|reason| message.contains(reason))
}

fn message(reply: &RawDocument) -> &str {
    field(reply, "errmsg").and_then(RawBsonRef::as_str).unwrap_or_default()
}

/// Whether it has `$text`, for which mongod has one error on a collection without a text index, and another
/// on a view.
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
            ("$nearSphere", "$near"),
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
    // An earlier operation may have created such an index.
    if command.contains_key("hint") {
        reasons.push("a hint of a sparse, partial or wildcard index");
        reasons.push("a hint of {$natural: -1}");
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
        reasons.push("a stage that reads it through the view of its items, with a collation");
    }
    if names(pipeline, "$collStats") {
        reasons.push("a stage with statistics behind a mongos");
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
    let positional = projection.keys().any(|name| name.split('.').any(|part| part == "$"));
    if positional {
        reasons.push("this use of the positional operator $ in a projection");
    }
    for kind in ["recordId", "indexKey", "sortKey"] {
        if holds(&value, &|name, value| name == "$meta" && value.as_str() == Some(kind)) {
            reasons.push("$meta: ");
        }
    }
    let has_dollar = projection
        .keys()
        .any(|name| name.split('.').any(|part| part.starts_with('$')));
    let is_find_only = has_dollar || ["$slice", "$elemMatch", "$meta"].iter().any(|form| names(&value, form));
    let filter = filter.cloned().map(Bson::Document).unwrap_or_default();
    if is_find_only && holds(&filter, &|name, _| name.split('.').any(str::is_empty)) {
        reasons.push("beside a filter on a field without a name, in a projection");
    }
    reasons
}

/// Whether a field's name begins with `$`, at any depth.
pub(super) fn has_dollar(document: &Document) -> bool {
    holds(&Bson::Document(document.clone()), &|name, _| name.starts_with('$'))
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
