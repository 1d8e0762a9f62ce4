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
    reasons.extend(command.get_document("projection").ok().and_then(find_only_form));
    reasons
}

fn find_only_form(projection: &Document) -> Option<&'static str> {
    let value = Bson::Document(projection.clone());
    let is_find_only = projection.keys().any(|name| name.ends_with(".$"))
        || ["$slice", "$elemMatch", "$meta"]
            .iter()
            .any(|operator| names(&value, operator));
    is_find_only.then_some("in a projection")
}

fn names(value: &Bson, operator: &str) -> bool {
    match value {
        Bson::Document(document) => document
            .iter()
            .any(|(name, value)| name == operator || names(value, operator)),
        Bson::Array(values) => values.iter().any(|value| names(value, operator)),
        _ => false,
    }
}
