//! The refusals of writes and indexes: each kind by its message, with the features that a command needs to be
//! refused so.

use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document};

use super::asked::Asked;
use super::{NOT_SUPPORTED, holds, message, names};
use crate::ItemIds;
use crate::differential::sides::field;

/// Operators that compare stored values.
const COMPARING: [&str; 6] = ["$addToSet", "$max", "$min", "$pull", "$pullAll", "$push"];
/// Those that compute.
const COMPUTING: [&str; 3] = ["$bit", "$inc", "$mul"];
/// What is said to a findAndModify that is sent again and has moved its item to another key.
const MOVED: &str = "what it was before is not known any more";
/// What is said of a key that is none.
const NO_KEY: &str = "cannot be a key";

/// A kind of refusal.
struct Kind {
    name: &'static str,
    /// Part of its message.
    says: &'static str,
    /// Whether the command gives the reason.
    is_asked_for: fn(&Asked<'_>) -> bool,
}

const fn kind(name: &'static str, says: &'static str, is_asked_for: fn(&Asked<'_>) -> bool) -> Kind {
    Kind {
        name,
        says,
        is_asked_for,
    }
}

/// What is refused as it is.
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method itself is of one lifetime, and does not compile"
)]
const KINDS: &[Kind] = &[
    kind(
        "move on a standalone",
        "an update that moves an item to another key on a standalone",
        |asked| !asked.has_transactions && asked.may_change_key(),
    ),
    kind("filter with $where", "$where in a ", |asked| {
        names(asked.filter(), "$where")
    }),
    kind("filter with $text", "$text in a ", |asked| {
        names(asked.filter(), "$text")
    }),
    kind("filter with $near", "$near in a ", |asked| {
        names(asked.filter(), "$near") || names(asked.filter(), "$nearSphere")
    }),
    kind("what is no key", NO_KEY, |asked| asked.may_give_no_key()),
    kind(
        "findAndModify with an expression in its projection",
        "findAndModify with this projection",
        has_expressions,
    ),
    kind("unique index", "a unique index (it would index pages", |asked| {
        has_index_with(asked, "unique")
    }),
    kind(
        "index with a time to live",
        "an index with expireAfterSeconds",
        |asked| has_index_with(asked, "expireAfterSeconds"),
    ),
    kind(
        "field whose name begins with $",
        "a field whose name begins with $",
        |asked| asked.has_part(|part| part.starts_with('$')),
    ),
    kind(
        "`_id` where none is kept",
        "an update that adds an `_id` to an item of a shape with item_ids = \"dropped\"",
        |asked| asked.shape.item_ids == ItemIds::Dropped && names(asked.change(), "_id"),
    ),
    kind("change of `_id`", " of '_id' is not supported", |asked| {
        asked.changes_field(&["_id"])
    }),
    kind("$rename through what is no document", "$rename of the path ", |asked| {
        asked.has_operator(&["$rename"]) && asked.paths().iter().any(|path| path.contains('.'))
    }),
    kind("positional operator", "the positional operator $ on ", has_positional),
    kind("positional operators", "several positional operators $", has_positional),
    kind("findAndModify that has moved its item, sent again", MOVED, |asked| {
        asked.is_sent_again && asked.has_transactions && asked.may_move()
    }),
];

/// Updates whose result the proxy computes.
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method itself is of one lifetime, and does not compile"
)]
const COMPUTED: &[Kind] = &[
    kind("upsert", "an upsert ", |asked| asked.upserts()),
    kind(
        "change of key or time",
        "an update of a key field or of the time ",
        |asked| asked.is_by_operators() && asked.changes_place(),
    ),
    kind(
        "fields added in another order",
        "an update that adds several fields, one of them renamed, ",
        |asked| asked.is_by_operators() && !asked.shape.rename.is_empty(),
    ),
];

