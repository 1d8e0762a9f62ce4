//! The refusals that are allowed on an outlier collection.

use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document};

use super::write_request::WriteRequest;
use super::{NOT_SUPPORTED, find_only_forms, holds, message, names};
use crate::differential::sides::field;

/// The error of a resent findAndModify whose reply is lost.
const FORGOTTEN: &str = "its original result is no longer available";

/// Operators that are refused, and how the message names them.
const OPERATORS: [(&str, &str); 4] = [
    ("$where", "$where"),
    ("$text", "$text"),
    ("$near", "$near"),
    ("$nearSphere", "$near"),
];

/// The reason, where the reply is a refusal of this read for one that it gives.
pub(in crate::differential) fn of_read(command: &Document, reply: &RawDocument) -> Option<&'static str> {
    if field(reply, "code") != Some(RawBsonRef::Int32(NOT_SUPPORTED)) {
        return None;
    }
    let message = message(reply);
    reasons(command).into_iter().find(|reason| message.contains(reason))
}

fn reasons(command: &Document) -> Vec<&'static str> {
    let mut reasons = Vec::new();
    for name in ["filter", "query", "pipeline"] {
        let value = command.get(name).unwrap_or(&Bson::Null);
        for (operator, named) in OPERATORS {
            if names(value, operator) {
                reasons.push(named);
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
    if command.contains_key("distinct") && command.contains_key("collation") {
        reasons.push("distinct of symbols under a collation");
    }
    if let Ok(projection) = command.get_document("projection") {
        reasons.extend(find_only_forms(projection, command.get_document("filter").ok()));
        let filter = Bson::Document(command.get_document("filter").cloned().unwrap_or_default());
        if holds(&filter, &|name, _| name.split('.').any(str::is_empty)) {
            reasons.push("beside a filter on a field without a name");
        }
        if projection.contains_key("_id") {
            reasons.push(" without _id");
        }
        if projection.keys().any(|name| name.ends_with(".$")) {
            reasons.push("this use of the positional operator $");
        }
    }
    reasons
}

/// The kind of a refused write, from a reply or a write error.
pub(super) fn of_write(write: &WriteRequest<'_>, reply: &RawDocument) -> Option<String> {
    let message = message(reply);
    if field(reply, "code") == Some(RawBsonRef::Int32(20)) && message.contains(FORGOTTEN) && write.is_sent_again {
        return Some("findAndModify of an outlier, sent again".to_owned());
    }
    if field(reply, "code") != Some(RawBsonRef::Int32(NOT_SUPPORTED)) {
        return None;
    }
    for (operator, named) in OPERATORS {
        if names(write.filter(), operator) && message.contains(named) {
            return Some(format!("filter with {operator}"));
        }
    }
    None
}
