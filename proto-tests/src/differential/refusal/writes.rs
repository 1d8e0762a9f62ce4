//! The refusals of writes and indexes: each kind by its message, with the features that a command needs to be
//! refused so.

use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document};

use super::write_request::WriteRequest;
use super::{NOT_SUPPORTED, holds, message, names};
use crate::ItemIds;
use crate::differential::Topology;
use crate::differential::sides::field;

/// Operators that compare stored values.
const COMPARING: [&str; 6] = ["$addToSet", "$max", "$min", "$pull", "$pullAll", "$push"];
/// Those that compute.
const COMPUTING: [&str; 3] = ["$bit", "$inc", "$mul"];
/// The error of a resent findAndModify that has moved its item to another key.
const MOVED: &str = "what it was before is not known any more";
/// The error for a value that cannot be a key.
const NO_KEY: &str = "cannot be a key";

/// A kind of refusal.
struct Kind {
    name: &'static str,
    /// A part of its message.
    text: &'static str,
    /// Whether the command has the feature that is refused.
    is_expected: fn(&WriteRequest<'_>) -> bool,
}

const fn kind(name: &'static str, text: &'static str, is_expected: fn(&WriteRequest<'_>) -> bool) -> Kind {
    Kind {
        name,
        text,
        is_expected,
    }
}

/// Refusals with a fixed message.
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method itself is of one lifetime, and does not compile"
)]
const KINDS: &[Kind] = &[
    kind(
        "move on a standalone",
        "an update that moves an item to another key on a standalone",
        |write| write.topology == Topology::Standalone && write.may_change_key(),
    ),
    kind(
        "move behind a mongos",
        "an update that moves an item to another key, outside a transaction behind a mongos",
        |write| write.topology.is_behind_mongos() && write.may_change_key(),
    ),
    kind(
        "move behind a mongos, with change streams",
        "an update that moves an item to another key behind a mongos, with `change_streams = true` in the shape",
        |write| write.topology.is_behind_mongos() && write.shape.change_streams && write.may_change_key(),
    ),
    kind(
        "findAndModify of a time behind a mongos",
        "a retryable findAndModify that changes the time of an item behind a mongos",
        |write| write.topology.is_behind_mongos() && write.may_move(),
    ),
    kind(
        "one item of a sharded collection without its key",
        "a write of one item of a sharded collection whose filter does not name the item's key",
        |write| write.topology == Topology::Sharded && write.is_of_one() && !write.leads_to_key(),
    ),
    kind(
        "upsert with another key",
        "an upsert of a sharded collection that inserts an item with another key than its filter names",
        |write| write.topology == Topology::Sharded && write.upserts(),
    ),
    kind(
        "update of many under a collation",
        "an update of many items of a sharded collection under a collation",
        |write| write.topology == Topology::Sharded && write.statement.contains_key("collation"),
    ),
    kind("filter with $where", "$where in a ", |write| {
        names(write.filter(), "$where")
    }),
    kind("filter with $text", "$text in a ", |write| {
        names(write.filter(), "$text")
    }),
    kind("filter with $near", "$near in a ", |write| {
        names(write.filter(), "$near") || names(write.filter(), "$nearSphere")
    }),
    // An earlier operation may have created such an index.
    kind(
        "hint of a partial index",
        "a hint of a sparse, partial or wildcard index",
        |write| write.statement.contains_key("hint"),
    ),
    kind("hint of a backward scan", "a hint of {$natural: -1}", |write| {
        write.statement.contains_key("hint")
    }),
    kind("invalid key value", NO_KEY, |write| write.may_give_no_key()),
    kind("sparse unique index", "a sparse unique index (it would omit", |write| {
        has_index_with(write, "unique") && has_index_with(write, "sparse")
    }),
    kind(
        "field whose name begins with $",
        "a field whose name begins with $",
        |write| write.has_part(|part| part.starts_with('$')),
    ),
    kind(
        "`_id` where none is kept",
        "an update that adds an `_id` to an item of a shape with item_ids = \"dropped\"",
        |write| write.shape.item_ids == ItemIds::Dropped && names(write.change(), "_id"),
    ),
    kind("change of `_id`", " of '_id' is not supported", |write| {
        write.changes_field(&["_id"])
    }),
    kind(
        "$rename through a value that is no document",
        "$rename of the path ",
        |write| write.has_operator(&["$rename"]) && write.paths().iter().any(|path| path.contains('.')),
    ),
    kind("positional operator", "the positional operator $ on ", has_positional),
    kind("positional operators", "several positional operators $", has_positional),
    kind("findAndModify that has moved its item, sent again", MOVED, |write| {
        write.is_sent_again && write.topology.has_transactions() && write.may_move()
    }),
];

