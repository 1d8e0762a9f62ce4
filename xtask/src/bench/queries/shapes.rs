//! The shapes that are measured.

mod all_keys;
mod group;
mod key;

use bson::{Document, doc};

use super::arguments::Arguments;
use super::shape::Shape;

/// A collection of one document a conversation, beside the messages.
pub(super) const CONVERSATIONS: &str = "conversations";

/// All shapes, in the order of the tables.
pub(super) fn all() -> Vec<Shape> {
    let groups = [
        all_keys::sorted(),
        all_keys::others(),
        key::pages(),
        key::ranges(),
        key::others(),
        group::counts(),
        group::groups(),
    ];
    groups.into_iter().flatten().collect()
}

/// A `find` with this filter.
fn find(arguments: &Arguments<'_>, filter: Document) -> Document {
    doc! { "find": arguments.collection, "filter": filter }
}

/// A `find` with this filter, sorted and limited.
fn first(arguments: &Arguments<'_>, filter: Document, sort: Document, limit: i32) -> Document {
    let mut command = find(arguments, filter);
    command.insert("sort", sort);
    command.insert("limit", limit);
    command
}

/// An aggregation of the messages.
fn aggregate(arguments: &Arguments<'_>, pipeline: &[Document]) -> Document {
    doc! { "aggregate": arguments.collection, "pipeline": pipeline, "cursor": {} }
}

/// What drivers send for `countDocuments`.
fn count_documents(arguments: &Arguments<'_>, filter: &Document) -> Document {
    let group = doc! { "$group": { "_id": 1, "n": { "$sum": 1 } } };
    aggregate(arguments, &[doc! { "$match": filter }, group])
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn there_are_more_than_40_shapes_with_names_of_their_own() {
        let shapes = all();
        let names: HashSet<_> = shapes.iter().map(|shape| shape.name).collect();
        assert_eq!(names.len(), shapes.len());
        assert!(names.len() > 40, "{}", names.len());
    }
}
