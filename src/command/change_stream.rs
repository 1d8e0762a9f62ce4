//! The change stream that an `aggregate` opens.

use bson::raw::{RawBsonRef, RawDocument};

use super::document::{as_flag, first_field, get};
use super::header::CommandHeader;
use super::registry::Command;

/// What a change stream watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamScope {
    /// One collection.
    Collection,
    /// All collections of a database.
    Database,
    /// All collections of all databases.
    Cluster,
}

/// The options of the `$changeStream` that the pipeline of a command begins with.
#[must_use]
pub fn options(body: &RawDocument) -> Option<RawBsonRef<'_>> {
    let stages = get(body, "pipeline")?.as_array()?;
    let first = stages.into_iter().next()?.ok()?;
    let (name, options) = first_field(first.as_document()?)?;
    (name == "$changeStream").then_some(options)
}

/// What the change stream of an `aggregate` watches. `None`: the command opens none.
#[must_use]
pub fn scope(head: &CommandHeader<'_>) -> Option<StreamScope> {
    if head.command != Command::Aggregate {
        return None;
    }
    let options = options(head.body())?;
    if head.target.is_some() {
        return Some(StreamScope::Collection);
    }
    let of_cluster = options
        .as_document()
        .and_then(|options| get(options, "allChangesForCluster"));
    Some(if of_cluster.and_then(as_flag) == Some(true) {
        StreamScope::Cluster
    } else {
        StreamScope::Database
    })
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    fn check(body: &RawDocument, expected: Option<StreamScope>) {
        let head = CommandHeader::of_body(body).unwrap();
        assert_eq!(scope(&head), expected, "{body:?}");
    }

    #[test]
    fn a_stream_watches_a_collection_a_database_or_the_cluster() {
        let stream = || rawdoc! { "$changeStream": {} };
        check(
            &rawdoc! { "aggregate": "c", "pipeline": [stream()], "$db": "d" },
            Some(StreamScope::Collection),
        );
        check(
            &rawdoc! { "aggregate": 1, "pipeline": [stream()], "$db": "d" },
            Some(StreamScope::Database),
        );
        let of_cluster = rawdoc! { "$changeStream": { "allChangesForCluster": true } };
        check(
            &rawdoc! { "aggregate": 1, "pipeline": [of_cluster], "$db": "admin" },
            Some(StreamScope::Cluster),
        );
        let first = rawdoc! { "$match": {} };
        check(
            &rawdoc! { "aggregate": "c", "pipeline": [first, stream()], "$db": "d" },
            None,
        );
        check(&rawdoc! { "aggregate": "c", "pipeline": [], "$db": "d" }, None);
        check(&rawdoc! { "find": "c", "pipeline": [stream()], "$db": "d" }, None);
    }
}