/// What it is not sure of then.
const UNSURE: &[Kind] = &[
    kind("under a collation", "that compares values under a collation", |asked| {
        asked.words.contains_key("collation") && asked.has_operator(&COMPARING)
    }),
    kind("with array filters", "with array filters", |asked| {
        asked.has_filters_of_arrays()
    }),
    kind("with decimals", "that computes with decimals", |asked| {
        asked.has_operator(&COMPUTING)
    }),
    kind("of odd types", "that compares values of these types", |asked| {
        let filter = asked.filter();
        asked.has_operator(&COMPARING)
            || ["$in", "$all"].iter().any(|name| names(filter, name))
            || holds(filter, &|_, value| matches!(value, Bson::Symbol(_)))
    }),
    kind("of an empty timestamp", "of an empty timestamp", |asked| {
        // A pipeline may take it from elsewhere, an item may have it.
        asked.has_empty_timestamp() || asked.change().as_array().is_some() || !asked.upserts()
    }),
    kind("of a field without a name", "of a field without a name", |asked| {
        asked.has_part(str::is_empty)
    }),
    kind("of a path with $", "with the path '", |asked| {
        asked.has_part(|part| part.starts_with('$'))
    }),
    kind("of numbers in paths", "beside numbers", |asked| {
        asked.has_part(|part| part.starts_with(|first: char| first.is_ascii_digit()))
    }),
    kind(
        "of an `_id` by a pipeline",
        "by a pipeline with an invalid `_id`",
        |asked| asked.change().as_array().is_some() && names(asked.filter(), "_id"),
    ),
    // Each operator that is named is looked for by itself.
    kind("with an operator", "with $", |_| true),
    kind("with an operator", "with an empty $all in its filter", |_| true),
];

/// The kind of a refused write or index, from a reply or a write error; `None` where it is none, of no kind
/// that is listed, or for a reason that the command does not give.
pub(in crate::differential) fn of_write(asked: &Asked<'_>, reply: &RawDocument) -> Option<String> {
    if asked.outlier.is_some() {
        return super::outlier::of_write(asked, reply);
    }
    let message = message(reply);
    let code = field(reply, "code");
    // BadValue, as an insert has it.
    let is_refusal = code == Some(RawBsonRef::Int32(NOT_SUPPORTED))
        || (code == Some(RawBsonRef::Int32(2)) && message.contains(NO_KEY))
        || (code == Some(RawBsonRef::Int32(20)) && message.contains(MOVED));
    if !is_refusal || !has_operators_of(asked, message) {
        return None;
    }
    let is_it = |kind: &&Kind| message.contains(kind.says) && (kind.is_asked_for)(asked);
    if let Some(kind) = KINDS.iter().find(is_it) {
        return Some(kind.name.to_owned());
    }
    let computed = COMPUTED.iter().find(is_it)?;
    let unsure = UNSURE.iter().find(is_it)?;
    Some(format!("{} {}", computed.name, unsure.name))
}

/// Whether all operators that a message names are among the command's words.
fn has_operators_of(asked: &Asked<'_>, message: &str) -> bool {
    let words = Bson::Document(asked.words.clone());
    // What stands between quotation marks is a path.
    let message: String = message.split('\'').step_by(2).collect();
    let operators = message.split(|end: char| !end.is_ascii_alphabetic() && end != '$');
    let mut operators = operators.filter(|word| word.len() > 1 && word.starts_with('$'));
    operators.all(|operator| names(&words, operator) || (operator == "$near" && names(&words, "$nearSphere")))
}

fn has_positional(asked: &Asked<'_>) -> bool {
    asked.paths().iter().any(|path| path.split('.').any(|part| part == "$"))
}

fn has_expressions(asked: &Asked<'_>) -> bool {
    let fields = asked.words.get_document("fields");
    fields.is_ok_and(|fields| {
        fields
            .iter()
            .any(|(name, value)| name.contains('.') || value.as_document().is_some())
    })
}

fn has_index_with(asked: &Asked<'_>, option: &str) -> bool {
    let indexes = asked.words.get_array("indexes").into_iter().flatten();
    let mut indexes = indexes.filter_map(Bson::as_document);
    indexes.any(|index: &Document| index.contains_key(option))
}