/// Updates whose result the proxy computes.
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method itself is of one lifetime, and does not compile"
)]
const COMPUTED: &[Kind] = &[
    kind("upsert", "an upsert ", |write| write.upserts()),
    kind(
        "change of key or time",
        "an update of a key field or of the time ",
        |write| write.is_by_operators() && write.changes_place(),
    ),
    kind(
        "fields added in another order",
        "an update that adds several fields, one of them renamed, ",
        |write| write.is_by_operators() && !write.shape.rename.is_empty(),
    ),
];

/// What it is not sure of then.
const UNSURE: &[Kind] = &[
    kind("under a collation", "that compares values under a collation", |write| {
        write.statement.contains_key("collation") && write.has_operator(&COMPARING)
    }),
    kind("with array filters", "with array filters", |write| {
        write.has_filters_of_arrays()
    }),
    kind("with decimals", "that computes with decimals", |write| {
        write.has_operator(&COMPUTING)
    }),
    kind("of odd types", "that compares values of these types", |write| {
        let filter = write.filter();
        write.has_operator(&COMPARING)
            || ["$in", "$all"].iter().any(|name| names(filter, name))
            || holds(filter, &|_, value| matches!(value, Bson::Symbol(_)))
    }),
    kind("of an empty timestamp", "of an empty timestamp", |write| {
        // A pipeline may take it from elsewhere, an item may have it.
        write.has_empty_timestamp() || write.change().as_array().is_some() || !write.upserts()
    }),
    kind("of a field without a name", "of a field without a name", |write| {
        write.has_part(str::is_empty)
    }),
    kind("of a path with $", "with the path '", |write| {
        write.has_part(|part| part.starts_with('$'))
    }),
    kind("of numbers in paths", "beside numbers", |write| {
        write.has_part(|part| part.starts_with(|first: char| first.is_ascii_digit()))
    }),
    kind(
        "of an `_id` by a pipeline",
        "by a pipeline with an invalid `_id`",
        |write| write.change().as_array().is_some() && names(write.filter(), "_id"),
    ),
    // Each operator that is named is looked for by itself.
    kind("with an operator", "with $", |_| true),
    kind("with an operator", "with an empty $all in its filter", |_| true),
];

/// The kind of a refused write or index, from a reply or a write error; `None` where it is none, of no kind
/// that is listed, or for a reason that the command does not give.
pub(in crate::differential) fn of_write(write: &WriteRequest<'_>, reply: &RawDocument) -> Option<String> {
    if write.outlier.is_some() {
        return super::outlier::of_write(write, reply);
    }
    let message = message(reply);
    let code = field(reply, "code");
    // BadValue, as an insert has it.
    let is_refusal = code == Some(RawBsonRef::Int32(NOT_SUPPORTED))
        || (code == Some(RawBsonRef::Int32(2)) && message.contains(NO_KEY))
        || (code == Some(RawBsonRef::Int32(20)) && message.contains(MOVED));
    if !is_refusal || !has_operators_of(write, message) {
        return None;
    }
    let is_it = |kind: &&Kind| message.contains(kind.text) && (kind.is_expected)(write);
    if let Some(kind) = KINDS.iter().find(is_it) {
        return Some(kind.name.to_owned());
    }
    let computed = COMPUTED.iter().find(is_it)?;
    let unsure = UNSURE.iter().find(is_it)?;
    Some(format!("{} {}", computed.name, unsure.name))
}

/// Whether the command has all operators that a message names.
fn has_operators_of(write: &WriteRequest<'_>, message: &str) -> bool {
    let statement = Bson::Document(write.statement.clone());
    // What stands between quotation marks is a path.
    let message: String = message.split('\'').step_by(2).collect();
    let operators = message.split(|end: char| !end.is_ascii_alphabetic() && end != '$');
    let mut operators = operators.filter(|word| word.len() > 1 && word.starts_with('$'));
    operators.all(|operator| names(&statement, operator) || (operator == "$near" && names(&statement, "$nearSphere")))
}

fn has_positional(write: &WriteRequest<'_>) -> bool {
    write.paths().iter().any(|path| path.split('.').any(|part| part == "$"))
}

fn has_index_with(write: &WriteRequest<'_>, option: &str) -> bool {
    let indexes = write.statement.get_array("indexes").into_iter().flatten();
    let mut indexes = indexes.filter_map(Bson::as_document);
    indexes.any(|index: &Document| index.contains_key(option))
}
