//! Whether a command defines which documents it returns, and the order of values in them. Without I/O.

use bson::raw::{RawBsonRef, RawDocument};

use crate::command::document::{as_whole_number, first_field, get};
use crate::command::registry::Command;

/// Accumulators whose result depends on the order of the documents.
const BY_ORDER: [&str; 11] = [
    "$first",
    "$firstN",
    "$last",
    "$lastN",
    "$push",
    "$mergeObjects",
    "$accumulator",
    "$top",
    "$topN",
    "$bottom",
    "$bottomN",
];
/// Operators whose result is not defined by any order.
const UNDEFINED: [&str; 4] = ["$addToSet", "$rand", "$sample", "$sampleRate"];
/// The deepest value that is examined. A deeper one counts as dependent on the order.
const MAX_DEPTH: u32 = 100;

/// Stages that return one of several equal values.
const GROUPING: [&str; 4] = ["$group", "$bucket", "$bucketAuto", "$sortByCount"];

/// Whether the command defines the types of equal numbers. A group has the value of any of its documents.
pub(super) fn defines_types(command: Command, body: &RawDocument) -> bool {
    let stages = get(body, "pipeline").and_then(RawBsonRef::as_array);
    let mut stages = stages.into_iter().flatten().flatten();
    let groups = |stage: RawBsonRef<'_>| {
        let first = stage.as_document().and_then(first_field);
        first.is_some_and(|(name, _)| GROUPING.contains(&name))
    };
    command != Command::Distinct && !stages.any(groups)
}

/// Whether the command defines its result, except for the order of the documents.
pub(super) fn is_defined(command: Command, body: &RawDocument) -> bool {
    match command {
        Command::Find => is_defined_find(body),
        Command::Aggregate => {
            let stages = get(body, "pipeline").and_then(RawBsonRef::as_array);
            let mut order = DocumentOrder {
                has_unique_ids: true,
                is_total: false,
            };
            let mut stages = stages.into_iter().flatten().flatten();
            stages.all(|stage| order.accepts(stage))
        }
        _ => true,
    }
}

/// Without a limit, all matching documents are the result. With one, a sort by the `_id` or an equality with
/// an `_id` decides.
fn is_defined_find(body: &RawDocument) -> bool {
    let is_zero = |name| get(body, name).is_none_or(|value| as_whole_number(value) == Some(0));
    if is_zero("limit") && is_zero("skip") {
        return true;
    }
    let document = |name| get(body, name).and_then(RawBsonRef::as_document);
    let id = document("filter").and_then(|filter| get(filter, "_id"));
    document("sort").is_some_and(|sort| get(sort, "_id").is_some()) || id.is_some_and(is_one_value)
}

/// Whether a condition is an equality.
fn is_one_value(condition: RawBsonRef<'_>) -> bool {
    match condition {
        RawBsonRef::RegularExpression(_) => false,
        RawBsonRef::Document(condition) => {
            first_field(condition).is_none_or(|(name, _)| !name.starts_with('$') || name == "$eq")
        }
        _ => true,
    }
}

/// The order of the documents between two stages.
struct DocumentOrder {
    /// Whether no two documents have the same `_id`.
    has_unique_ids: bool,
    /// Whether each document has one position.
    is_total: bool,
}

impl DocumentOrder {
    /// Whether the result of a stage is defined. Then takes the order of its documents.
    fn accepts(&mut self, stage: RawBsonRef<'_>) -> bool {
        let Some((name, argument)) = stage.as_document().and_then(first_field) else {
            return true;
        };
        let chooses = matches!(name, "$limit" | "$skip");
        let depends = match name {
            "$group" | "$bucket" => contains(argument, &BY_ORDER, MAX_DEPTH),
            "$facet" | "$setWindowFields" | "$bucketAuto" | "$fill" | "$densify" => true,
            _ => false,
        };
        let is_undefined = UNDEFINED.contains(&name) || contains(argument, &UNDEFINED, MAX_DEPTH);
        if is_undefined || ((chooses || depends) && !self.is_total) {
            return false;
        }
        self.take(name, argument);
        true
    }

    fn take(&mut self, name: &str, argument: RawBsonRef<'_>) {
        match name {
            "$match" | "$redact" | "$limit" | "$skip" => {}
            "$sort" => {
                let by_id = argument.as_document().is_some_and(|sort| get(sort, "_id").is_some());
                self.is_total = by_id && self.has_unique_ids;
            }
            "$group" | "$bucket" | "$sortByCount" => {
                self.has_unique_ids = true;
                self.is_total = false;
            }
            // A stage may replace the `_id`, and keeps the order.
            "$project" | "$addFields" | "$set" | "$unset" | "$replaceRoot" | "$replaceWith" | "$unwind" => {
                self.has_unique_ids = false;
            }
            _ => {
                self.has_unique_ids = false;
                self.is_total = false;
            }
        }
    }
}

/// Whether a value contains a field with one of these names.
fn contains(value: RawBsonRef<'_>, names: &[&str], depth: u32) -> bool {
    let Some(depth) = depth.checked_sub(1) else {
        return true;
    };
    match value {
        RawBsonRef::Document(document) => {
            let mut fields = document.iter().flatten();
            fields.any(|(name, value)| names.contains(&name.as_str()) || contains(value, names, depth))
        }
        RawBsonRef::Array(array) => array.into_iter().flatten().any(|value| contains(value, names, depth)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use bson::raw::{RawArrayBuf, RawDocumentBuf};
    use bson::rawdoc;

    use super::*;

    #[test]
    fn a_limit_needs_an_order_by_id() {
        let check = |body: RawDocumentBuf, expected| {
            assert_eq!(is_defined(Command::Find, &body), expected, "{body:?}");
        };
        check(rawdoc! { "find": "c", "sort": { "k": 1 } }, true);
        check(rawdoc! { "find": "c", "limit": 0, "skip": 0_i64 }, true);
        check(rawdoc! { "find": "c", "limit": 1 }, false);
        check(rawdoc! { "find": "c", "skip": 1, "sort": { "k": 1 } }, false);
        check(rawdoc! { "find": "c", "limit": 1, "sort": { "k": 1, "_id": 1 } }, true);
        check(rawdoc! { "find": "c", "limit": 1, "filter": { "_id": 7 } }, true);
        check(
            rawdoc! { "find": "c", "limit": 1, "filter": { "_id": { "$eq": 7 } } },
            true,
        );
        check(
            rawdoc! { "find": "c", "limit": 1, "filter": { "_id": { "a": 7 } } },
            true,
        );
        check(
            rawdoc! { "find": "c", "limit": 1, "filter": { "_id": { "$gt": 7 } } },
            false,
        );
        assert!(is_defined(Command::Count, &rawdoc! { "count": "c", "limit": 1 }));
    }

    #[test]
    fn a_group_has_one_of_several_equal_values() {
        let check = |stage: RawDocumentBuf, expected| {
            let body = rawdoc! { "aggregate": "c", "pipeline": [{ "$match": {} }, stage] };
            assert_eq!(defines_types(Command::Aggregate, &body), expected, "{body:?}");
        };
        check(rawdoc! { "$group": { "_id": "$k" } }, false);
        check(rawdoc! { "$sortByCount": "$k" }, false);
        check(rawdoc! { "$project": { "k": 1 } }, true);
        assert!(!defines_types(
            Command::Distinct,
            &rawdoc! { "distinct": "c", "key": "k" }
        ));
        assert!(defines_types(Command::Find, &rawdoc! { "find": "c" }));
    }

    #[test]
    fn a_stage_that_depends_on_the_order_needs_a_total_one() {
        let check = |stages: &[RawDocumentBuf], expected| {
            let pipeline: RawArrayBuf = stages.iter().collect();
            let body = rawdoc! { "aggregate": "c", "pipeline": pipeline };
            assert_eq!(is_defined(Command::Aggregate, &body), expected, "{stages:?}");
        };
        let by_id = rawdoc! { "$sort": { "k": 1, "_id": 1 } };
        let by_key = rawdoc! { "$sort": { "k": 1 } };
        let limit = rawdoc! { "$limit": 5 };
        let sum = rawdoc! { "$group": { "_id": "$k", "n": { "$sum": "$n" } } };
        let list = rawdoc! { "$group": { "_id": "$k", "all": { "$push": "$n" } } };
        let set = rawdoc! { "$group": { "_id": "$k", "all": { "$addToSet": "$n" } } };
        let unwind = rawdoc! { "$unwind": "$tags" };
        check(&[], true);
        check(&[sum.clone(), by_id.clone(), limit.clone()], true);
        check(&[sum, limit.clone()], false);
        check(std::slice::from_ref(&list), false);
        check(&[by_key, list.clone()], false);
        check(&[by_id.clone(), unwind.clone(), list.clone(), by_id.clone()], true);
        check(&[by_id.clone(), limit.clone(), list], true);
        check(&[by_id.clone(), set], false);
        check(&[unwind, by_id, limit], false);
        check(&[rawdoc! { "$sample": { "size": 3 } }], false);
        check(
            &[rawdoc! { "$match": { "$expr": { "$lt": [{ "$rand": {} }, 0.5] } } }],
            false,
        );
        // An operator on an array.
        check(&[rawdoc! { "$project": { "x": { "$first": "$tags" } } }], true);
    }
}
